"""The path of a message to disk: writer, ledger, journal, applier with its queue, recovery (H2)."""
