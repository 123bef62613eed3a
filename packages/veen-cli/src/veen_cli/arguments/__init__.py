"""Argument types (numbers, times, identifiers, files, passphrases) and their shell completions."""
