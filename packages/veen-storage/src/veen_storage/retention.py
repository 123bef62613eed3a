"""Retention: payloads go by rule, receipts and leaf hashes stay (COMP0.1, §3.4.1).

Whole sealed chunks are pruned, never a part of one, and never the growing chunk or the control label.
A pruned chunk leaves a file (``pruned_chunk``): when it was pruned, the sizes its entries had, and of each
entry its receipt, its hash and the MSG fields that leaf hashes are made from, so that every proof
across it still verifies and the index can be rebuilt.

A decision goes through the journal like everything else, so that it is applied once or again, never half.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from veen_core.chunk import PrunedHead, prune
from veen_core.entry import unframe
from veen_core.ids import Label, StreamSeq, UnixTime
from veen_core.mmr import Mmr
from veen_storage.changes import Prune, Pruned
from veen_storage.chunk_files import open_chunk
from veen_storage.errors import DamageError
from veen_storage.files import Files
from veen_storage.index import Index, Transaction, View
from veen_storage.layout import Layout
from veen_storage.pruned_chunk import encode_pruned
from veen_storage.records import LABEL_SEQ, MANIFEST, U32, U64, ChunkRecord, LabelNo, Segment, control_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a label may keep; None means no bound, and ``long_term`` neither age nor size."""

    max_age_sec: int | None = None
    max_bytes: int | None = None


LONG_TERM = Rule()
"""Keep everything (retention_hint = long_term)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A rule per label, and one for all others."""

    default: Rule = LONG_TERM
    labels: Mapping[Label, Rule] = field(default_factory=dict)

    def rule(self, label: Label) -> Rule:
        return self.labels.get(label, self.default)


@dataclass(frozen=True, slots=True)
class SealedChunk:
    """A live sealed chunk, as the manifest knows it."""

    start: StreamSeq
    end: StreamSeq
    total_bytes: int
    last_ts: UnixTime


def due(index: Index, label: Label, rule: Rule, now: UnixTime) -> list[Prune]:
    """The decisions that a rule demands now, oldest chunk first; none for a label that holds tokens."""
    with index.reading() as view:
        number = view.get("labels", label)
        if number is None or view.get("meta", control_key(LabelNo(U32.unpack(number)[0]))) is not None:
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


def _live_chunks(view: View, number: bytes) -> Iterator[SealedChunk]:
    for key, value in view.scan("manifest", number, number):
        _number, _epoch, start, end = MANIFEST.unpack(key)
        segment = Segment.unpack(value)
        if not segment.pruned:
            yield SealedChunk(StreamSeq(start), StreamSeq(end), segment.total_bytes, segment.last_ts)


def write_pruned(files: Files, layout: Layout, index: Index, step: Pruned, zstd: bool) -> None:
    """Write what stays beside the chunk; the chunk itself goes once the index knows.

    It must be the chunk that the manifest knows, to the last byte: what is pruned cannot be looked at again.
    """
    decision = step.decision
    label, start, end = decision.label, decision.start_seq, decision.end_seq
    target = layout.pruned(label, start, end)
    if target.exists():
        return
    with open_chunk(layout, label, start, end, zstd=zstd) as chunk:
        frames = [frame for _offset, frame in chunk.walk()]
    head = PrunedHead(
        label=label,
        start_seq=start,
        end_seq=end,
        pruned_at=decision.pruned_at,
        sizes=tuple(len(frame) for frame in frames),
    )
    kept = [prune(unframe(frame)) for frame in frames]
    hashes = Mmr()
    for entry in kept:
        hashes.add(entry.entry_hash)
    with index.reading() as view:
        _key, segment = _segment(view, step)
    if hashes.root != segment.entry_hashes_root:
        raise DamageError(chunk.name, None, "is not the chunk that the manifest knows: it was not pruned")
    files.replace(target, encode_pruned(head, kept), sync_directory=False)


def _segment(view: View, step: Pruned) -> tuple[bytes, Segment]:
    """The manifest's leaf for the chunk that a decision names."""
    start = step.decision.start_seq
    record = ChunkRecord.unpack(view.get("chunks", LABEL_SEQ.pack(step.number, start)) or b"")
    key = MANIFEST.pack(step.number, record.epoch, start, record.end)
    return key, Segment.unpack(view.get("manifest", key) or b"")


def index_pruned(txn: Transaction, step: Pruned) -> None:
    """Tombstone, and the manifest's leaf turned to pruned."""
    decision = step.decision
    key = LABEL_SEQ.pack(step.number, decision.start_seq)
    record = ChunkRecord.unpack(txn.get("chunks", key) or b"")
    if record.pruned:
        return  # decided twice before it was applied once: the first decision stands
    txn.put("chunks", key, ChunkRecord(record.end, record.epoch, True).pack())
    manifest_key, segment = _segment(txn, step)
    txn.put("manifest", manifest_key, dataclasses.replace(segment, pruned=True).pack())
    txn.put("tombstones", key, U64.pack(decision.end_seq) + U64.pack(decision.pruned_at))
