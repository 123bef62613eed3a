"""Requests that wait to be run, kept in memory up to a bound; the others are read from the log again."""

from __future__ import annotations

from typing import Final

from veen_overlays.schema.record import Record

MAX_KEPT_BYTES: Final = 33_554_432
"""Bound of the bodies kept, in bytes as they were encoded."""


class KeptRequests:
    """Decoded requests by their stream_seq."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_bytes, self._bytes = max_bytes, 0
        self._kept: dict[int, tuple[Record, int]] = {}

    def add(self, seq: int, request: Record | None, size: int) -> None:
        """Keep a request whose body has ``size`` bytes, if there is room."""
        if request is not None and self._bytes + size <= self._max_bytes:
            self._kept[seq] = request, size
            self._bytes += size

    def pop(self, seq: int) -> Record | None:
        """Take a request out; None if it was not kept."""
        if (found := self._kept.pop(seq, None)) is None:
            return None
        self._bytes -= found[1]
        return found[0]
