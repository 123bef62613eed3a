"""The LMDB index and its packed records, rebuildable from the log (§3.4.1)."""
