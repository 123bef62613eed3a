"""Where the items of a CBOR sequence end while it is still arriving (RFC 8742, H15).

Only lengths are looked at, and only definite ones exist (§3.1); what an item means, and whether it is
canonical, is judged once it is whole. How many heads there may be is bounded: a body of a million empty
arrays would cost a thousand times what a page of the same length costs.
"""

from __future__ import annotations

from typing import Final

from veen_hub.client.errors import Misbehaved

_DEEPEST: Final = 32
HEADS: Final = 64
"""In one entry with its receipt there are 25."""


def item_end(data: bytes | bytearray, start: int = 0, heads: int = HEADS) -> int | None:
    """The offset after the item at ``start``, of at most ``heads``; None if it has not arrived whole."""
    at, size, still = start, len(data), heads
    around: list[int] = []  # what is still to come of each array or map around this one
    left = 1
    while True:
        while left == 0:
            if not around:
                return at
            left = around.pop()
        left -= 1
        still -= 1
        if still < 0:
            raise Misbehaved(f"an item of more than {heads} parts: nothing that the hub sends has as many")
        if at >= size:
            return None
        major, value = data[at] >> 5, data[at] & 0x1F
        at += 1
        if value >= 24:
            if value > 27:
                raise Misbehaved("an indefinite length in a sequence (§3.1)")
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
            if len(around) > _DEEPEST:
                raise Misbehaved("a sequence nested deeper than anything the hub sends")


class Framer:
    """Bytes in, whole items out; holds no more than one item that is under way."""

    __slots__ = ("_data", "_heads", "_most")

    def __init__(self, most: int, heads: int = HEADS) -> None:
        self._data = bytearray()
        self._most = most
        self._heads = heads

    def feed(self, part: bytes) -> list[bytes]:
        self._data += part
        items: list[bytes] = []
        start = 0
        while start < len(self._data) and (end := item_end(self._data, start, self._heads)) is not None:
            items.append(bytes(self._data[start:end]))
            start = end
        del self._data[:start]
        if len(self._data) > self._most:
            raise Misbehaved(f"an item of more than {self._most} bytes in a sequence")
        return items
