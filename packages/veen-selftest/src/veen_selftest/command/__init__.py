"""The command ``veen selftest``: its options, the choice of the hub, and the program ``veen-selftest``."""
