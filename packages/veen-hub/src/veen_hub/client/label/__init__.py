"""One label as the client knows it: its verified prefix, its keys, and evidence (§9)."""
