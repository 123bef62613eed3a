"""The command `veen selftest`, its console script and its target."""
