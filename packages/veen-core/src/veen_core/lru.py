"""A mapping of bounded size that evicts the key that was put or used least recently (core §3.4.1)."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Lru(Generic[K, V]):
    """At most ``limit`` keys; ``put`` and ``use`` make a key the newest, ``get`` does not."""

    __slots__ = ("_items", "evicted", "limit")

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"the limit of an Lru must be at least 1, found {limit}")
        self.limit = limit
        self.evicted = 0
        """How many keys were evicted so far."""
        self._items: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        return self._items.get(key)

    def use(self, key: K) -> V | None:
        """Return the value of a key and make it the newest."""
        if (value := self._items.pop(key, None)) is not None:
            self._items[key] = value
        return value

    def put(self, key: K, value: V) -> None:
        """Set a key and make it the newest; evict the oldest if there are more than ``limit``."""
        self._items.pop(key, None)
        self._items[key] = value
        if len(self._items) > self.limit:
            del self._items[next(iter(self._items))]
            self.evicted += 1

    def items(self) -> list[tuple[K, V]]:
        """Keys and values, oldest first."""
        return list(self._items.items())

    def copy(self) -> Lru[K, V]:
        twin: Lru[K, V] = Lru(self.limit)  # calling Lru[K, V] would take three times as long
        twin._items, twin.evicted = self._items.copy(), self.evicted
        return twin

    def clear(self) -> None:
        self._items.clear()

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items
