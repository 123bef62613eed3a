"""Reading the hub log: checkpoint, tiles, entry bundles, proofs and heads (RESOLUTIONS P1, C2SP tlog-tiles).

Every answer is about durable extensions only, applied or not. A proof takes O(log n) lookups. Any number of
threads may read while the writer writes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

from veen_core.errors import DecodeError
from veen_core.hub_log import LabelHead
from veen_core.ids import Label, StreamSeq
from veen_core.tlog import tree
from veen_core.tlog.tiles import ENTRIES, Tile, encode_bundle
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_storage.commit.tail import Tail
from veen_storage.disk.layout import HUB_LOG_PUBLISHED, Layout
from veen_storage.errors import REPAIR, AbsentError, DamageError, StorageError, reading
from veen_storage.index import tables
from veen_storage.index.lmdb_index import Index
from veen_storage.read.hub_log_view import HubLogView

PAGE_LABELS: Final = 1_024
"""Labels that are read in one index transaction."""


class StoredHubLog:
    """Reads the hub log of one open data directory. Use it from any thread."""

    def __init__(
        self, layout: Layout, index: Index, tail: Tail, moved: Callable[[], int] | None = None
    ) -> None:
        """``moved`` counts the labels that moved; without it, those that the index knows are counted."""
        self._layout = layout
        self._index = index
        self._tail = tail
        self._count_moved = moved
        self._published = self._read_published()

    @contextmanager
    def _view(self) -> Iterator[HubLogView]:
        waiting = self._tail.hub_log  # before the index: what leaves the tail is in the index by then
        with self._index.reading() as view:
            yield HubLogView(self._layout, waiting, view)

    @property
    def entries_file(self) -> Path:
        """The file of applied entries."""
        return self._layout.hub_log_entries

    # --- checkpoints

    @property
    def checkpoint(self) -> SignedHead | None:
        """The newest durable hub checkpoint; None before the first."""
        with self._view() as log:
            return log.checkpoint

    @property
    def size(self) -> int:
        """Number of entries: the size of the newest durable hub checkpoint."""
        with self._view() as log:
            return log.size

    @property
    def moved(self) -> int:
        """Number of labels with entries since the newest hub checkpoint."""
        if self._count_moved is not None:
            return self._count_moved()
        with self._index.reading() as view:
            return view.count(tables.HUB_MOVED.name)

    @property
    def published(self) -> SignedHead | None:
        """The hub checkpoint that is served, with its cosignatures; None before the first."""
        return self._published

    def _read_published(self) -> SignedHead | None:
        try:
            with reading(HUB_LOG_PUBLISHED):
                content = self._layout.hub_log_published.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return parse_signed_head(content)
        except DecodeError as exc:
            raise DamageError(HUB_LOG_PUBLISHED, None, str(exc), REPAIR) from exc

    def check_publishable(self, signed: SignedHead) -> None:
        """Raise unless this is a hub checkpoint of this hub log, and no older than the published one."""
        size, before = signed.head.size, self._published
        if before is not None and size < before.head.size:
            raise StorageError(
                f"a hub checkpoint of size {size} cannot be published after one of size {before.head.size}",
                action="publish the newest hub checkpoint",
            )
        if size < 1 or size > self.size or self.root_at(size) != signed.head.root:
            raise StorageError(
                f"the hub checkpoint at size {size} is not one of this hub log, which has {self.size} entries"
            )

    def set_published(self, signed: SignedHead) -> None:
        """Take over a hub checkpoint that ``hublog/published`` contains now."""
        self._published = signed

    # --- tiles

    def tile(self, tile: Tile) -> bytes:
        """Return the hashes of a tile; raise ``AbsentError`` if the tree does not have all of them."""
        with self._view() as log:
            self._check_tile(tile, log.size, entries=False)
            return b"".join(log.nodes(tile.height, tile.start, tile.start + tile.width))

    def bundle(self, tile: Tile) -> bytes:
        """Return an entry bundle; raise ``AbsentError`` if the tree does not have all its entries."""
        with self._view() as log:
            self._check_tile(tile, log.size, entries=True)
            return encode_bundle(log.entries(tile.start, tile.start + tile.width))

    def _check_tile(self, tile: Tile, size: int, *, entries: bool) -> None:
        if (tile.level == ENTRIES) != entries or not tile.exists_at(size):
            raise AbsentError(f"the hub log has {size} entries and no tile {tile.path} (C2SP tlog-tiles)")

    # --- proofs

    def root_at(self, size: int) -> bytes:
        """Return the root of the tree over the first ``size`` entries."""
        with self._view() as log:
            self._check_size(log, size)
            return tree.tree_at(size, log.node).root

    def prove_inclusion(self, index: int, size: int) -> list[bytes]:
        """Prove that an entry is among the first ``size`` (RFC 6962 §2.1.1)."""
        with self._view() as log:
            self._check_size(log, size)
            return tree.prove_inclusion(log.node, index, size)

    def prove_consistency(self, old: int, new: int) -> list[bytes]:
        """Prove that the first ``old`` entries of a tree of ``new`` are unchanged (RFC 6962 §2.1.2)."""
        with self._view() as log:
            self._check_size(log, new)
            return tree.prove_consistency(log.node, old, new)

    def _check_size(self, log: HubLogView, size: int) -> None:
        if not 0 <= size <= log.size:
            raise AbsentError(f"the hub log has {log.size} entries, not {size}")

    # --- heads

    def head_of(
        self, label: Label, stream_seq: StreamSeq | None = None, size: int | None = None
    ) -> tuple[LabelHead, int]:
        """Return a head of a label and its index: the newest, or the first that covers ``stream_seq``.

        With ``size``, only the first ``size`` entries count.
        """
        with self._view() as log:
            limit = log.size if size is None else size
            self._check_size(log, limit)
            if (found := log.find(label, stream_seq, limit)) is None:
                covers = f" that covers entry {stream_seq}" if stream_seq is not None else ""
                raise AbsentError(
                    f"label {label.hex()} has no head{covers} in the first {limit} entries of the hub log"
                )
            return log.head(label, found), found.index

    def heads(self, size: int | None = None) -> Iterator[LabelHead]:
        """Yield the newest head of every label among the first ``size`` entries, in order of labels."""
        with self._view() as log:
            limit = log.size if size is None else size
            self._check_size(log, limit)
        waiting = sorted({entry.label for step in self._tail.hub_log for entry in step.entries})
        last: Label | None = None
        for label in heapq.merge(waiting, self._labels()):
            if label == last:
                continue
            last = label
            with self._view() as log:
                head = log.head(label, found) if (found := log.find(label, None, limit)) is not None else None
            if head is not None:
                yield head

    def _labels(self) -> Iterator[Label]:
        after: bytes | None = b""
        while after is not None:
            with self._index.reading() as view:
                some = [label for label, _number in islice(tables.LABELS.scan(view, after), PAGE_LABELS)]
            yield from some
            after = some[-1] + b"\x00" if some else None
