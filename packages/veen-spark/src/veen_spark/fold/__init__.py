"""Folding logs: ranges, duplicates, merging and states (§11.3)."""
