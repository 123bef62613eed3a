"""The view of a stream whose label changes with every epoch (core §3.2, §12; WAL §1, ID 4.2).

A stream is ordered by epoch, and within an epoch by the stream_seq of its label. A message's position in that
order is its seq here. A hub accepts messages for a label while the label's epoch lies in the hub's window, so

1. labels of the window are kept in memory and folded again when one of them has grown: while the window is
open,
   a late message may shift later messages by one position;
2. a label whose window has passed is closed: a row of the epoch table records its positions in the stream and
   its final root, and its messages are appended to a summary tree. The row is written first, so after a crash
   in between they are only appended again.

The roots of each label are checked before the label is folded. The root of a folded state is that of all
leaves in stream order. For one label it is the label's own root; for several labels no hub signs it, but
every reader of the same labels computes the same root. After a restart the last row is checked against the
log, and the tree is loaded in O(log n). No index lists the empty epochs, so each epoch is requested once.
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
from veen_overlays.bridge.unwrapping import reads_wrappers
from veen_overlays.fold.event import Message
from veen_overlays.fold.overlay import Overlay
from veen_overlays.live.epoch_table import ClosedEpoch, EpochTable
from veen_overlays.live.folded_state import FoldedState, drive_from
from veen_overlays.live.label import ReadPrefix, receipt_at
from veen_overlays.live.opening import open_entry
from veen_overlays.summary_tree.nodes import SeqRange
from veen_overlays.summary_tree.store import SummaryStore
from veen_overlays.summary_tree.tree import BLOCK_HEIGHT, SummaryTree

S = TypeVar("S")

MARGIN_EPOCHS: Final = 1
"""Epochs for which a label stays open after its window. A hub whose clock was set back may start again a
little
earlier than before, if it issued nothing in between."""
EPOCHS_PER_REQUEST: Final = 32
"""Past epochs whose labels are requested at once."""


class Epochs(Protocol):
    """The labels of one stream at a hub with epochs."""

    @property
    def label_of(self) -> Callable[[Epoch], Label]: ...
    @property
    def window(self) -> Callable[[], range]:
        """The epochs whose labels accept messages now, by the local estimate of the hub's time."""

    @property
    def confirmed(self) -> Callable[[], Awaitable[range]]:
        """The epochs whose labels accept messages now, confirmed by the hub (RESOLUTIONS H3)."""

    @property
    def since(self) -> Epoch:
        """The hub's first epoch."""

    @property
    def forget(self) -> Callable[[Label], Awaitable[None]]:
        """Release the resources held for a label that is closed."""


@dataclass(slots=True)
class OpenLabel:
    """A label of the window: the prefix that was read, and its opened messages."""

    prefix: ReadPrefix
    messages: list[Message] = field(default_factory=list)


