"""The commit path: journal, writer, ledger, applier and recovery (H2)."""
