"""Exporting: new entries of a stream, up to a hub checkpoint, become a bundle (AGB0 4.4, P6, P8)."""
