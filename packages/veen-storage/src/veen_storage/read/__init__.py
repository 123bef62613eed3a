"""Everything a hub answers from a data directory, and reading next to a running hub."""
