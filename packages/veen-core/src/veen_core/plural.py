"""A count with its noun, for errors and reports."""

from __future__ import annotations


def plural(count: int, noun: str, plural_noun: str | None = None) -> str:
    """Return the count with its noun: "1 checkpoint", "2 checkpoints"."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural_noun or noun + 's'}"
