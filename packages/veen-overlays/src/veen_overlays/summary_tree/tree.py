"""The summary tree: stored summaries of the perfect subtrees of a label's MMR (core §11.3).

Messages are grouped into blocks of ``2^block_height``. The summaries of blocks and of larger subtrees are
stored; where a range begins or ends inside a block, its messages are read from the log again. The costs are

    append        O(1) amortised, O(log n) worst
    fold(range)   O(log n) nodes and the events of at most two blocks
    load          O(log n) nodes

Only complete blocks are stored. Nodes, the keys that identify duplicates, and the head are written
atomically. The open block is kept in memory and read from the log again after a restart.

This module reads no log: a method that may need messages is a generator that yields a ``SeqRange`` and is
sent the messages. ``drive`` runs such a generator with a function that reads.
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
from veen_overlays.summary_tree.nodes import LaterKeys, Nodes, SeqRange, SummaryTile, read
from veen_overlays.summary_tree.store import SummaryStore

S = TypeVar("S")

BLOCK_HEIGHT: Final = 6
"""Blocks of 64 messages: one stored node per 32 messages, at most 126 messages to read at a range's edges."""


class FoldedRange(NamedTuple, Generic[S]):
    """The summary of a range, and the hashes of its subtrees from left to right (RESOLUTIONS B11)."""

    range: SeqRange
    summary: Summary[S]
    hashes: tuple[bytes, ...]

    @property
    def mmr_root(self) -> MmrRoot:
        """The root of the log after the range; only a range from 1 determines it."""
        if self.range.from_seq != 1:
            raise VerificationError(f"a range that begins at {self.range.from_seq} does not determine a root")
        return root_of(self.hashes[::-1])


Folding = Generator[SeqRange, Sequence[Message], FoldedRange[S]]


def drive(
    steps: Generator[SeqRange, Sequence[Message], Any], read: Callable[[SeqRange], Sequence[Message]]
) -> Any:
    """Run a generator of this module; ``read`` returns the messages of a range."""
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(read(wanted))
    except StopIteration as done:
        return done.value


class SummaryTree(Generic[S]):
    """The summaries of one overlay over one label. Run ``load`` first."""

    def __init__(
        self, overlay: Overlay[S], label: Label, store: SummaryStore, block_height: int = BLOCK_HEIGHT
    ) -> None:
        self.overlay, self.label, self.block_height = overlay, label, block_height
        self._nodes = Nodes(overlay, label, store, block_height)
        self._begin([])

    def _begin(self, peaks: list[SummaryTile[S]]) -> None:
        self.mmr = self._nodes.head.copy()
        self._peaks = peaks
        self._open: list[SummaryTile[S]] = []
        self._state: Summary[S] | None = None

    @property
    def size(self) -> int:
        """The last folded stream_seq."""
        return self.mmr.size

    @property
    def stored(self) -> int:
        """The last stream_seq whose block is stored; a restart reads what follows again."""
        return self._nodes.head.size

    def load(self) -> Generator[SeqRange, Sequence[Message], None]:
        """Load the stored head and one node per peak."""
        self._nodes.load_head()
        peaks = []
        for height, index in reversed(peak_positions(self.stored)):
            peaks.append((yield from self._nodes.tile(height, index)))
        self._begin(peaks)

    def clear(self) -> None:
        """Delete the stored tree and start with the first message."""
        self._nodes.clear()
        self._begin([])

    # --- growing

    def append(self, message: Message) -> MmrRoot:
        """Fold the next message and return the root that its receipt must have."""
        if message.seq != self.size + 1:
            raise VerificationError(f"message {message.seq} does not follow message {self.size}")
        tile = SummaryTile(message.msg_id, self._nodes.lift_one(message))
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
        """Fold the next messages, complete blocks with the overlay's bulk fold."""
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
            raise VerificationError(f"the messages after {self.size} are not consecutive")
        summary, grown = self._nodes.lift(block), self.mmr.copy()
        completed: list[Node] = []
        for message in block:
            completed = grown.append(message.msg_id)
        self._close_block(summary, grown, completed)
        self._state = None

    def _close_block(self, summary: Summary[S], grown: Mmr, completed: list[Node]) -> None:
        """Combine a complete block with the subtrees it completes, store all of it, then change memory.

        If storing fails, the block's last message is not folded and may be appended again.
        """
        tile = SummaryTile(completed[self.block_height].hash, summary)
        peaks = list(self._peaks)
        fresh = [(self.block_height, completed[self.block_height].index, tile, b"")]
        for node in completed[self.block_height + 1 :]:
            left = peaks.pop()
            below = left.hash + tile.hash
            tile = SummaryTile(node.hash, self.overlay.combine(left.summary, tile.summary))
            fresh.append((node.height, node.index, tile, below))
        self._nodes.commit(grown, fresh)
        self.mmr, self._peaks, self._open = grown, [*peaks, tile], []

    # --- answering

    def state(self) -> Summary[S]:
        """The summary of all folded messages. The first call computes it, later appends update it."""
        if self._state is None:
            tiles = (*self._peaks, *self._open)
            self._state = self.overlay.merge(tile.summary for tile in tiles)
        return self._state

    def first_use(self, key: bytes) -> int | None:
        """The seq of the first folded event that used a key of the overlay, or None: O(1)."""
        seq = self._nodes.index.seq_of(key)
        return None if seq is None or seq > self.size else seq

    def beyond(self) -> SeenKeys:
        """Duplicate detection for messages that follow but are not appended yet."""
        return LaterKeys(self._nodes.index, self.size)

    def fold(self, from_seq: int, to_seq: int) -> Folding[S]:
        """Fold any range of folded messages: O(log n) subtrees, with the edges read from the log."""
        if not 1 <= from_seq <= to_seq <= self.size:
            raise VerificationError(f"messages {from_seq} to {to_seq}: only 1 to {self.size} are folded")
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
            wanted = SeqRange((low[0][1] << low[0][0]) + 1, (low[-1][1] + 1) << low[-1][0])
            if in_log is _OPEN:
                held = self._open[wanted.from_seq - 1 - self.stored : wanted.to_seq - self.stored]
                summaries.append(self.overlay.merge(tile.summary for tile in held))
                ids = [tile.hash for tile in held]
            else:
                messages = yield from read(wanted)
                summaries.append(self._nodes.lift(messages))
                ids = [message.msg_id for message in messages]
            hashes += _hashes(low, ids)
        return FoldedRange(SeqRange(from_seq, to_seq), self.overlay.merge(summaries), tuple(hashes))

    def _where(self, position: tuple[int, int]) -> str:
        height, index = position
        if height >= self.block_height:
            return _STORED
        return _OPEN if index << height >= self.stored else _LOG


_STORED, _OPEN, _LOG = "stored", "open", "log"


def _hashes(tiles: list[tuple[int, int]], ids: list[bytes]) -> Iterator[bytes]:
    """The hashes of consecutive small subtrees, computed from the msg_ids of their messages."""
    at = 0
    for height, _ in tiles:
        tree = Mmr()
        for leaf in ids[at : at + (1 << height)]:
            tree.add(leaf)
        at += 1 << height
        yield tree.root
