"""Requests to one hub: HTTP, typed endpoints, retries (§10)."""
