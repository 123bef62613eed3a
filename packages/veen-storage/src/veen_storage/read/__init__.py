"""Everything a hub answers from a data directory."""
