"""Retention: payloads go by rule, receipts and leaf hashes stay (COMP0.1, §3.4.1).

Whole sealed chunks are pruned, never a part of one, and never the growing chunk or the control label.
A pruned chunk leaves a file (``pruned_chunk``): when it was pruned, the sizes its entries had, and of each
entry its receipt, its hash and the MSG fields that leaf hashes are made from, so that every proof
across it still verifies and the index can be rebuilt.

A decision goes through the journal like everything else, so that it is applied once or again, never half.
A chunk must be the one that the manifest knows, to the last byte: what is pruned cannot be looked at again.
That is looked at before a decision is made (``prunable``) and again when it is applied; a chunk that is
damaged by then stays as it is, and everything else goes on. The rules will demand it again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from veen_core.chunk import PrunedEntry, PrunedHead, prune
from veen_core.entry import unframe
from veen_core.errors import DecodeError
from veen_core.ids import Epoch, Label, MmrRoot, StreamSeq, UnixTime
from veen_core.mmr import Mmr
from veen_storage.chunks.chunk_files import open_chunk
from veen_storage.chunks.pruned_chunk import encode_pruned, read_pruned_chunk
from veen_storage.commit.changes import Prune, Pruned
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.errors import DamageError, unreadable
from veen_storage.index.lmdb_index import Index, Transaction, View
from veen_storage.index.records import ChunkRecord, LabelNo, Segment, Tombstone
from veen_storage.index.tables import CHUNKS, LABELS, MANIFEST, TOMBSTONES, is_control_label, read_cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneRule:
    """What a label may keep; None means no bound, and ``long_term`` neither age nor size."""

    max_age_sec: int | None = None
    max_bytes: int | None = None


LONG_TERM = PruneRule()
"""Keep everything (retention_hint = long_term)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunePolicy:
    """A rule per label, and one for all others."""

    default: PruneRule = LONG_TERM
    labels: Mapping[Label, PruneRule] = field(default_factory=dict)

    def rule(self, label: Label) -> PruneRule:
        return self.labels.get(label, self.default)


@dataclass(frozen=True, slots=True)
class SealedChunk:
    """A live sealed chunk, as the manifest knows it."""

    start: StreamSeq
    end: StreamSeq
    total_bytes: int
    last_ts: UnixTime


def due(index: Index, label: Label, rule: PruneRule, now: UnixTime) -> list[Prune]:
    """The decisions that a rule demands now, oldest chunk first; none for a label that holds tokens."""
    with index.reading() as view:
        number = LABELS.get(view, label)
        if number is None or is_control_label(view, number):
            return []
        live = list(_live_chunks(view, number))
    decisions: list[Prune] = []
    kept_bytes = sum(chunk.total_bytes for chunk in live)
    for chunk in live:
        too_old = rule.max_age_sec is not None and chunk.last_ts + rule.max_age_sec < now
        too_much = rule.max_bytes is not None and kept_bytes > rule.max_bytes
        if not too_old and not too_much:
            break  # later chunks are younger, and fewer bytes are left
        kept_bytes -= chunk.total_bytes
        decisions.append(Prune(label=label, start_seq=chunk.start, end_seq=chunk.end, pruned_at=now))
    return decisions


def is_held_back(index: Index, label: Label, rule: PruneRule, now: UnixTime) -> bool:
    """Whether even the newest payload is too old, and stays: the chunk that grows is never pruned."""
    if rule.max_age_sec is None:
        return False
    with index.reading() as view:
        cursor = read_cursor(view, label)
    return cursor is not None and cursor.hub_ts + rule.max_age_sec < now


def _live_chunks(view: View, number: LabelNo) -> Iterator[SealedChunk]:
    for (_number, _epoch, start, end), segment in MANIFEST.scan_label(view, number):
        if not segment.pruned:
            yield SealedChunk(start, end, segment.total_bytes, segment.last_ts)


# --- what may go, and what stays of it


