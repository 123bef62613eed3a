"""Judging an answer without the service that gave it: verify, execute again, compare (query-api §6, §9)."""
