"""The summary tree: cached summaries of dyadic ranges, the MMR's own perfect subtrees (§11.3).

Messages come in blocks of ``2^floor``; nodes of that height and above are stored, everything below is
lifted again from the log when a range begins or ends inside a block. So

    append        O(1) amortised, O(log n) worst
    fold(range)   O(log n) nodes and the events of at most two blocks
    load          O(log n) nodes

What is stored is always a whole number of blocks, written in one step: nodes, the keys that settle
duplicates, and the head. The open block lives in memory and is read again from the log after a restart.

No IO with the log happens here: a method that may need messages is a generator that yields a ``Range``
and is sent the messages; ``drive`` feeds it from a function.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, Generic, NamedTuple, TypeVar

from veen_core.errors import VerificationError
from veen_core.ids import Label, MmrRoot
from veen_core.mmr import Mmr, Node, peak_positions, root_of, subtrees
from veen_overlays.fold.event import Message, SeenKeys
from veen_overlays.fold.overlay import Overlay, Summary
from veen_overlays.summary_tree.nodes import LaterKeys, Nodes, Range, Tile, read
from veen_overlays.summary_tree.store import Store

S = TypeVar("S")

BLOCK_HEIGHT: Final = 6
"""Blocks of 64: a stored node per 32 messages, and at most 126 events to lift at a range's edges."""


class FoldedRange(NamedTuple, Generic[S]):
    """A range's summary, and the subtree hashes it rests on, left to right (B11's tiles)."""

    range: Range
    summary: Summary[S]
    hashes: tuple[bytes, ...]

    @property
    def mmr_root(self) -> MmrRoot:
        """Of the prefix, computed from what was folded; only a range from 1 is one."""
        if self.range.from_seq != 1:
            raise VerificationError(f"a range from {self.range.from_seq} has no root of its own")
        return root_of(self.hashes[::-1])


Folding = Generator[Range, Sequence[Message], FoldedRange[S]]


def drive(steps: Generator[Range, Sequence[Message], Any], read: Callable[[Range], Sequence[Message]]) -> Any:
    """Run such a generator, reading what it asks for."""
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(read(wanted))
    except StopIteration as done:
        return done.value


