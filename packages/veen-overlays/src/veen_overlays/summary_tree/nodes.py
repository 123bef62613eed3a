"""The stored nodes of a summary tree: written once, verified when read, computed anew where they fail.

A node is trusted if it is undamaged, is what the tree above it says stands there, and is bound to the
root that the log had at its end. All of that is read off the way down from the head's peaks: each node
names the two below it, and the subtrees passed on the left give the root (§11.3, B11).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from veen_core.errors import VerificationError
from veen_core.ids import Label
from veen_core.mmr import Mmr, node_hash, peak_positions, root_of
from veen_overlays.fold.event import Event, IgnoredMessage, MemorySeenKeys, Message
from veen_overlays.fold.overlay import Overlay, Summary
from veen_overlays.summary_tree.node import ClassId, NodeBinding, StoredNode
from veen_overlays.summary_tree.store import Store

S = TypeVar("S")

MAX_CACHED_NODES: Final = 1024
"""Nodes kept in memory, the longest unused forgotten first."""


class Range(NamedTuple):
    """Messages of the log that are needed: both ends included."""

    from_seq: int
    to_seq: int


class Tile(NamedTuple, Generic[S]):
    """A subtree: the MMR's hash of it, and its summary."""

    hash: bytes
    summary: Summary[S]


class KeyIndex:
    """Which event had a key first: in the store, and of the open block in memory."""

    def __init__(self, store: Store, prefix: bytes) -> None:
        self._store, self._prefix = store, prefix + b"k"
        self.pending: dict[bytes, bytes] = {}

    def seq_of(self, key: bytes) -> int | None:
        """The first event that had it."""
        stored = self._prefix + key
        held = self.pending.get(stored) or self._store.get(stored)
        return None if held is None else int.from_bytes(held, "big")

    def first(self, key: bytes, seq: int) -> bool:
        held = self.seq_of(key)
        if held is None:
            self.pending[self._prefix + key] = seq.to_bytes(8, "big")
        return held is None or held == seq


class LaterKeys:
    """Which keys came before, for messages after ``size``; an index learns nothing of them.

    What the index has of later ones another process has written, which has folded further than we have.
    """

    def __init__(self, index: KeyIndex, size: int) -> None:
        self._index, self._size = index, size
        self._keys = MemorySeenKeys()

    def first(self, key: bytes, seq: int) -> bool:
        held = self._index.seq_of(key)
        return (held is None or held > self._size) and self._keys.first(key, seq)


Reading = Generator[Range, Sequence[Message], Tile[S]]
"""Yields the messages it needs, is sent them, and returns a tile."""


