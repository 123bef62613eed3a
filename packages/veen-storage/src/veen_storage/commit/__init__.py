"""The path of a message to disk: writer, ledger, journal, applier and its queue, recovery after a crash (H2)."""
