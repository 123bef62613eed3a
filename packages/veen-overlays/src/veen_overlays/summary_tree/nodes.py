"""The stored nodes of a summary tree: verified when read, recomputed from the log if verification fails.

A node is trusted if its checksum is correct, its hash is the one that its parent names, and it is bound to
the log's root at its last leaf. A walk from the head's peaks down to the node checks all three: each node
names the hashes of its two children, and the subtrees left of the path determine the root (core §11.3,
RESOLUTIONS B11).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from veen_core.errors import VerificationError
from veen_core.ids import Label
from veen_core.lru import Lru
from veen_core.mmr import Mmr, node_hash, peak_positions, root_of
from veen_overlays.fold.event import Event, IgnoredMessage, MemorySeenKeys, Message
from veen_overlays.fold.overlay import Overlay, Summary
from veen_overlays.summary_tree.node import ClassId, NodeBinding, StoredNode
from veen_overlays.summary_tree.store import SummaryStore

S = TypeVar("S")

MAX_CACHED_NODES: Final = 1024
"""Nodes cached in memory; the least recently used is evicted first."""


class SeqRange(NamedTuple):
    """A range of stream_seq, both ends included."""

    from_seq: int
    to_seq: int


class SummaryTile(NamedTuple, Generic[S]):
    """A perfect subtree of the MMR: its hash and the summary of its messages."""

    hash: bytes
    summary: Summary[S]


class KeyIndex:
    """The first event that used each key: in the store, and in memory for the open block."""

    def __init__(self, store: SummaryStore, prefix: bytes) -> None:
        self._store, self._prefix = store, prefix + b"k"
        self.pending: dict[bytes, bytes] = {}

    def seq_of(self, key: bytes) -> int | None:
        """The seq of the first event that used the key, or None."""
        stored = self._prefix + key
        held = self.pending.get(stored) or self._store.get(stored)
        return None if held is None else int.from_bytes(held, "big")

    def first(self, key: bytes, seq: int) -> bool:
        """Return whether event ``seq`` is the first that uses the key; if it is, record the use."""
        held = self.seq_of(key)
        if held is None:
            self.pending[self._prefix + key] = seq.to_bytes(8, "big")
        return held is None or held == seq


class LaterKeys:
    """Duplicate detection for messages after ``size`` that leaves the index unchanged.

    A key is used if an event up to ``size`` or an earlier call of ``first`` used it. Later keys in the index
    were written by another process that has folded further; they are ignored.
    """

    def __init__(self, index: KeyIndex, size: int) -> None:
        self._index, self._size = index, size
        self._keys = MemorySeenKeys()

    def first(self, key: bytes, seq: int) -> bool:
        """Return whether event ``seq`` is the first that uses the key; if it is, record the use in memory."""
        held = self._index.seq_of(key)
        return (held is None or held > self._size) and self._keys.first(key, seq)


TileReading = Generator[SeqRange, Sequence[Message], SummaryTile[S]]
"""A generator that yields the ranges it needs, is sent their messages, and returns a tile."""


class Nodes(Generic[S]):
    """The stored nodes of one overlay over one label."""

    def __init__(self, overlay: Overlay[S], label: Label, store: SummaryStore, block_height: int) -> None:
        self._overlay, self._store, self._block_height = overlay, store, block_height
        self._label = label
        self._binding = NodeBinding(ClassId(overlay.class_id), label)
        self._prefix = overlay.class_id[:16] + label[:16] + bytes([block_height])
        self._cache: Lru[tuple[int, int], SummaryTile[S]] = Lru(MAX_CACHED_NODES)
        self.index = KeyIndex(store, self._prefix)
        self.head = Mmr()
        """The MMR of the complete blocks, which are stored."""

    def _key(self, height: int, index: int) -> bytes:
        return self._prefix + b"n" + bytes([height]) + index.to_bytes(8, "big")

    def _open(self, height: int, index: int) -> StoredNode | None:
        return self._binding.open(self._store.get(self._key(height, index)), (index + 1) << height)

    # --- head

    def load_head(self) -> None:
        """Load the stored head; start with an empty tree if the head cannot be trusted."""
        held = self._binding.open(self._store.get(self._prefix + b"h"))
        fits = held is not None and len(held.hashes_below) == held.upto_seq.bit_count()
        if held is None or not fits or root_of(held.hashes_below) != held.mmr_root:
            self.clear()
        else:
            self.head = Mmr(held.upto_seq, held.hashes_below)
            self.index = KeyIndex(self._store, self._prefix)

    def clear(self) -> None:
        """Delete the stored tree."""
        stop = self._prefix + b"\xff"
        self._store.write({}, [key for key, _ in self._store.scan(self._prefix, stop)])
        self._cache.clear()
        self.index, self.head = KeyIndex(self._store, self._prefix), Mmr()

    def commit(self, head: Mmr, fresh: Iterable[tuple[int, int, SummaryTile[S], bytes]]) -> None:
        """Store a block, the subtrees it completes, its keys and the new head, atomically."""
        fresh, root = list(fresh), head.root
        puts = {self._key(h, i): self._sealed(h, i, root, tile, below) for h, i, tile, below in fresh}
        peaks = b"".join(head.peaks)
        puts[self._prefix + b"h"] = self._binding.seal(head.size, root, root, peaks, b"")
        self._store.write(puts | self.index.pending)  # commit point; memory changes after it
        self.index.pending = {}
        self.head = head.copy()
        for height, index, tile, _ in fresh:
            self._cache.put((height, index), tile)

    def _sealed(self, height: int, index: int, root: bytes, tile: SummaryTile[S], below: bytes) -> bytes:
        summary = self._overlay.encode(tile.summary)
        return self._binding.seal((index + 1) << height, root, tile.hash, below, summary)

    # --- reading

    def tile(self, height: int, index: int) -> TileReading[S]:
        """The subtree at ``(height, index)``: from the cache, from the store, or recomputed."""
        if (cached := self._cache.use((height, index))) is not None:
            return cached
        peaks = [*zip(peak_positions(self.head.size), self.head.peaks, strict=True)][::-1]
        left = Mmr()
        for (h, i), wanted in peaks:
            if h >= height and index >> (h - height) == i:
                return (yield from self._descend(h, i, wanted, left, (height, index)))
            left.append_subtree(h, wanted)
        raise VerificationError(f"subtree {height}/{index} lies beyond the {self.head.size} stored messages")

    def _descend(self, h: int, i: int, wanted: bytes, left: Mmr, target: tuple[int, int]) -> TileReading[S]:
        """Walk from a peak down to the target; recompute a node on the way that fails verification."""
        while h > target[0]:
            held = self._open(h, i)
            if held is None or held.node != wanted or not _names_its_children(held):
                yield from self._recompute(h, i, wanted, left)
                held = self._open(h, i)
                assert held is not None  # just written
            h -= 1
            goes_right = target[1] >> (h - target[0]) & 1
            if goes_right:
                left = _with_subtree(left, h, held.hashes_below[0])
            wanted, i = held.hashes_below[goes_right], 2 * i + goes_right
        return (yield from self._read_verified(h, i, wanted, left))

    def _read_verified(self, height: int, index: int, wanted: bytes | None, left: Mmr) -> TileReading[S]:
        held = None if wanted is None else self._open(height, index)
        root = None if wanted is None else _with_subtree(left, height, wanted).root
        if held is not None and held.node == wanted and held.mmr_root == root:
            tile = SummaryTile(bytes(held.node), self._overlay.load(held.summary))
            self._cache.put((height, index), tile)
            return tile
        return (yield from self._recompute(height, index, wanted, left))

    def _recompute(self, height: int, index: int, wanted: bytes | None, left: Mmr) -> TileReading[S]:
        """Recompute a node from its children or from the log, check its hash, and store it again."""
        below = b""
        if height > self._block_height:
            a, b = self._stored_below(height, index, wanted)
            first = yield from self._read_verified(height - 1, 2 * index, a, left)
            before = _with_subtree(left, height - 1, first.hash)
            second = yield from self._read_verified(height - 1, 2 * index + 1, b, before)
            summary = self._overlay.combine(first.summary, second.summary)
            tile = SummaryTile(bytes(node_hash(first.hash, second.hash)), summary)
            below = first.hash + second.hash
        else:
            messages = yield from read(SeqRange((index << height) + 1, (index + 1) << height))
            tile = SummaryTile(hash_of(messages), self.lift(messages))
        if wanted is not None and tile.hash != wanted:
            span = f"{(index << height) + 1} to {(index + 1) << height}"
            raise VerificationError(
                f"messages {span} of label {self._label.hex()} differ from those that were folded before: "
                "the log contradicts the stored summaries",
                action="keep the log and the view as evidence, then delete the view and fold again",
            )
        root = _with_subtree(left, height, tile.hash).root
        self._store.write({self._key(height, index): self._sealed(height, index, root, tile, below)})
        self._cache.put((height, index), tile)
        return tile

    def _stored_below(
        self, height: int, index: int, wanted: bytes | None
    ) -> tuple[bytes | None, bytes | None]:
        """The hashes of the two stored children, if they hash to ``wanted``; else None for both."""
        a, b = self._open(height - 1, 2 * index), self._open(height - 1, 2 * index + 1)
        if a is None or b is None or node_hash(a.node, b.node) != wanted:
            return None, None
        return a.node, b.node

    def lift(self, messages: Sequence[Message]) -> Summary[S]:
        """Summarise messages; the index shows which of their keys were used before."""
        return self._overlay.fold(messages, self.index)

    def lift_one(self, message: Message) -> Summary[S]:
        """Summarise one message."""
        event: Event | IgnoredMessage | None = self._overlay.distinct(message, self.index)
        return self._overlay.empty if event is None else self._overlay.summarise(event)


def read(wanted: SeqRange) -> Generator[SeqRange, Sequence[Message], Sequence[Message]]:
    """Ask the driver for messages, and raise unless it sends exactly these."""
    messages = yield wanted
    if [message.seq for message in messages] != list(range(wanted.from_seq, wanted.to_seq + 1)):
        raise VerificationError(f"the log returned other messages than {wanted.from_seq} to {wanted.to_seq}")
    return messages


def _with_subtree(left: Mmr, height: int, subtree: bytes) -> Mmr:
    """A copy of ``left`` with one subtree appended."""
    grown = left.copy()
    grown.append_subtree(height, subtree)
    return grown


def _names_its_children(held: StoredNode) -> bool:
    """Whether the node names two children, and its hash is the hash over theirs."""
    below = held.hashes_below
    return len(below) == 2 and node_hash(*below) == held.node


def hash_of(messages: Iterable[Message]) -> bytes:
    """The hash of the perfect subtree over these messages."""
    tree = Mmr()
    for message in messages:
        tree.add(message.msg_id)
    return tree.root
