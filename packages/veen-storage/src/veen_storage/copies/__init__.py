"""Copies of a hub: clone, fork and export."""
