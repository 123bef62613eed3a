"""Creating and opening a data directory, reading one that another process has open, rotating its key."""
