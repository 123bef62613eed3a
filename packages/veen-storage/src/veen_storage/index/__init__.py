"""The LMDB index, rebuildable from the log (core §3.4.1), and the store for overlay views."""
