"""Argument types: identifiers, numbers, times, files, passphrases, and their completion."""