class EpochView(Generic[S]):
    """A view of a stream over all its epochs. Call ``open``, then ``catch_up``, then ask for states."""

    def __init__(
        self,
        overlay: Overlay[S],
        epochs: Epochs,
        reader: LogReader,
        *,
        key: DhKey | Sequence[DhKey],
        store: SummaryStore,
        block_height: int = BLOCK_HEIGHT,
    ) -> None:
        self.overlay = overlay
        self._epochs, self._reader, self._key = epochs, reader, key
        self._keep_wrappers = reads_wrappers(overlay)
        name = Ht("veen/stream-view", epochs.label_of(Epoch(0)))
        self._closed = EpochTable(store, b"epochs/" + overlay.class_id[:16] + name, epochs.since)
        self._tree = SummaryTree(overlay, Label(name), store, block_height)
        self._held: dict[Epoch, OpenLabel] = {}
        self._last: Receipt | None = None
        self._answer: FoldedState[S] | None = None
        self._passed: set[Label] | None = None

    @property
    def label(self) -> Label:
        """The last label with messages, or else the oldest label that accepts messages."""
        held = [each.prefix.last for each in self._window() if each.prefix.last is not None]
        last = held[-1] if held else self._last
        return self._epochs.label_of(Epoch(self._epochs.window()[0])) if last is None else last.label

    @property
    def labels(self) -> frozenset[Label]:
        """The labels that the view is folded from, including empty ones of the window."""
        if self._passed is None:
            self._passed = {self._epochs.label_of(row.epoch) for _, row in self._closed.holding(1)}
        return frozenset(self._passed.union(held.prefix.label for held in self._held.values()))

    @property
    def size(self) -> int:
        """The number of folded messages of all labels."""
        return self._total + sum(len(held.messages) for held in self._held.values())

    @property
    def _total(self) -> int:
        """The number of messages of closed labels."""
        return self._closed.cursor.total

    def _window(self) -> list[OpenLabel]:
        """The labels of the window in stream order."""
        return [held for _, held in sorted(self._held.items())]

    # --- loading the stored view

    async def open(self) -> None:
        """Load the stored view and check that the log still contains its last closed label."""
        self._closed.load()
        await drive_from(self._tree.load(), self._messages)
        if self._tree.size > self._total:  # the table was lost or reset: fold the log again
            self._tree.clear()
        if (total := self._total) == 0:
            return
        _, row = next(self._closed.holding(total))
        label = self._epochs.label_of(row.epoch)
        self._last = await receipt_at(self._reader, label, row.size, row.mmr_root, held=row.encode())
        await self._fill()

    async def _fill(self) -> None:
        """Append messages of closed labels that a crash or a failure kept out of the tree."""
        if self._tree.size == self._total:
            return
        for start, row in tuple(self._closed.holding(self._tree.size + 1)):
            missing = SeqRange(max(start, self._tree.size + 1), start + row.size - 1)
            self._tree.extend(await self._messages(missing))

    async def _messages(self, wanted: SeqRange) -> list[Message]:
        """Read messages of closed labels by position."""
        found: list[Message] = []
        for start, row in self._closed.holding(wanted.from_seq):
            if start > wanted.to_seq:
                break
            async for position, entry in self._complete(start, row):
                if wanted.from_seq <= position <= wanted.to_seq:
                    found.append(self._open(entry)._replace(seq=position))
        return found

    async def _complete(self, start: int, row: ClosedEpoch) -> AsyncIterator[tuple[int, Entry]]:
        """The entries of a closed label by position; raise at the end if its root differs from the row."""
        prefix = ReadPrefix(self._epochs.label_of(row.epoch))
        async for entry in prefix.entries(self._reader, row.size):
            yield start + entry.stream_seq - 1, entry
        if prefix.mmr.root != row.mmr_root:
            raise VerificationError(
                f"the root of the label of epoch {row.epoch} differs from the root that was folded",
                action="keep the log and the view as evidence, then delete the view and fold again",
            )

    # --- growing

    async def catch_up(self) -> int:
        """Fold all messages up to the ends of the labels and return their number."""
        await self._fill()
        window = self._epochs.window()
        if window.start - MARGIN_EPOCHS > self._closed.cursor.next:
            await self._close_passed((await self._epochs.confirmed()).start - MARGIN_EPOCHS)
        for n in range(self._closed.cursor.next, window.stop):
            await self._read(self._held_at(Epoch(n)))
        return self.size

    async def _close_passed(self, end: int) -> None:
        """Read the labels of epochs before ``end`` to their ends and close them."""
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
        return self._held.setdefault(epoch, OpenLabel(ReadPrefix(self._epochs.label_of(epoch))))

    async def _read(self, held: OpenLabel) -> None:
        """Read a label to its end."""
        async for entry in held.prefix.entries(self._reader):
            held.messages.append(self._open(entry))

    def _open(self, entry: Entry) -> Message:
        return open_entry(entry, entry.receipt, self._key, keep_wrappers=self._keep_wrappers)

    def _close(self, epoch: Epoch, held: OpenLabel) -> None:
        """Close a label: write its row, then change memory and tree. ``_fill`` repeats a failed append."""
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
        """The position of a message in the stream, if it was folded."""
        start = self._total
        for held in self._window():
            if held.prefix.label == receipt.label:
                return start + receipt.stream_seq
            start += len(held.messages)
        for first, row in self._closed.holding(1):
            if self._epochs.label_of(row.epoch) == receipt.label:
                return first + receipt.stream_seq - 1
        raise VerificationError(f"label {receipt.label.hex()} does not belong to this stream")

    async def first_use(self, key: bytes) -> int | None:
        """The position of the first event that used a key of the overlay, or None."""
        if (found := self._tree.first_use(key)) is not None:
            return found
        seen = self._tree.beyond()
        events = (self.overlay.distinct(message, seen) for message in self._after())
        using = (e.seq for e in events if e is not None and key in self.overlay.keys_of(e))
        return next(using, None)

    async def message(self, position: int) -> Message:
        """The opened message at a position."""
        if position > self._total:
            return self._after()[position - self._total - 1]
        return (await self._messages(SeqRange(position, position)))[0]

    async def entries(self) -> AsyncIterator[tuple[int, Entry]]:
        """All folded entries in stream order, each with its position."""
        for start, row in tuple(self._closed.holding(1)):
            async for found in self._complete(start, row):
                yield found
        at = self._total
        for held in self._window():
            async for entry in ReadPrefix(held.prefix.label).entries(self._reader, len(held.messages)):
                at += 1
                yield at, entry

    async def state(self, upto: int | None = None) -> FoldedState[S]:
        """The current state, or the state after ``upto`` messages, with the receipt of the last message."""
        if upto is not None and upto != self.size:
            return await self.fold(1, upto)
        if self._answer is None or self._answer.range.to_seq != self.size:
            after = self._after()
            summary = self.overlay.combine(self._tree.state(), self.overlay.fold(after, self._tree.beyond()))
            last = next((h.prefix.last for h in reversed(self._window()) if h.prefix.last), self._last)
            self._answer = FoldedState(self.overlay, SeqRange(1, self.size), summary, last, self._root(after))
        return self._answer

    async def fold(self, from_seq: int, to_seq: int) -> FoldedState[S]:
        """The summary of a range of positions."""
        if not 1 <= from_seq <= to_seq <= self.size:
            raise VerificationError(f"messages {from_seq} to {to_seq}: only 1 to {self.size} are folded")
        total, summary = self._total, self.overlay.empty
        if from_seq <= total:
            stored = await drive_from(self._tree.fold(from_seq, min(to_seq, total)), self._messages)
            summary = stored.summary
        if to_seq <= total:
            root = (await drive_from(self._tree.fold(1, to_seq), self._messages)).mmr_root
        else:
            after, seen = self._after()[: to_seq - total], self._tree.beyond()
            before = max(from_seq - 1 - total, 0)
            self.overlay.fold(after[:before], seen)  # records in ``seen`` the keys used before the range
            summary = self.overlay.combine(summary, self.overlay.fold(after[before:], seen))
            root = self._root(after)
        receipt = await self._receipt_of(to_seq)
        return FoldedState(self.overlay, SeqRange(from_seq, to_seq), summary, receipt, root)

    def _after(self) -> list[Message]:
        """The messages of the window with their positions as seq."""
        messages = (message for held in self._window() for message in held.messages)
        return [message._replace(seq=n) for n, message in enumerate(messages, self._total + 1)]

    def _root(self, after: Sequence[Message]) -> MmrRoot:
        """The root of all leaves in stream order up to the last message of ``after``."""
        mmr = self._tree.mmr.copy()
        for message in after:
            mmr.add(message.msg_id)
        return mmr.root

    async def _receipt_of(self, position: int) -> Receipt:
        """The receipt of the message at a position; a closed label is checked against its row first."""
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
