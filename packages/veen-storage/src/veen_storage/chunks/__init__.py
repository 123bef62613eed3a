"""Chunk files: how they are read, sealed, compressed, pruned and checked for origin (§4.8)."""
