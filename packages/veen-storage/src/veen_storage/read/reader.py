"""The reader: proofs, times, checkpoints and anchors, besides entries (core §3.4, §10.1).

Every answer takes O(1) or O(log n) lookups and sees durable entries only. Any number of threads may read
while the writer writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from veen_core.checkpoint import Checkpoint
from veen_core.consistency import MmrConsistency, prove_consistency
from veen_core.ids import NO_ENTRIES, Label, MmrRoot, StreamSeq, UnixTime
from veen_core.mmr import NodeLookup, mmr_at
from veen_core.proof import MmrProof, prove_inclusion
from veen_storage.chunks.chunk_origin_check import OriginCheck
from veen_storage.commit.tail import Tail
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import Registry
from veen_storage.errors import AbsentError
from veen_storage.index.lmdb_index import Index, View
from veen_storage.index.records import EPOCH_LABEL_SEQ
from veen_storage.index.tables import (
    ALL_TIMES,
    ANCHORS,
    CHECKPOINTS,
    EPOCHS,
    LABELS,
    NODES,
    TIMES,
    label_at,
    read_cursor,
)
from veen_storage.read.entry_reader import EntryReader, Head
from veen_storage.read.proof_cache import ProofCache, ProofKey

__all__ = ["FOREVER", "Head", "LabelProgress", "Reader"]

FOREVER = UnixTime(2**64 - 1)
"""Later than any hub_ts."""


class LabelProgress(NamedTuple):
    """How far the entries of a label are covered; each number is the stream_seq of the last entry covered."""

    label: Label
    entries: StreamSeq
    checkpointed: StreamSeq
    anchored: StreamSeq


class Reader(EntryReader):
    """Reads one open data directory. Use it from any thread."""

    def __init__(
        self, layout: Layout, registry: Registry, index: Index, tail: Tail, origin: OriginCheck
    ) -> None:
        super().__init__(layout, registry, index, tail, origin)
        self.proofs = ProofCache()

    # --- proofs

    def proof(self, label: Label, stream_seq: StreamSeq, tree_size: StreamSeq | None = None) -> MmrProof:
        """Prove that an entry is in a tree; by default in the tree that ends with it (RESOLUTIONS B10)."""
        key = ProofKey(label, stream_seq, stream_seq if tree_size is None else tree_size)
        self._check_size(label, key.tree_size)
        if (proof := self.proofs.get(key)) is None:
            with self._nodes(label) as lookup:
                proof = prove_inclusion(lookup, stream_seq, key.tree_size)
            self.proofs.put(key, proof)
        return proof

    def consistency(self, label: Label, from_seq: StreamSeq, to_seq: StreamSeq) -> MmrConsistency:
        self._check_size(label, to_seq)
        with self._nodes(label) as lookup:
            return prove_consistency(lookup, from_seq, to_seq)

    def root(self, label: Label, tree_size: StreamSeq) -> MmrRoot:
        """Return the MMR root at any tree size."""
        self._check_size(label, tree_size)
        with self._nodes(label) as lookup:
            return mmr_at(tree_size, lookup).root

    def _check_size(self, label: Label, tree_size: int) -> None:
        head = self._require_head(label)
        if tree_size > head.stream_seq:
            raise AbsentError(f"label {label.hex()} has {head.stream_seq} entries, not {tree_size}")

    @contextmanager
    def _nodes(self, label: Label) -> Iterator[NodeLookup]:
        """Look up MMR nodes in the tail and one index transaction.

        A node that leaves the tail meanwhile is looked up in a newer transaction.
        """
        waiting = self._tail.number(label) is not None
        with self._index.reading() as view:
            number = LABELS.get(view, label)

            def lookup(height: int, index: int) -> bytes:
                if waiting and (node := self._tail.node(label, height, index)) is not None:
                    return node
                if height == 0:
                    return self.receipt(label, StreamSeq(index + 1)).leaf_hash
                node = NODES.get(view, (number, height, index)) if number is not None else None
                return node or self._newer_node(label, height, index)

            yield lookup

    def _newer_node(self, label: Label, height: int, index: int) -> bytes:
        with self._index.reading() as view:
            return NODES.require(view, (LABELS.require(view, label), height, index))

    # --- time

    def window(self, label: Label, start: UnixTime, end: UnixTime) -> tuple[StreamSeq, StreamSeq] | None:
        """Return first and last entry of a label with ``start <= hub_ts <= end``; None if there are none."""
        head = self.head(label)
        first = self._first_at(label, start)
        if head is None or first is None:
            return None
        beyond = self._first_at(label, UnixTime(end + 1)) if end < FOREVER else None
        last = StreamSeq(beyond - 1) if beyond is not None else head.stream_seq
        return (first, last) if first <= last else None

    def _first_at(self, label: Label, start: UnixTime) -> StreamSeq | None:
        """Return the first entry at or after a time; applied entries come before those in the tail."""
        tail = [p.entry.stream_seq for p in self._tail.all_of(label) if p.hub_ts >= start]
        with self._index.reading() as view:
            number = LABELS.get(view, label)
            row = next(TIMES.scan_label(view, number, start), None) if number is not None else None
        if row is not None:
            return row[1]
        return tail[0] if tail else None

    def newest_head(self) -> Head | None:
        """Return the head of a label with an entry at the newest hub_ts; None if there are no entries."""
        waiting = max(self._tail.snapshot(), key=lambda placed: placed.hub_ts, default=None)
        if waiting is not None:
            return self.head(waiting.entry.label)
        with self._index.reading() as view:
            row = ALL_TIMES.last(view)
            label = label_at(view, row[0][1]) if row is not None else None
        return self.head(label) if label is not None else None

    # --- checkpoints

    def checkpoint(self, label: Label, upto_seq: StreamSeq) -> Checkpoint:
        """Return the checkpoint at exactly ``upto_seq``."""
        found = self.checkpoint_before(label, upto_seq)
        if found is None or found.upto_seq != upto_seq:
            raise AbsentError(f"label {label.hex()} has no checkpoint at {upto_seq}")
        return found

    def checkpoint_before(self, label: Label, seq: StreamSeq) -> Checkpoint | None:
        """Return the nearest checkpoint at or before ``seq``."""
        tail = [c for c in self._tail.checkpoints(label) if c.upto_seq <= seq]
        if tail:
            return tail[-1]
        with self._index.reading() as view:
            number = LABELS.get(view, label)
            row = CHECKPOINTS.last_of_label(view, number, seq) if number is not None else None
        return row[1] if row is not None else None

    def latest_checkpoint(self, label: Label) -> Checkpoint | None:
        return self.checkpoint_before(label, StreamSeq(2**64 - 1))

    def checkpoints_by_epoch(
        self, first: int, last: int, limit: int, after: tuple[Label, StreamSeq] | None = None
    ) -> list[Checkpoint]:
        """Return one page of checkpoints of epochs ``first`` to ``last`` (spec-1 §16 checkpoint_range).

        They are ordered by epoch, then by the labels' order of appearance, then by upto_seq. ``after`` is
        label and upto_seq of the last checkpoint of the previous page, in epoch ``first``.
        """
        start = (first, *self._key_after(after)) if after is not None else (first, 0, 0)
        found = {
            key: made
            for number, made in self._tail.all_checkpoints()
            if start <= (key := (int(made.epoch), int(number), int(made.upto_seq))) and made.epoch <= last
        }
        waiting = len(found)
        with self._index.reading() as view:
            for (epoch, number, upto), _empty in EPOCHS.scan(view, EPOCH_LABEL_SEQ.pack(*start)):
                if epoch > last or len(found) >= limit + waiting:
                    break
                found[epoch, number, upto] = CHECKPOINTS.require(view, (number, upto))
        return [made for _key, made in sorted(found.items(), key=lambda row: row[0])][:limit]

    def _key_after(self, last: tuple[Label, StreamSeq]) -> tuple[int, int]:
        label, upto = last
        if (number := self._tail.number(label)) is None:
            with self._index.reading() as view:
                number = LABELS.get(view, label)
            if number is None:
                raise AbsentError(f"label {label.hex()} has no entries")
        return number, upto + 1

    def anchor(self, label: Label, upto_seq: StreamSeq) -> bytes | None:
        """Return the anchor reference of a checkpoint; None if it is not anchored (ANCHOR0.2)."""
        if (waiting := self._tail.anchor(label, upto_seq)) is not None:
            return waiting
        with self._index.reading() as view:
            number = LABELS.get(view, label)
            return ANCHORS.get(view, (number, upto_seq)) if number is not None else None

    def anchored_upto(self, label: Label) -> StreamSeq:
        """Return ``upto_seq`` of the last checkpoint with an anchor; 0 if none has one."""
        waiting = self._tail.anchored_upto(label)
        with self._index.reading() as view:
            number = LABELS.get(view, label)
            row = ANCHORS.last_of_label(view, number) if number is not None else None
        return max(waiting, row[0][1]) if row is not None else waiting

    def label_progress(self, after: Label | None = None, limit: int = 256) -> list[LabelProgress]:
        """Return one page of labels in byte order, with how far each is checkpointed and anchored."""
        tail = [self._progress_in_tail(label) for label in self.labels(after, limit)]
        with self._index.reading() as view:
            return [self._progress(view, progress) for progress in tail]

    def _progress_in_tail(self, label: Label) -> LabelProgress:
        last, made = self._tail.last(label), self._tail.checkpoints(label)
        return LabelProgress(
            label,
            last.entry.stream_seq if last is not None else NO_ENTRIES,
            made[-1].upto_seq if made else NO_ENTRIES,
            self._tail.anchored_upto(label),
        )

    def _progress(self, view: View, tail: LabelProgress) -> LabelProgress:
        """Add the numbers of the index to those of the tail; the view was opened after the tail was read."""
        if (cursor := read_cursor(view, tail.label)) is None:
            return tail
        anchor = ANCHORS.last_of_label(view, cursor.number)
        return LabelProgress(
            tail.label,
            max(tail.entries, cursor.log.stream_seq),
            max(tail.checkpointed, cursor.checkpointed),
            max(tail.anchored, anchor[0][1]) if anchor is not None else tail.anchored,
        )
