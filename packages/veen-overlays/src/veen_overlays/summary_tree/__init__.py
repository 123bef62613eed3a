"""The summary tree: cached summaries of dyadic ranges (§11.3)."""
