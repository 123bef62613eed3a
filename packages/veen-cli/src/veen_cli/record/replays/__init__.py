"""Replays: the entries in order, where they are written, and how a replay is resumed (SDR0 3.2.5)."""
