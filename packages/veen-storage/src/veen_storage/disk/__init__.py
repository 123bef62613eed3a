"""The data directory on disk: file names, writes and syncs, the lock, keys."""
