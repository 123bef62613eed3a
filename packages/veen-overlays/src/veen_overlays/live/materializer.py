"""The materializer: keeps the folded state of one label and proves which log it belongs to (core §11.3).

1. The ``LogReader`` returns verified entries. The root of each is checked again, against the tree's own MMR,
   *before* the entry is folded.
2. The entry is opened with the stream's reader key and appended to the summary tree, which stores complete
   blocks.
3. After a restart the stored tree is loaded in O(log n), and its root is checked against the log's receipt
   there. The messages after the last complete block are read again.

If the log contradicts the folded entries, ``DivergenceError`` is raised with both receipts as evidence, and
the view stays unchanged. ``clear`` discards the view; no code of this package calls it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import Generic, TypeVar

from veen_core.consistency import MmrConsistency, verify_consistency
from veen_core.entry import Entry
from veen_core.errors import DivergenceError, VerificationError
from veen_core.ids import Label, MmrRoot, NodeHash, StreamSeq
from veen_core.keys import DhKey
from veen_core.protocols import LogReader
from veen_core.receipt import Receipt
from veen_overlays.bridge.unwrapping import reads_wrappers
from veen_overlays.fold.event import Message
from veen_overlays.fold.overlay import Overlay
from veen_overlays.live.folded_state import FoldedState, drive_from
from veen_overlays.live.label import PAGE_ENTRIES, extend, receipt_at
from veen_overlays.live.opening import open_entry
from veen_overlays.snapshot import StateCheckpoint, StateId, snapshot, verify_snapshot
from veen_overlays.summary_tree.nodes import SeqRange
from veen_overlays.summary_tree.store import SummaryStore
from veen_overlays.summary_tree.tree import BLOCK_HEIGHT, FoldedRange, SummaryTree

S = TypeVar("S")
T = TypeVar("T")


class Materializer(Generic[S]):
    """A view of one label. Call ``open``, then ``catch_up`` or ``follow``, then ask for states."""

    def __init__(
        self,
        overlay: Overlay[S],
        label: Label,
        reader: LogReader,
        *,
        key: DhKey | Sequence[DhKey],
        store: SummaryStore,
        block_height: int = BLOCK_HEIGHT,
    ) -> None:
        """``key`` opens the messages. Use one store per set of keys: other keys give another state."""
        self.overlay, self.label = overlay, label
        self._reader, self._key = reader, key
        self._keep_wrappers = reads_wrappers(overlay)
        self._tree = SummaryTree(overlay, label, store, block_height)
        self._last: Receipt | None = None
        self._lock = asyncio.Lock()
        self._grown = asyncio.Condition()

    @property
    def size(self) -> int:
        """The last folded stream_seq."""
        return self._tree.size

    @property
    def labels(self) -> frozenset[Label]:
        """The labels that the view is folded from."""
        return frozenset((self.label,))

    def position_of(self, receipt: Receipt) -> int:
        """The position of a message in the stream: its stream_seq."""
        return receipt.stream_seq

    # --- opening and growing

    async def open(self) -> None:
        """Load the stored view and check that the log still contains it."""
        async with self._lock:
            await self._run(self._tree.load())
            stored = self._tree.size
            head = await self._reader.head(self.label)
            if (head.stream_seq if head else 0) < stored:
                raise DivergenceError(
                    f"the log of label {self.label.hex()} has fewer than the {stored} entries that were "
                    "folded: it was rolled back, or this is another hub",
                    shown=b"" if head is None else head.encode(),
                )
            if stored:
                self._last = await self._receipt_at(stored, self._tree.mmr.root)

    async def _receipt_at(self, seq: int, root: MmrRoot) -> Receipt:
        held = b"" if self._last is None else self._last.encode()
        return await receipt_at(self._reader, self.label, seq, root, held=held)

    async def catch_up(self) -> int:
        """Fold all entries up to the log's end and return the last stream_seq."""
        while entries := await self._reader.page(self.label, StreamSeq(self.size + 1), PAGE_ENTRIES):
            for entry in entries:
                await self._append(entry)
        return self.size

    async def follow(self) -> None:
        """Fold every entry as soon as the hub shows it, for ever."""
        async for entry in self._reader.follow(self.label, StreamSeq(self.size + 1)):
            await self._append(entry)

    async def reached(self, seq: int) -> None:
        """Wait until entry ``seq`` is folded."""
        async with self._grown:
            await self._grown.wait_for(lambda: self.size >= seq)

    async def _append(self, entry: Entry) -> None:
        async with self._lock:
            extend(self._tree.mmr, entry, self._last)
            self._tree.append(self._open(entry))
            self._last = entry.receipt
        async with self._grown:
            self._grown.notify_all()

    async def clear(self) -> None:
        """Delete the view; the log is then folded again from its start."""
        async with self._lock:
            self._tree.clear()
            self._last = None

    # --- answering

    async def state(self, upto: int | None = None) -> FoldedState[S]:
        """The current state, from memory; or the state after ``upto`` entries, in O(log n)."""
        async with self._lock:
            if upto is None or upto == self.size:
                return FoldedState(self.overlay, SeqRange(1, self.size), self._tree.state(), self._last)
            folded: FoldedRange[S] = await self._run(self._tree.fold(1, upto))
            receipt = await self._receipt_at(upto, folded.mmr_root)
            return FoldedState(self.overlay, folded.range, folded.summary, receipt)

    async def fold(self, from_seq: int, to_seq: int) -> FoldedState[S]:
        """The summary of a range, proven against the log's roots before and after it (RESOLUTIONS B11)."""
        if from_seq == 1:
            return await self.state(to_seq)
        async with self._lock:
            folded: FoldedRange[S] = await self._run(self._tree.fold(from_seq, to_seq))
            before = await self._reader.receipt(self.label, StreamSeq(from_seq - 1))
            receipt = await self._reader.receipt(self.label, StreamSeq(to_seq))
            proof = await self._reader.consistency(self.label, before.stream_seq, receipt.stream_seq)
            between = MmrConsistency(
                from_seq=StreamSeq(from_seq - 1),
                to_seq=StreamSeq(to_seq),
                peaks_from=proof.peaks_from,
                path=tuple(map(NodeHash, folded.hashes)),
            )
            verify_consistency(between, before.mmr_root, receipt.mmr_root)
            return FoldedState(self.overlay, folded.range, folded.summary, receipt)

    async def first_use(self, key: bytes) -> int | None:
        """The position of the first event that used a key of the overlay, or None."""
        return self._tree.first_use(key)

    async def message(self, position: int) -> Message:
        """The opened message at a position."""
        return (await self._messages(SeqRange(position, position)))[0]

    # --- snapshots (spec-3 §7)

    async def snapshot(self, state_id: StateId, upto: int | None = None) -> StateCheckpoint:
        """The snapshot record of the current state, or of the state after ``upto`` entries."""
        answer = await self.state(upto)
        if answer.receipt is None:
            raise VerificationError(
                f"label {self.label.hex()} is empty, so it has no snapshot", action="send a message first"
            )
        return snapshot(self.overlay, answer.summary, state_id, answer.range.to_seq, answer.mmr_root)

    async def verify(self, claimed: StateCheckpoint) -> None:
        """Raise unless this log folds to the published snapshot (spec-3 7.4)."""
        upto = claimed.upto_stream_seq
        if not 1 <= upto <= self.size:
            raise VerificationError(
                f"the snapshot covers {upto} entries but only {self.size} are folded",
                action="check that the hub shows the whole log",
            )
        answer = await self.state(upto)
        verify_snapshot(claimed, self.overlay, answer.summary, upto, answer.mmr_root)

    # --- reading for the tree

    async def _run(self, steps: Generator[SeqRange, Sequence[Message], T]) -> T:
        return await drive_from(steps, self._messages)

    async def _messages(self, wanted: SeqRange) -> list[Message]:
        count = wanted.to_seq - wanted.from_seq + 1
        entries = await self._reader.page(self.label, StreamSeq(wanted.from_seq), count)
        return [self._open(entry) for entry in entries]

    def _open(self, entry: Entry) -> Message:
        return open_entry(entry, entry.receipt, self._key, keep_wrappers=self._keep_wrappers)
