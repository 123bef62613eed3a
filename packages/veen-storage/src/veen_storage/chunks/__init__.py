"""Chunk files: reading, compression, pruning, and the check that a file belongs to this hub (core §4.8)."""
