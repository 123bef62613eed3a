"""Where a summary tree is kept: an ordered key-value map (§3.4.1, §11.3).

Contract. ``write`` is all or nothing, and what it wrote is there for every later ``get`` and ``scan``,
also after a crash if the store outlives the process. Keys are ordered as byte strings. One writer at a
time. Whoever implements it runs ``tests/test_store.py``'s checks over it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class Store(Protocol):
    """An ordered map from byte strings to byte strings."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries with ``start <= key < stop``, ascending."""

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes] = ()) -> None:
        """Delete, then put, in one step."""


class MemoryStore:
    """In memory; keys are sorted when somebody scans."""

    def __init__(self) -> None:
        self._held: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self._held.get(key)

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        keys = sorted(self._held)
        for key in keys[bisect_left(keys, start) : bisect_left(keys, stop)]:
            yield key, self._held[key]

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes] = ()) -> None:
        for key in deletes:
            self._held.pop(key, None)
        self._held.update(puts)
