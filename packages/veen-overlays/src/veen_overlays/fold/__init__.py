"""Folds: events, overlays as values, and the monoids they are built from."""
