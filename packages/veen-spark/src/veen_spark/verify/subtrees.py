"""Perfect subtrees over a range of leaves (core §5.1, RESOLUTIONS B11).

A task that sees only leaves ``start … end`` computes the fewest aligned perfect subtrees that cover them:
O(log n) hashes. Appending the subtrees of all ranges in order gives the peaks at every boundary, from which
each range can be verified independently. No task has to read a whole label.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from veen_core.errors import VeenError
from veen_core.mmr import node_hash
from veen_core.receipt import Receipt
from veen_spark.read import field_layout
from veen_spark.read.segment import ControlEntry, Item, PrunedLogEntry, Span, SparkSegment
from veen_spark.read.walk import walk

Tile = tuple[int, bytes]
"""Height and hash."""


class Tiles:
    """The subtrees over leaves that are added in order."""

    def __init__(self, start: int, join: Callable[[bytes, bytes], bytes] = node_hash) -> None:
        """``start`` is the number of leaves before the first one added; ``join`` hashes two nodes."""
        self._next = start
        self._join = join
        self._tiles: list[tuple[int, int, bytes]] = []

    def add(self, leaf: bytes) -> None:
        """Add the next leaf and merge complete subtrees."""
        height, index, node = 0, self._next, leaf
        while self._tiles and self._tiles[-1][:2] == (height, index - 1) and index & 1:
            node = self._join(self._tiles.pop()[2], node)
            height, index = height + 1, index >> 1
        self._tiles.append((height, index, node))
        self._next += 1

    @property
    def size(self) -> int:
        """The size of the tree after the last leaf added."""
        return self._next

    @property
    def tiles(self) -> list[Tile]:
        """The subtrees from left to right."""
        return [(height, node) for height, _, node in self._tiles]


def tiles_of(segment: SparkSegment) -> list[Tile] | None:
    """Return the subtrees over the leaf hashes in a segment's receipts, or None if it is incomplete."""
    tiles = Tiles(segment.start_seq - 1)
    try:
        for item in walk(segment):
            for leaf in _leaves(item):
                tiles.add(leaf)
    except (VeenError, OSError):
        return None  # the verifier of this segment reports the fault
    whole = segment.end_seq is None or tiles.size == segment.end_seq
    return tiles.tiles if whole else None


def _leaves(item: Item) -> list[bytes]:
    """Return the leaf hashes of the entries of one item of ``walk``; raise ``VeenError`` for damage."""
    if isinstance(item, PrunedLogEntry):
        return [item.entry.receipt.leaf_hash]
    if isinstance(item, ControlEntry):
        return [Receipt.decode(item.receipt).leaf_hash]
    if not isinstance(item, Span):
        raise VeenError(item.reason)
    data = np.frombuffer(item.data, dtype=np.uint8)
    found = field_layout.receipts(data, item.receipt_at, item.end - item.receipt_at)
    if not found.ok.all():
        raise VeenError("a RECEIPT is not canonical")
    packed = field_layout.fixed(data, found.leaf_at).tobytes()
    return [packed[n : n + 32] for n in range(0, len(packed), 32)]