class Nodes(Generic[S]):
    """Of one overlay over one label."""

    def __init__(self, overlay: Overlay[S], label: Label, store: Store, block_height: int) -> None:
        self._overlay, self._store, self._block_height = overlay, store, block_height
        self._binding = NodeBinding(ClassId(overlay.class_id), label)
        self._prefix = overlay.class_id[:16] + label[:16] + bytes([block_height])
        self._cache: OrderedDict[tuple[int, int], Tile[S]] = OrderedDict()
        self.index = KeyIndex(store, self._prefix)
        self.head = Mmr()
        """The whole blocks, as they are stored."""

    def _key(self, height: int, index: int) -> bytes:
        return self._prefix + b"n" + bytes([height]) + index.to_bytes(8, "big")

    def _open(self, height: int, index: int) -> StoredNode | None:
        return self._binding.open(self._store.get(self._key(height, index)), (index + 1) << height)

    # --- head

    def load_head(self) -> None:
        """Take up what is stored; nothing, if the head cannot be trusted."""
        held = self._binding.open(self._store.get(self._prefix + b"h"))
        fits = held is not None and len(held.hashes_below) == held.upto_seq.bit_count()
        if held is None or not fits or root_of(held.hashes_below) != held.mmr_root:
            self.clear()
        else:
            self.head = Mmr(held.upto_seq, held.hashes_below)
            self.index = KeyIndex(self._store, self._prefix)

    def clear(self) -> None:
        """Forget everything: what the store holds of this tree is of no use."""
        stop = self._prefix + b"\xff"
        self._store.write({}, [key for key, _ in self._store.scan(self._prefix, stop)])
        self._cache.clear()
        self.index, self.head = KeyIndex(self._store, self._prefix), Mmr()

    def commit(self, head: Mmr, fresh: Iterable[tuple[int, int, Tile[S], bytes]]) -> None:
        """A block and the subtrees it completed, with its keys and the new head, in one step."""
        fresh, root = list(fresh), head.root
        puts = {self._key(h, i): self._sealed(h, i, root, tile, below) for h, i, tile, below in fresh}
        peaks = b"".join(head.peaks)
        puts[self._prefix + b"h"] = self._binding.seal(head.size, root, root, peaks, b"")
        self._store.write(puts | self.index.pending)  # commit point; memory follows
        self.index.pending = {}
        self.head = head.copy()
        for height, index, tile, _ in fresh:
            self._remember(height, index, tile)

    def _sealed(self, height: int, index: int, root: bytes, tile: Tile[S], below: bytes) -> bytes:
        summary = self._overlay.encode(tile.summary)
        return self._binding.seal((index + 1) << height, root, tile.hash, below, summary)

    def _remember(self, height: int, index: int, tile: Tile[S]) -> None:
        self._cache[height, index] = tile
        self._cache.move_to_end((height, index))
        if len(self._cache) > MAX_CACHED_NODES:
            self._cache.popitem(last=False)

    # --- reading

    def tile(self, height: int, index: int) -> Reading[S]:
        """The subtree at ``(height, index)``: from memory, from the store, or computed anew."""
        if (cached := self._cache.get((height, index))) is not None:
            self._cache.move_to_end((height, index))
            return cached
        peaks = [*zip(peak_positions(self.head.size), self.head.peaks, strict=True)][::-1]
        left = Mmr()
        for (h, i), wanted in peaks:
            if h >= height and index >> (h - height) == i:
                return (yield from self._descend(h, i, wanted, left, (height, index)))
            left.append_subtree(h, wanted)
        raise VerificationError(f"subtree {height}/{index} is beyond the {self.head.size} stored messages")

    def _descend(self, h: int, i: int, wanted: bytes, left: Mmr, target: tuple[int, int]) -> Reading[S]:
        """From a peak down to the target; a node on the way that fails is computed anew first."""
        while h > target[0]:
            held = self._open(h, i)
            if held is None or held.node != wanted or not _names_its_children(held):
                yield from self._computed(h, i, wanted, left)
                held = self._open(h, i)
                assert held is not None  # just written
            h -= 1
            goes_right = target[1] >> (h - target[0]) & 1
            if goes_right:
                left = _and(left, h, held.hashes_below[0])
            wanted, i = held.hashes_below[goes_right], 2 * i + goes_right
        return (yield from self._verified(h, i, wanted, left))

    def _verified(self, height: int, index: int, wanted: bytes | None, left: Mmr) -> Reading[S]:
        held = None if wanted is None else self._open(height, index)
        if held is not None and held.node == wanted and held.mmr_root == _and(left, height, wanted).root:
            tile = Tile(bytes(held.node), self._overlay.load(held.summary))
            self._remember(height, index, tile)
            return tile
        return (yield from self._computed(height, index, wanted, left))

    def _computed(self, height: int, index: int, wanted: bytes | None, left: Mmr) -> Reading[S]:
        """From the two below, or from the log; checked against what the tree above wants; written back."""
        below = b""
        if height > self._block_height:
            a, b = self._stored_below(height, index, wanted)
            first = yield from self._verified(height - 1, 2 * index, a, left)
            before = _and(left, height - 1, first.hash)
            second = yield from self._verified(height - 1, 2 * index + 1, b, before)
            summary = self._overlay.combine(first.summary, second.summary)
            tile = Tile(bytes(node_hash(first.hash, second.hash)), summary)
            below = first.hash + second.hash
        else:
            messages = yield from read(Range((index << height) + 1, (index + 1) << height))
            tile = Tile(hash_of(messages), self.lift(messages))
        if wanted is not None and tile.hash != wanted:
            span = f"{(index << height) + 1} to {(index + 1) << height}"
            raise VerificationError(
                f"messages {span} are not those that were folded before: the log contradicts the stored "
                "summaries; keep both as evidence, then clear the view and fold again"
            )
        root = _and(left, height, tile.hash).root
        self._store.write({self._key(height, index): self._sealed(height, index, root, tile, below)})
        self._remember(height, index, tile)
        return tile

    def _stored_below(
        self, height: int, index: int, wanted: bytes | None
    ) -> tuple[bytes | None, bytes | None]:
        """The hashes of the two subtrees below, if what is stored there makes up the wanted one."""
        a, b = self._open(height - 1, 2 * index), self._open(height - 1, 2 * index + 1)
        if a is None or b is None or node_hash(a.node, b.node) != wanted:
            return None, None
        return a.node, b.node

    def lift(self, messages: Sequence[Message]) -> Summary[S]:
        """Messages that were folded before: the index knows which of them are the first of their keys."""
        return self._overlay.fold(messages, self.index)

    def lift_one(self, message: Message) -> Summary[S]:
        event: Event | IgnoredMessage | None = self._overlay.distinct(message, self.index)
        return self._overlay.empty if event is None else self._overlay.summarise(event)


def read(wanted: Range) -> Generator[Range, Sequence[Message], Sequence[Message]]:
    """Ask for messages; whoever drives may answer with these and no others."""
    messages = yield wanted
    if [message.seq for message in messages] != list(range(wanted.from_seq, wanted.to_seq + 1)):
        raise VerificationError(f"asked for messages {wanted.from_seq} to {wanted.to_seq}, got others")
    return messages


def _and(left: Mmr, height: int, subtree: bytes) -> Mmr:
    """The log on the left, and one subtree more."""
    grown = left.copy()
    grown.append_subtree(height, subtree)
    return grown


def _names_its_children(held: StoredNode) -> bool:
    below = held.hashes_below
    return len(below) == 2 and node_hash(*below) == held.node


def hash_of(messages: Iterable[Message]) -> bytes:
    """The root of a perfect subtree over these messages."""
    tree = Mmr()
    for message in messages:
        tree.add(message.msg_id)
    return tree.root
