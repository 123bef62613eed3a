"""The selftest's own clients: a writer of valid and invalid messages, and a verifier of logs."""
