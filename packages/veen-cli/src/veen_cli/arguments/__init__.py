"""Argument types: numbers, times, identifiers, files, passphrases, and what a shell completes for them."""
