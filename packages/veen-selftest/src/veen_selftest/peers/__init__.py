"""A writer and a verifier of the selftest's own."""
