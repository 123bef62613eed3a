"""``veen selftest perf --profile``: microseconds per message by stage, from a hub under real load."""
