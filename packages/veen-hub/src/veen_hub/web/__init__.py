"""The web pages of VEEN, each one HTML file that `bin/test -e web -- build` makes (ADR 0029)."""
