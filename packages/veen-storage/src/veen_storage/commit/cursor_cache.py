"""A bounded cache of cursors that evicts only what the index has (core §3.4.1)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, Generic, TypeVar

MAX_CACHED_CURSORS: Final = 4_096
"""Cursors of each kind that stay cached after they are applied."""

K = TypeVar("K")
V = TypeVar("V")


class CursorCache(Generic[K, V]):
    """LRU cache of cursors, each with the number of the batch that last changed it.

    Only a value that the applier has written to the index may be evicted. The writer's thread gets and
    puts, the applier's thread reports progress with ``shrink``; both evict.
    """

    def __init__(self) -> None:
        self._values: OrderedDict[K, tuple[int, V]] = OrderedDict()
        self._lock = threading.Lock()
        self._applied = 0

    def get(self, key: K) -> V | None:
        with self._lock:
            if (cached := self._values.get(key)) is None:
                return None
            self._values.move_to_end(key)
            return cached[1]

    def put(self, key: K, value: V, batch: int) -> None:
        with self._lock:
            self._values[key] = (batch, value)
            self._values.move_to_end(key)
            self._evict()  # also for reads: refused messages fill the cache and are never applied

    def shrink(self, applied: int) -> None:
        """Evict the oldest cursors beyond the cache's size; ``applied`` is the last batch in the index."""
        with self._lock:
            self._applied = applied
            self._evict()

    def _evict(self) -> None:
        while len(self._values) > MAX_CACHED_CURSORS:
            key, (batch, _value) = next(iter(self._values.items()))
            if batch > self._applied:
                return
            del self._values[key]
