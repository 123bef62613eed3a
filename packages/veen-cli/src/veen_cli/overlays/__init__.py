"""Commands that give messages meaning: they write an overlay's records and show its fold."""
