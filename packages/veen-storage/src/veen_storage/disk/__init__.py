"""Files of a data directory: paths, atomic writes, the lock, identity and keys."""
