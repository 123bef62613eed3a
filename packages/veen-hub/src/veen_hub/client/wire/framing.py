"""Splitting a CBOR sequence into its top-level items while it is still arriving (RFC 8742, H15).

Only lengths are read here; an item is decoded, and checked to be canonical, once it is whole. Indefinite
lengths are refused (§3.1). The number of CBOR items is bounded: decoding a body of a million empty arrays
would cost a thousand times as much as decoding a page of the same length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from veen_hub.client.errors import Misbehaved

FindEnd = Callable[[bytearray, int], int | None]
"""Returns the offset after the item at an offset, or None."""
MAX_DEPTH: Final = 32
MAX_CBOR_ITEMS: Final = 64
"""CBOR items in one stream item; an entry with its receipt has 25."""


def item_end(data: bytes | bytearray, start: int = 0, max_items: int = MAX_CBOR_ITEMS) -> int | None:
    """Return the offset after the top-level item at ``start``; None if it has not arrived whole.

    Raises if the item contains more than ``max_items`` CBOR items.
    """
    at, size, still = start, len(data), max_items
    around: list[int] = []  # items still to come in each enclosing array or map
    left = 1
    while True:
        while left == 0:
            if not around:
                return at
            left = around.pop()
        left -= 1
        still -= 1
        if still < 0:
            raise Misbehaved(f"the hub sent an item of more than {max_items} CBOR items")
        if at >= size:
            return None
        major, value = data[at] >> 5, data[at] & 0x1F
        at += 1
        if value >= 24:
            if value > 27:
                raise Misbehaved("the hub sent an indefinite length (core §3.1)")
            end = at + (1 << (value - 24))
            if end > size:
                return None
            value, at = int.from_bytes(data[at:end], "big"), end
        if major in (2, 3):
            at += value
            if at > size:
                return None
        elif major in (4, 5):
            around.append(left)
            left = value if major == 4 else 2 * value
            if len(around) > MAX_DEPTH:
                raise Misbehaved(f"the hub sent an item nested deeper than {MAX_DEPTH} levels")


class Framer:
    """Splits arriving bytes into whole items; buffers at most one incomplete item."""

    __slots__ = ("_data", "_find_end", "_max_bytes", "_max_items")

    def __init__(
        self, max_bytes: int, max_items: int = MAX_CBOR_ITEMS, find_end: FindEnd | None = None
    ) -> None:
        """``find_end`` finds the end of the usual items faster than ``item_end``; None: use ``item_end``."""
        self._data = bytearray()
        self._max_bytes = max_bytes
        self._max_items = max_items
        self._find_end = find_end

    def feed(self, part: bytes) -> list[bytes]:
        """Return the items that ``part`` completes."""
        self._data += part
        items: list[bytes] = []
        start = 0
        while start < len(self._data) and (end := self._end(start)) is not None:
            items.append(bytes(self._data[start:end]))
            start = end
        del self._data[:start]
        if len(self._data) > self._max_bytes:
            raise Misbehaved(f"the hub sent an item of more than {self._max_bytes} bytes")
        return items

    def _end(self, start: int) -> int | None:
        if self._find_end is not None and (end := self._find_end(self._data, start)) is not None:
            return end
        return item_end(self._data, start, self._max_items)
