"""A store with one failing write: the write fails before or after it takes effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from veen_core.errors import VeenError
from veen_overlays.summary_tree.store import MemoryStore


class DiskFullError(VeenError):
    """The error of a store on a full disk."""


class FailingStore(MemoryStore):
    """``fail_in`` is the number of writes until one fails."""

    def __init__(self, *, happens: bool) -> None:
        super().__init__()
        self.happens = happens
        self.fail_in = 0

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes] = ()) -> None:
        self.fail_in -= 1
        if self.fail_in or self.happens:
            super().write(puts, deletes)
        if not self.fail_in:
            raise DiskFullError("no space left on device")
