"""Sending: drafts are sealed, kept in the outbox, sent, and settled after a crash (§9, RESYNC0)."""
