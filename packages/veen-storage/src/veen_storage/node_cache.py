"""A bounded LRU of MMR nodes for hot proofs; nodes never change, so it never changes a result (§3.4.1)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from veen_core.ids import Label

CAPACITY: Final = 16_384


class NodeCache:
    """Thread-safe; least recently used goes first."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._nodes: OrderedDict[tuple[bytes, int, int], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, label: Label, height: int, index: int) -> bytes | None:
        key = (label, height, index)
        with self._lock:
            node = self._nodes.get(key)
            if node is not None:
                self._nodes.move_to_end(key)
            return node

    def put(self, label: Label, height: int, index: int, node: bytes) -> None:
        with self._lock:
            self._nodes[label, height, index] = node
            if len(self._nodes) > self._capacity:
                self._nodes.popitem(last=False)
