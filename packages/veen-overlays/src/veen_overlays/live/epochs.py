"""One overlay over a stream whose label changes with every epoch (§3.2, §12; WAL §1, ID 4.2).

The stream's order is that of its epochs, and within one that of its label's stream_seq. A message's position
in it is its seq here. A label takes messages for as long as its epoch lies in the hub's window, so

1. the labels of the window are held in memory and folded anew when one of them grew;
2. a label whose window has passed takes nothing any more: a row says where in the order it lies and with
   which root it ended, and its messages go into a summary tree like any other log's. The row is written
   first, so a crash in between only appends again.

Each label's roots are checked before anything of it is folded. After a restart the last row is checked
against the log, and the tree is taken up in O(log n). Nothing tells which epochs hold nothing: each is asked
for once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from veen_core.errors import DivergenceError, VerificationError
from veen_core.hashing import Ht
from veen_core.ids import Epoch, Label, MmrRoot, StreamSeq
from veen_core.keys import DhKey
from veen_core.mmr import Mmr
from veen_core.protocols import LogReader
from veen_core.receipt import Receipt
from veen_core.wire import Wire, array
from veen_overlays.event import Message
from veen_overlays.live.materializer import PAGE, Answer, drive_from
from veen_overlays.live.opening import open_entry
from veen_overlays.nodes import Range
from veen_overlays.overlay import Overlay
from veen_overlays.store import Store
from veen_overlays.tree import FLOOR, SummaryTree

S = TypeVar("S")

MARGIN: Final = 1
"""Epochs that a label is still looked at after its window: a hub whose clock was set back may start again a
little earlier than it said, if it issued nothing in between."""
TOGETHER: Final = 32
"""Past labels that are asked for at a time."""


class Epochs(Protocol):
    """How a stream's labels follow one another at a hub."""

    @property
    def label_of(self) -> Callable[[Epoch], Label]: ...
    @property
    def window(self) -> Callable[[], range]:
        """The epochs whose labels take messages now, as far as we can tell."""

    @property
    def confirmed(self) -> Callable[[], Awaitable[range]]:
        """The same by the hub's own word of this moment: its time never goes back (H3)."""

    @property
    def since(self) -> Epoch:
        """Before it there is nothing."""

    @property
    def forget(self) -> Callable[[Label], Awaitable[None]]:
        """A label is needed no more."""


@array("epoch_row", section="12")
@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Wire):
    """A label that is complete: its epoch, how many messages it has, and its root."""

    epoch: Epoch
    size: StreamSeq
    mmr_root: MmrRoot


@array("epoch_cursor", section="12")
@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor(Wire):
    """The first epoch that is not complete, and how many messages all before it have."""

    next: Epoch
    total: StreamSeq


@dataclass(slots=True)
class Held:
    """A label that may still grow, as far as it was read."""

    label: Label
    mmr: Mmr = field(default_factory=Mmr)
    messages: list[Message] = field(default_factory=list)
    last: Receipt | None = None


