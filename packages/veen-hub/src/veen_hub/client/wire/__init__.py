"""Requests to one hub: HTTP, typed endpoints, retries, and the shared context of a connection (§10)."""
