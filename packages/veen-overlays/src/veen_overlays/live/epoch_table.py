"""The stored table of a stream's closed epochs: which positions of the stream each label has (core §12).

The table has one row per closed label with messages, keyed by the stream position of its last message, and a
cursor: the first epoch that is still open, and the number of messages of all epochs before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from veen_core.ids import Epoch, MmrRoot, StreamSeq
from veen_core.wire import Wire, array
from veen_overlays.summary_tree.store import SummaryStore

EMPTY_EPOCHS_PER_WRITE: Final = 128
"""Empty epochs per write of the cursor: requesting them again costs less than one write for each."""


@array("epoch_row", section="12")
@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedEpoch(Wire):
    """A row: a closed epoch, the number of messages of its label, and the label's final root."""

    epoch: Epoch
    size: StreamSeq
    mmr_root: MmrRoot


@array("epoch_cursor", section="12")
@dataclass(frozen=True, slots=True, kw_only=True)
class EpochCursor(Wire):
    """The first open epoch, and the number of messages of all epochs before it."""

    next: Epoch
    total: StreamSeq


class EpochTable:
    """The rows and the cursor of one stream, in a store."""

    def __init__(self, store: SummaryStore, name: bytes, since: Epoch) -> None:
        self._store, self._name = store, name
        self.cursor = EpochCursor(next=since, total=StreamSeq(0))

    def load(self) -> None:
        """Load the stored cursor, if there is one."""
        kept = self._store.get(self._name)
        self.cursor = self.cursor if kept is None else EpochCursor.decode(kept)

    def holding(self, position: int) -> Iterator[tuple[int, ClosedEpoch]]:
        """Yield the row that contains a position and all later rows, each with its first position.

        Rows beyond the cursor were written by another process meanwhile; they are left out.
        """
        for key, value in self._store.scan(self._key_of(position), self._key_of(self.cursor.total + 1)):
            row = ClosedEpoch.decode(value)
            yield int.from_bytes(key[-8:], "big") - row.size + 1, row

    def close(self, epoch: Epoch, size: int, root: MmrRoot) -> None:
        """Record that the cursor's epoch is closed."""
        cursor = EpochCursor(next=Epoch(epoch + 1), total=StreamSeq(self.cursor.total + size))
        puts = {self._name: cursor.encode()}
        if size:
            row = ClosedEpoch(epoch=epoch, size=StreamSeq(size), mmr_root=root)
            puts[self._key_of(cursor.total)] = row.encode()
        if size or epoch % EMPTY_EPOCHS_PER_WRITE == 0:
            self._store.write(puts)  # commit point; memory changes after it
        self.cursor = cursor

    def _key_of(self, end: int) -> bytes:
        return self._name + b"/" + end.to_bytes(8, "big")
