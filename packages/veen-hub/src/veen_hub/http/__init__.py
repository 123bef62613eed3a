"""HTTP: handlers that decode, call one method of the hub, and reply (§10)."""
