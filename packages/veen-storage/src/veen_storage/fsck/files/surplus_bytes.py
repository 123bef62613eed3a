"""Bytes at the end of a file that an interrupted round of the applier may have left."""

from __future__ import annotations

from veen_storage.commit.journal import foreign_at


def foreign_byte(surplus: bytes, pending: bytes, offset: int) -> int | None:
    """Return the offset of the first byte that the next start will not write there; None if there is none.

    ``surplus``: the bytes of the file from ``offset`` on, where the index ends. ``pending``: what the journal
    holds for this place.
    """
    at = foreign_at(surplus, pending, offset)
    if at is None and len(surplus) > len(pending):
        at = offset + len(pending)
    return at
