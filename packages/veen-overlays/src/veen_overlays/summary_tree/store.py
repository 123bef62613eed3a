"""The ordered key-value store that a summary tree is kept in (core §3.4.1, §11.3).

Contract: ``write`` is atomic. Every later ``get`` and ``scan`` sees what it wrote; if the store is on disk,
also after a crash. Keys are ordered as byte strings. There is one writer at a time. An implementation must
pass the checks of ``tests/test_store.py``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class SummaryStore(Protocol):
    """An ordered map from byte strings to byte strings."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None."""

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries with ``start <= key < stop``, in ascending order of their keys."""

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes] = ()) -> None:
        """Delete, then put, atomically."""


class MemoryStore:
    """A store in memory, which sorts its keys on every scan."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        keys = sorted(self._values)
        for key in keys[bisect_left(keys, start) : bisect_left(keys, stop)]:
            yield key, self._values[key]

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes] = ()) -> None:
        for key in deletes:
            self._values.pop(key, None)
        self._values.update(puts)