@dataclass(frozen=True, slots=True)
class Pruner:
    """Reads the chunks that are to be pruned, and writes what stays of them.

    ``notice`` is told of those that are left alone because they are not what the manifest knows.
    """

    layout: Layout
    index: Index
    zstd: bool
    notice: Callable[[str], None]

    def prunable(self, decision: Prune) -> bool:
        """Whether the chunk may go now; if not, that was said. Reads all of it."""
        return self._read(decision) is not None

    def write(self, files: Files, decision: Prune) -> bool:
        """Write what stays beside the chunk, which goes once the index knows; False if it must not go.

        From the chunk, also if something lies there already: of a round that was cut off, or a stranger.
        """
        if self._is_pruned(decision) or self._is_gone(decision):
            return True  # decided twice, or applied once before, as an index that was rebuilt may not know
        if (stays := self._read(decision)) is None:
            return False
        files.replace(self._path(decision), stays, sync_directory=False)
        return True

    def write_again(self, files: Files, label: Label, start: StreamSeq, end: StreamSeq) -> None:
        """Before a chunk goes that a crash has kept: what stays of it may be damaged by now."""
        if not self.layout.chunk(label, start, end).exists():
            return
        with self.index.reading() as view:
            pruned_at = TOMBSTONES.require(view, (LABELS.require(view, label), start)).pruned_at
        decision = Prune(label=label, start_seq=start, end_seq=end, pruned_at=pruned_at)
        try:
            stays = self._checked(decision)
        except (DamageError, OSError):
            read_pruned_chunk(self._path(decision))  # raises if it is damaged as well
            return
        path = self._path(decision)
        if not path.exists() or path.read_bytes() != stays:
            files.replace(path, stays)

    def _path(self, decision: Prune) -> Path:
        return self.layout.pruned(decision.label, decision.start_seq, decision.end_seq)

    def _is_pruned(self, decision: Prune) -> bool:
        with self.index.reading() as view:
            number = LABELS.get(view, decision.label)
            record = CHUNKS.get(view, (number, decision.start_seq)) if number is not None else None
        return record is not None and record.pruned

    def _is_gone(self, decision: Prune) -> bool:
        """Whether only what stays of the chunk is there, all of it."""
        label, start, end = decision.label, decision.start_seq, decision.end_seq
        if any(self.layout.chunk(label, start, name).exists() for name in (end, None)):
            return False
        try:
            kept = read_pruned_chunk(self._path(decision)).kept
        except (DamageError, OSError):
            return False
        hashes = Mmr()
        for _place, entry in kept:
            hashes.add(entry.entry_hash)
        return hashes.root == self._segment(decision).entry_hashes_root

    def _segment(self, decision: Prune) -> Segment:
        with self.index.reading() as view:
            return _segment(view, LABELS.require(view, decision.label), decision.start_seq)[1]

    def _read(self, decision: Prune) -> bytes | None:
        """What stays of the chunk; None if it is not the one that it must be."""
        name = self.layout.chunk(decision.label, decision.start_seq, decision.end_seq).name
        try:
            return self._checked(decision)
        except DamageError as exc:
            damage = exc
        except OSError as exc:
            if self._is_pruned(decision):
                return None  # meanwhile
            damage = unreadable(name, exc)
        where = f"{name}{f' at byte {damage.offset}' if damage.offset is not None else ''}"
        self.notice(
            f"{where}: {damage.what}: retention leaves it as it is; "
            "run `veen hub fsck`, and restore the file from a clone"
        )
        return None

    def _checked(self, decision: Prune) -> bytes:
        stays = what_stays(self.layout, decision, zstd=self.zstd)
        if stays.entry_hashes_root != self._segment(decision).entry_hashes_root:
            name = self.layout.chunk(decision.label, decision.start_seq, decision.end_seq).name
            raise DamageError(name, None, "is not the chunk that the manifest knows")
        return stays.content


class Stays(NamedTuple):
    """What a pruned chunk's file holds, and what its entries hash to."""

    content: bytes
    entry_hashes_root: MmrRoot


def what_stays(layout: Layout, decision: Prune, *, zstd: bool) -> Stays:
    """Of a chunk that is still there; ``DamageError`` if it cannot be read to its end."""
    label, start, end = decision.label, decision.start_seq, decision.end_seq
    sizes: list[int] = []
    kept: list[PrunedEntry] = []
    hashes = Mmr()
    with open_chunk(layout, label, start, end, zstd=zstd) as chunk:
        for offset, frame in chunk.walk():
            try:
                entry = prune(unframe(frame))
            except DecodeError as exc:
                raise DamageError(chunk.name, offset, str(exc)) from exc
            sizes.append(len(frame))
            kept.append(entry)
            hashes.add(entry.entry_hash)
    head = PrunedHead(
        label=label, start_seq=start, end_seq=end, pruned_at=decision.pruned_at, sizes=tuple(sizes)
    )
    return Stays(encode_pruned(head, kept), hashes.root)


def _segment(
    view: View, number: LabelNo, start: StreamSeq
) -> tuple[tuple[LabelNo, Epoch, StreamSeq, StreamSeq], Segment]:
    """The manifest's leaf for the chunk that a decision names."""
    record = CHUNKS.require(view, (number, start))
    key = (number, record.epoch, start, record.end)
    return key, MANIFEST.require(view, key)


def index_pruned(txn: Transaction, step: Pruned) -> None:
    """Tombstone, and the manifest's leaf turned to pruned."""
    decision = step.decision
    key = (step.number, decision.start_seq)
    record = CHUNKS.require(txn, key)
    if record.pruned:
        return  # decided twice before it was applied once: the first decision stands
    CHUNKS.put(txn, key, ChunkRecord(record.end, record.epoch, True))
    manifest_key, segment = _segment(txn, step.number, decision.start_seq)
    MANIFEST.put(txn, manifest_key, dataclasses.replace(segment, pruned=True))
    TOMBSTONES.put(txn, key, Tombstone(decision.end_seq, decision.pruned_at))
