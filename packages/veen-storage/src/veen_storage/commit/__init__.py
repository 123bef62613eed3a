"""The path of a message to disk: writer, ledger, journal, applier, and recovery after a crash (H2)."""
