"""Where each complete label of a stream lies in the stream's order, as a view stores it (§12).

A row for each label that holds something, under the position of its last message; and a cursor: the first
epoch that is not complete, and how many messages all before it have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from veen_core.ids import Epoch, MmrRoot, StreamSeq
from veen_core.wire import Wire, array
from veen_overlays.summary_tree.store import Store

EMPTY_EPOCHS_PER_WRITE: Final = 128
"""Empty labels in a row until the cursor is written: to ask for them again costs less."""


@array("epoch_row", section="12")
@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedEpoch(Wire):
    """A label that is complete: its epoch, how many messages it has, and its root."""

    epoch: Epoch
    size: StreamSeq
    mmr_root: MmrRoot


@array("epoch_cursor", section="12")
@dataclass(frozen=True, slots=True, kw_only=True)
class EpochCursor(Wire):
    """The first epoch that is not complete, and how many messages all before it have."""

    next: Epoch
    total: StreamSeq


class EpochTable:
    """In a store, under a name of their own."""

    def __init__(self, store: Store, name: bytes, since: Epoch) -> None:
        self._store, self._name = store, name
        self.cursor = EpochCursor(next=since, total=StreamSeq(0))

    def load(self) -> None:
        kept = self._store.get(self._name)
        self.cursor = self.cursor if kept is None else EpochCursor.decode(kept)

    def holding(self, position: int) -> Iterator[tuple[int, ClosedEpoch]]:
        """The rows from the one that holds a position on, each with the position of its first message.

        None beyond the cursor: what another process wrote since is not ours yet.
        """
        for key, value in self._store.scan(self._key_of(position), self._key_of(self.cursor.total + 1)):
            row = ClosedEpoch.decode(value)
            yield int.from_bytes(key[-8:], "big") - row.size + 1, row

    def close(self, epoch: Epoch, size: int, root: MmrRoot) -> None:
        """The label of the cursor's epoch is complete."""
        cursor = EpochCursor(next=Epoch(epoch + 1), total=StreamSeq(self.cursor.total + size))
        puts = {self._name: cursor.encode()}
        if size:
            row = ClosedEpoch(epoch=epoch, size=StreamSeq(size), mmr_root=root)
            puts[self._key_of(cursor.total)] = row.encode()
        if size or epoch % EMPTY_EPOCHS_PER_WRITE == 0:
            self._store.write(puts)  # commit point; memory follows
        self.cursor = cursor

    def _key_of(self, end: int) -> bytes:
        return self._name + b"/" + end.to_bytes(8, "big")
