"""Replays: the entries in order, where they are written, and how an interrupted one goes on (SDR0 3.2.5)."""