class EpochView(Generic[S]):
    """``open`` first; then ``catch_up``, and ask for the ``state``."""

    def __init__(
        self,
        overlay: Overlay[S],
        epochs: Epochs,
        reader: LogReader,
        *,
        key: DhKey | Sequence[DhKey],
        store: Store,
        floor: int = FLOOR,
    ) -> None:
        self.overlay = overlay
        self._epochs, self._reader, self._key, self._store = epochs, reader, key, store
        name = Ht("veen/stream-view", epochs.label_of(Epoch(0)))
        self._rows = b"epochs/" + overlay.class_id[:16] + name
        self._tree = SummaryTree(overlay, Label(name), store, floor)
        self._held: dict[Epoch, Held] = {}
        self._cursor = Cursor(next=epochs.since, total=StreamSeq(0))
        self._last: Receipt | None = None
        self._answer: Answer[S] | None = None

    @property
    def label(self) -> Label:
        """Where it stands: the last label that holds something, else the oldest that takes messages."""
        held = [each.last for _, each in sorted(self._held.items()) if each.last is not None]
        last = held[-1] if held else self._last
        return self._epochs.label_of(Epoch(self._epochs.window()[0])) if last is None else last.label

    @property
    def size(self) -> int:
        """How many messages are folded, of all labels."""
        return self._cursor.total + sum(len(held.messages) for held in self._held.values())

    # --- taking up what is stored

    async def open(self) -> None:
        """Take up the stored labels; the log must still have the last of them, whole."""
        kept = self._store.get(self._rows)
        self._cursor = self._cursor if kept is None else Cursor.decode(kept)
        await drive_from(self._tree.load(), self._messages)
        if self._tree.size > self._cursor.total:  # of another time, or damaged: the log has it all
            self._tree.clear()
        if (total := self._cursor.total) == 0:
            return
        _, row = next(self._rows_from(total))
        self._last = await self._complete(row)
        if self._tree.size < total:
            self._tree.extend(await self._messages(Range(self._tree.size + 1, total)))

    def _rows_from(self, position: int) -> Iterator[tuple[int, Row]]:
        """The rows from the one that holds a position on, each with the position of its first message."""
        for key, value in self._store.scan(self._key_of(position), self._key_of(2**64 - 1)):
            row = Row.decode(value)
            yield int.from_bytes(key[-8:], "big") - row.size + 1, row

    def _key_of(self, end: int) -> bytes:
        return self._rows + b"/" + end.to_bytes(8, "big")

    async def _complete(self, row: Row) -> Receipt:
        label = self._epochs.label_of(row.epoch)
        receipt = await self._reader.receipt(label, row.size)
        if (receipt.label, receipt.stream_seq, receipt.mmr_root) != (label, row.size, row.mmr_root):
            raise DivergenceError(
                f"the label of epoch {row.epoch} has another root at {row.size} than what was folded",
                held=row.encode(),
                shown=receipt.encode(),
            )
        return receipt

    async def _messages(self, wanted: Range) -> list[Message]:
        """Messages of complete labels, by position, from the log."""
        found: list[Message] = []
        for start, row in self._rows_from(wanted.from_seq):
            if start > wanted.to_seq:
                break
            held = Held(self._epochs.label_of(row.epoch))
            await self._read(held, row.size)
            if held.mmr.root != row.mmr_root:
                raise VerificationError(f"the label of epoch {row.epoch} is not the one that was folded")
            found += (m._replace(seq=start + m.seq - 1) for m in held.messages)
        return [m for m in found if wanted.from_seq <= m.seq <= wanted.to_seq]

    # --- growing

    async def catch_up(self) -> int:
        """Fold everything up to the present ends of the labels; returns how many messages that is."""
        window = self._epochs.window()
        if window.start - MARGIN > self._cursor.next:
            await self._close_passed((await self._epochs.confirmed()).start - MARGIN)
        for n in range(self._cursor.next, window.stop):
            await self._read(self._held_at(Epoch(n)))
        return self.size

    async def _close_passed(self, end: int) -> None:
        """Labels of epochs before ``end`` take nothing any more: read them to their ends, for good."""
        while (passed := end - self._cursor.next) > 0:
            some = [Epoch(self._cursor.next + n) for n in range(min(passed, TOGETHER))]
            heads = await asyncio.gather(*(self._reader.head(self._epochs.label_of(e)) for e in some))
            for epoch, head in zip(some, heads, strict=True):
                held = self._held_at(epoch)
                if head is not None:
                    await self._read(held, head.stream_seq)
                self._close(epoch, self._held.pop(epoch))
                await self._epochs.forget(held.label)

    def _held_at(self, epoch: Epoch) -> Held:
        return self._held.setdefault(epoch, Held(self._epochs.label_of(epoch)))

    async def _read(self, held: Held, upto: int | None = None) -> None:
        """To the label's end, or to ``upto``; each entry must extend what was read of the label."""
        while upto is None or held.mmr.size < upto:
            room = PAGE if upto is None else min(PAGE, upto - held.mmr.size)
            entries = await self._reader.page(held.label, StreamSeq(held.mmr.size + 1), room)
            for entry in entries:
                receipt, after = entry.receipt, held.mmr.copy()
                after.add(receipt.leaf_hash)
                if (receipt.stream_seq, receipt.mmr_root) != (after.size, after.root):
                    raise DivergenceError(
                        f"entry {entry.stream_seq} of label {held.label.hex()} does not extend what was read",
                        held=b"" if held.last is None else held.last.encode(),
                        shown=receipt.encode(),
                    )
                held.messages.append(open_entry(entry, receipt, self._key))
                held.mmr, held.last = after, receipt
            if len(entries) < room:
                return

    def _close(self, epoch: Epoch, held: Held) -> None:
        """The row first, then the tree."""
        start, size = self._cursor.total + 1, len(held.messages)
        self._cursor = Cursor(next=Epoch(epoch + 1), total=StreamSeq(self._cursor.total + size))
        puts = {self._rows: self._cursor.encode()}
        if held.last is not None:
            row = Row(epoch=epoch, size=StreamSeq(size), mmr_root=held.mmr.root)
            puts[self._key_of(self._cursor.total)] = row.encode()
            self._last = held.last
        if held.last is not None or epoch % TOGETHER == 0:  # an empty label more to ask for costs less
            self._store.write(puts)
        self._tree.extend(message._replace(seq=start + n) for n, message in enumerate(held.messages))

    # --- answering

    async def state(self) -> Answer[S]:
        """The state now; its receipt is that of the last message in the stream's order."""
        if self._answer is None or self._answer.range.to_seq != self.size:
            after, position, last = [], int(self._cursor.total), self._last
            for epoch in sorted(self._held):
                for message in self._held[epoch].messages:
                    position += 1
                    after.append(message._replace(seq=position))
                last = self._held[epoch].last or last
            tail = self.overlay.fold(after, self._tree.beyond())
            summary = self.overlay.combine(self._tree.state(), tail)
            self._answer = Answer(self.overlay, Range(1, position), summary, last)
        return self._answer
