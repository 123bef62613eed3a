"""The path of a message to disk: writer, ledger, journal, tail, applier with its queue, recovery (H2)."""
