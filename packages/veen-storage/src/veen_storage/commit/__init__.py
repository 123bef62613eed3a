"""The path of a message to disk: writer, ledger, journal, applier with its queue, and recovery after a crash (H2)."""