class SummaryTree(Generic[S]):
    """One overlay over one label. ``load`` comes before anything else."""

    def __init__(
        self, overlay: Overlay[S], label: Label, store: Store, block_height: int = BLOCK_HEIGHT
    ) -> None:
        self.overlay, self.label, self.block_height = overlay, label, block_height
        self._nodes = Nodes(overlay, label, store, block_height)
        self._begin([])

    def _begin(self, peaks: list[Tile[S]]) -> None:
        self.mmr = self._nodes.head.copy()
        self._peaks = peaks
        self._open: list[Tile[S]] = []
        self._state: Summary[S] | None = None

    @property
    def size(self) -> int:
        """The last stream_seq that is folded."""
        return self.mmr.size

    @property
    def stored(self) -> int:
        """The last stream_seq that a restart need not read again."""
        return self._nodes.head.size

    def load(self) -> Generator[Range, Sequence[Message], None]:
        """Take up the stored tree: its head, and one node for each peak."""
        self._nodes.load_head()
        peaks = []
        for height, index in reversed(peak_positions(self.stored)):
            peaks.append((yield from self._nodes.tile(height, index)))
        self._begin(peaks)

    def clear(self) -> None:
        """Start anew with the first message."""
        self._nodes.clear()
        self._begin([])

    # --- growing

    def append(self, message: Message) -> MmrRoot:
        """Fold the next message; returns the root that its receipt must have."""
        if message.seq != self.size + 1:
            raise VerificationError(f"stream_seq {message.seq} does not follow {self.size}")
        tile = Tile(message.msg_id, self._nodes.lift_one(message))
        grown = self.mmr.copy()
        completed = grown.append(message.msg_id)
        if len(completed) > self.block_height:
            self._close_block(self.overlay.merge(t.summary for t in (*self._open, tile)), grown, completed)
        else:
            self.mmr = grown
            self._open.append(tile)
        self._state = None if self._state is None else self.overlay.combine(self._state, tile.summary)
        return self.mmr.root

    def extend(self, messages: Iterable[Message]) -> None:
        """The same for many, whole blocks by the overlay's fast fold."""
        block: list[Message] = []
        for message in messages:
            if self._open:
                self.append(message)
                continue
            block.append(message)
            if len(block) == 1 << self.block_height:
                self._append_block(block)
                block = []
        for message in block:
            self.append(message)

    def _append_block(self, block: list[Message]) -> None:
        if [message.seq for message in block] != list(range(self.size + 1, self.size + len(block) + 1)):
            raise VerificationError(f"messages do not follow {self.size} one by one")
        summary, grown = self._nodes.lift(block), self.mmr.copy()
        completed: list[Node] = []
        for message in block:
            completed = grown.append(message.msg_id)
        self._close_block(summary, grown, completed)
        self._state = None

    def _close_block(self, summary: Summary[S], grown: Mmr, completed: list[Node]) -> None:
        """Carry a complete block up as far as it completes subtrees, and store it all; memory follows.

        If storing fails, the block's last message is not folded and may be appended again.
        """
        tile = Tile(completed[self.block_height].hash, summary)
        peaks = list(self._peaks)
        fresh = [(self.block_height, completed[self.block_height].index, tile, b"")]
        for node in completed[self.block_height + 1 :]:
            left = peaks.pop()
            below = left.hash + tile.hash
            tile = Tile(node.hash, self.overlay.combine(left.summary, tile.summary))
            fresh.append((node.height, node.index, tile, below))
        self._nodes.commit(grown, fresh)
        self.mmr, self._peaks, self._open = grown, [*peaks, tile], []

    # --- answering

    def state(self) -> Summary[S]:
        """Everything so far, without the log; once it was asked for, each append keeps it up to date."""
        if self._state is None:
            tiles = (*self._peaks, *self._open)
            self._state = self.overlay.merge(tile.summary for tile in tiles)
        return self._state

    def beyond(self) -> SeenKeys:
        """For messages that follow and are not to be appended yet."""
        return LaterKeys(self._nodes.index, self.size)

    def fold(self, from_seq: int, to_seq: int) -> Folding[S]:
        """Any range of what is folded: O(log n) tiles, the small ones at its edges from the log."""
        if not 1 <= from_seq <= to_seq <= self.size:
            raise VerificationError(f"no range {from_seq} to {to_seq} in the {self.size} messages folded")
        summaries: list[Summary[S]] = []
        hashes: list[bytes] = []
        for in_log, tiles in groupby(subtrees(from_seq - 1, to_seq), self._where):
            if in_log is _STORED:
                for height, index in tiles:
                    tile = yield from self._nodes.tile(height, index)
                    summaries.append(tile.summary)
                    hashes.append(tile.hash)
                continue
            low = list(tiles)
            wanted = Range((low[0][1] << low[0][0]) + 1, (low[-1][1] + 1) << low[-1][0])
            if in_log is _OPEN:
                held = self._open[wanted.from_seq - 1 - self.stored : wanted.to_seq - self.stored]
                summaries.append(self.overlay.merge(tile.summary for tile in held))
                ids = [tile.hash for tile in held]
            else:
                messages = yield from read(wanted)
                summaries.append(self._nodes.lift(messages))
                ids = [message.msg_id for message in messages]
            hashes += _hashes(low, ids)
        return FoldedRange(Range(from_seq, to_seq), self.overlay.merge(summaries), tuple(hashes))

    def _where(self, position: tuple[int, int]) -> str:
        height, index = position
        if height >= self.block_height:
            return _STORED
        return _OPEN if index << height >= self.stored else _LOG


_STORED, _OPEN, _LOG = "stored", "open", "log"


def _hashes(tiles: list[tuple[int, int]], ids: list[bytes]) -> Iterator[bytes]:
    """The subtree hashes of consecutive small tiles, from their messages' ids."""
    at = 0
    for height, _ in tiles:
        tree = Mmr()
        for leaf in ids[at : at + (1 << height)]:
            tree.add(leaf)
        at += 1 << height
        yield tree.root
