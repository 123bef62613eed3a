"""One overlay over a stream whose label changes with every epoch (§3.2, §12; WAL §1, ID 4.2).

The stream's order is that of its epochs, and within one that of its label's stream_seq. A message's position
in it is its seq here. A label takes messages for as long as its epoch lies in the hub's window, so

1. the labels of the window are held in memory and folded anew when one of them grew: until the window has
   passed, a late message may still move later ones back by one position;
2. a label whose window has passed takes nothing any more: a row says where in the order it lies and with
   which root it ended, and its messages go into a summary tree like any other log's. The row is written
   first, so a crash in between only appends again.

Each label's roots are checked before anything of it is folded. An answer's root is that of all leaves in the
stream's order: of one label it would be the label's own; of several no hub signs it, and whoever reads the
same labels computes it. After a restart the last row is checked against the log, and the tree is taken up in
O(log n). Nothing tells which epochs hold nothing: each is asked for once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from veen_core.entry import Entry
from veen_core.errors import VerificationError
from veen_core.hashing import Ht
from veen_core.ids import Epoch, Label, MmrRoot, StreamSeq
from veen_core.keys import DhKey
from veen_core.mmr import Mmr
from veen_core.protocols import LogReader
from veen_core.receipt import Receipt
from veen_overlays.fold.event import Message
from veen_overlays.fold.overlay import Overlay
from veen_overlays.live.epoch_table import ClosedEpoch, EpochTable
from veen_overlays.live.folded_state import FoldedState, drive_from
from veen_overlays.live.label import Prefix, receipt_at
from veen_overlays.live.opening import open_entry
from veen_overlays.summary_tree.nodes import Range
from veen_overlays.summary_tree.store import Store
from veen_overlays.summary_tree.tree import BLOCK_HEIGHT, SummaryTree

S = TypeVar("S")

MARGIN_EPOCHS: Final = 1
"""Epochs that a label is still looked at after its window: a hub whose clock was set back may start again a
little earlier than it said, if it issued nothing in between."""
EPOCHS_PER_REQUEST: Final = 32
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


@dataclass(slots=True)
class OpenLabel:
    """A label that may still grow, as far as it was read."""

    prefix: Prefix
    messages: list[Message] = field(default_factory=list)


class EpochView(Generic[S]):
    """``open`` first; then ``catch_up``, and ask."""

    def __init__(
        self,
        overlay: Overlay[S],
        epochs: Epochs,
        reader: LogReader,
        *,
        key: DhKey | Sequence[DhKey],
        store: Store,
        block_height: int = BLOCK_HEIGHT,
    ) -> None:
        self.overlay = overlay
        self._epochs, self._reader, self._key = epochs, reader, key
        name = Ht("veen/stream-view", epochs.label_of(Epoch(0)))
        self._closed = EpochTable(store, b"epochs/" + overlay.class_id[:16] + name, epochs.since)
        self._tree = SummaryTree(overlay, Label(name), store, block_height)
        self._held: dict[Epoch, OpenLabel] = {}
        self._last: Receipt | None = None
        self._answer: FoldedState[S] | None = None
        self._passed: set[Label] | None = None

    @property
    def label(self) -> Label:
        """Where it stands: the last label that holds something, else the oldest that takes messages."""
        held = [each.prefix.last for each in self._window() if each.prefix.last is not None]
        last = held[-1] if held else self._last
        return self._epochs.label_of(Epoch(self._epochs.window()[0])) if last is None else last.label

    @property
    def labels(self) -> frozenset[Label]:
        """All that it is folded from, or may be when they take a message."""
        if self._passed is None:
            self._passed = {self._epochs.label_of(row.epoch) for _, row in self._closed.holding(1)}
        return frozenset(self._passed.union(held.prefix.label for held in self._held.values()))

    @property
    def size(self) -> int:
        """How many messages are folded, of all labels."""
        return self._total + sum(len(held.messages) for held in self._held.values())

    @property
    def _total(self) -> int:
        """Of complete labels."""
        return self._closed.cursor.total

    def _window(self) -> list[OpenLabel]:
        """In the stream's order."""
        return [held for _, held in sorted(self._held.items())]

    # --- taking up what is stored

    async def open(self) -> None:
        """Take up the stored labels; the log must still have the last of them, whole."""
        self._closed.load()
        await drive_from(self._tree.load(), self._messages)
        if self._tree.size > self._total:  # of another time, or damaged: the log has it all
            self._tree.clear()
        if (total := self._total) == 0:
            return
        _, row = next(self._closed.holding(total))
        label = self._epochs.label_of(row.epoch)
        self._last = await receipt_at(self._reader, label, row.size, row.mmr_root, held=row.encode())
        await self._fill()

    async def _fill(self) -> None:
        """What complete labels have and the tree has not: it was not stored before a restart or a failure."""
        if self._tree.size == self._total:
            return
        for start, row in tuple(self._closed.holding(self._tree.size + 1)):
            missing = Range(max(start, self._tree.size + 1), start + row.size - 1)
            self._tree.extend(await self._messages(missing))

    async def _messages(self, wanted: Range) -> list[Message]:
        """Messages of complete labels, by position, from the log."""
        found: list[Message] = []
        for start, row in self._closed.holding(wanted.from_seq):
            if start > wanted.to_seq:
                break
            async for position, entry in self._complete(start, row):
                if wanted.from_seq <= position <= wanted.to_seq:
                    message = open_entry(entry, entry.receipt, self._key)
                    found.append(message._replace(seq=position))
        return found

    async def _complete(self, start: int, row: ClosedEpoch) -> AsyncIterator[tuple[int, Entry]]:
        """A complete label's entries by position; an error at its end unless it is the one of the row."""
        prefix = Prefix(self._epochs.label_of(row.epoch))
        async for entry in prefix.entries(self._reader, row.size):
            yield start + entry.stream_seq - 1, entry
        if prefix.mmr.root != row.mmr_root:
            raise VerificationError(f"the label of epoch {row.epoch} is not the one that was folded")

    # --- growing

    async def catch_up(self) -> int:
        """Fold everything up to the present ends of the labels; returns how many messages that is."""
        await self._fill()
        window = self._epochs.window()
        if window.start - MARGIN_EPOCHS > self._closed.cursor.next:
            await self._close_passed((await self._epochs.confirmed()).start - MARGIN_EPOCHS)
        for n in range(self._closed.cursor.next, window.stop):
            await self._read(self._held_at(Epoch(n)))
        return self.size

    async def _close_passed(self, end: int) -> None:
        """Labels of epochs before ``end`` take nothing any more: read them to their ends, for good."""
        while (passed := end - self._closed.cursor.next) > 0:
            some = [Epoch(self._closed.cursor.next + n) for n in range(min(passed, EPOCHS_PER_REQUEST))]
            asked = (self._reader.page(self._epochs.label_of(e), StreamSeq(1), 1) for e in some)
            for epoch, first in zip(some, await asyncio.gather(*asked), strict=True):
                held = self._held_at(epoch)
                if first:
                    await self._read(held)
                self._close(epoch, held)
                await self._epochs.forget(held.prefix.label)

    def _held_at(self, epoch: Epoch) -> OpenLabel:
        return self._held.setdefault(epoch, OpenLabel(Prefix(self._epochs.label_of(epoch))))

    async def _read(self, held: OpenLabel) -> None:
        """To the label's end."""
        async for entry in held.prefix.entries(self._reader):
            held.messages.append(open_entry(entry, entry.receipt, self._key))

    def _close(self, epoch: Epoch, held: OpenLabel) -> None:
        """The row first, then memory and the tree; what the tree fails to take, ``_fill`` reads again."""
        start = self._total + 1
        self._closed.close(epoch, len(held.messages), held.prefix.mmr.root)
        del self._held[epoch]
        if held.prefix.last is not None:
            self._last = held.prefix.last
            if self._passed is not None:
                self._passed.add(held.prefix.label)
        self._tree.extend(message._replace(seq=start + n) for n, message in enumerate(held.messages))

    # --- answering

    def position_of(self, receipt: Receipt) -> int:
        """Where a message stands in the stream's order, as far as was caught up."""
        start = self._total
        for held in self._window():
            if held.prefix.label == receipt.label:
                return start + receipt.stream_seq
            start += len(held.messages)
        for first, row in self._closed.holding(1):
            if self._epochs.label_of(row.epoch) == receipt.label:
                return first + receipt.stream_seq - 1
        raise VerificationError(f"label {receipt.label.hex()} is none of this stream's")

    async def entries(self) -> AsyncIterator[tuple[int, Entry]]:
        """All that is folded, in the stream's order, each with its position."""
        for start, row in tuple(self._closed.holding(1)):
            async for found in self._complete(start, row):
                yield found
        at = self._total
        for held in self._window():
            async for entry in Prefix(held.prefix.label).entries(self._reader, len(held.messages)):
                at += 1
                yield at, entry

    async def state(self, upto: int | None = None) -> FoldedState[S]:
        """The state now, or as it was after ``upto`` messages; its receipt is that of the last of them."""
        if upto is not None and upto != self.size:
            return await self.fold(1, upto)
        if self._answer is None or self._answer.range.to_seq != self.size:
            after = self._after()
            summary = self.overlay.combine(self._tree.state(), self.overlay.fold(after, self._tree.beyond()))
            last = next((h.prefix.last for h in reversed(self._window()) if h.prefix.last), self._last)
            self._answer = FoldedState(self.overlay, Range(1, self.size), summary, last, self._root(after))
        return self._answer

    async def fold(self, from_seq: int, to_seq: int) -> FoldedState[S]:
        """What a range of positions did."""
        if not 1 <= from_seq <= to_seq <= self.size:
            raise VerificationError(f"no range {from_seq} to {to_seq} in the {self.size} messages folded")
        total, summary = self._total, self.overlay.empty
        if from_seq <= total:
            stored = await drive_from(self._tree.fold(from_seq, min(to_seq, total)), self._messages)
            summary = stored.summary
        if to_seq <= total:
            root = (await drive_from(self._tree.fold(1, to_seq), self._messages)).mmr_root
        else:
            after, seen = self._after()[: to_seq - total], self._tree.beyond()
            before = max(from_seq - 1 - total, 0)
            self.overlay.fold(after[:before], seen)  # for what it leaves in ``seen``
            summary = self.overlay.combine(summary, self.overlay.fold(after[before:], seen))
            root = self._root(after)
        receipt = await self._receipt_of(to_seq)
        return FoldedState(self.overlay, Range(from_seq, to_seq), summary, receipt, root)

    def _after(self) -> list[Message]:
        """The window's messages, by position."""
        messages = (message for held in self._window() for message in held.messages)
        return [message._replace(seq=n) for n, message in enumerate(messages, self._total + 1)]

    def _root(self, after: Sequence[Message]) -> MmrRoot:
        """Of all leaves in the stream's order, to the last of ``after``."""
        mmr = self._tree.mmr.copy()
        for message in after:
            mmr.add(message.msg_id)
        return mmr.root

    async def _receipt_of(self, position: int) -> Receipt:
        """Of the message there; of a complete label only if all of it is what was folded."""
        if position <= self._total:
            start, row = next(self._closed.holding(position))
            found = [entry async for at, entry in self._complete(start, row) if at == position]
            return found[0].receipt
        left = position - self._total
        for held in self._window():
            if left <= len(held.messages):
                break
            left -= len(held.messages)
        mmr = Mmr()
        for message in held.messages[:left]:
            mmr.add(message.msg_id)
        return await receipt_at(self._reader, held.prefix.label, left, mmr.root)
