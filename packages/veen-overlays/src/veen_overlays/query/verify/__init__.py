"""Verify results without the service that made them: verify, execute again, compare (query-api §6, §9)."""
