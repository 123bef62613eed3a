"""A cut: the end of every label at one moment, and the files that hold the entries before it.

A cut is taken under one view of the index, so that no label is ahead of another: what an entry relies on in
another label, such as a token on the control label, is inside the cut too. Entries before a cut never
change, but a running hub may at any time append to a growing chunk, rename it when it is sealed, or prune
it. Code that reads the files of a cut must expect these three.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from veen_core.ids import Label, MmrRoot, StreamSeq
from veen_storage.errors import AbsentError, PrunedError
from veen_storage.index import tables
from veen_storage.index.lmdb_index import Index, View
from veen_storage.index.records import LabelCursor, LabelNo
from veen_storage.index.tables import ANCHORS, CHECKPOINTS, CHUNKS, HEADS, LABELS
from veen_storage.read.hub_log import StoredHubLog
from veen_storage.read.reader import Reader


@dataclass(frozen=True, slots=True)
class LabelCut:
    """One label up to ``stream_seq``."""

    label: Label
    number: LabelNo
    stream_seq: StreamSeq
    mmr_root: MmrRoot
    chunk_start: StreamSeq
    """First entry of the chunk that grew at that moment; the chunks before it were sealed."""
    chunk_bytes: int | None
    """Bytes of that chunk that belong to the cut; None if the chunk must be walked to find out."""
    checkpointed: StreamSeq
    """``upto_seq`` of the last checkpoint within the cut."""


@dataclass(frozen=True, slots=True)
class HubLogCut:
    """The hub log up to one hub checkpoint; every label of the cut reaches its head in it."""

    size: int
    entries_bytes: int
    """Length of the file of entries up to that size, in bytes."""
    checkpoint: bytes
    """The hub checkpoint at that size."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Every label of a hub at one moment."""

    labels: tuple[LabelCut, ...]
    binding_bytes: int
    """Length of the checkpoint binding file at that moment."""
    hub_log: HubLogCut | None = None
    """The hub log at that moment; None if it is empty, or if labels end before their heads in it."""
    batch: int = 0
    """The last journal batch that was applied at that moment."""


@dataclass(frozen=True, slots=True)
class SealedPart:
    """A sealed chunk below a cut."""

    start: StreamSeq
    end: StreamSeq
    pruned: bool


def take_cut(index: Index) -> Cut:
    """Return the end of every label, as far as the index has applied it."""
    with index.reading() as view:
        labels = tuple(_of_label(view, number) for _label, number in LABELS.scan(view))
        hub_log, checkpoint = tables.read_hub_log(view), tables.META.get(view, tables.HUB_CHECKPOINT)
        applied = tables.read_number(view, tables.APPLIED)
        binding_bytes = tables.read_number(view, tables.BINDING_BYTES)
    cut = HubLogCut(hub_log.size, hub_log.entries_bytes, checkpoint) if checkpoint is not None else None
    return Cut(labels, binding_bytes, cut, applied)


def _of_label(view: View, number: LabelNo) -> LabelCut:
    cursor = LabelCursor.unpack(number, HEADS.require(view, number))
    return LabelCut(
        cursor.label,
        cursor.number,
        cursor.log.stream_seq,
        cursor.log.root,
        cursor.chunk_start,
        cursor.chunk_bytes,
        cursor.checkpointed,
    )


def shorten(
    cut: Cut, index: Index, read: Reader, hub_log: StoredHubLog, upto: Mapping[Label, StreamSeq]
) -> Cut:
    """Return the cut with the named labels ending earlier; a label that ends at 0 is left out.

    If a label then ends before its newest head in the hub log, the cut has no hub log: the hub checkpoint
    commits to entries that are not in the cut.
    """
    known = {held.label for held in cut.labels}
    for label in upto:
        if label not in known:
            raise AbsentError(f"label {label.hex()} has no entries and cannot be cut at {upto[label]}")
    shortened = (
        _shorten(held, index, read, upto.get(held.label, held.stream_seq))
        for held in cut.labels
        if upto.get(held.label) != 0
    )
    kept = cut.hub_log
    if kept is not None and any(_newest_head(hub_log, label, kept.size) > end for label, end in upto.items()):
        kept = None
    return dataclasses.replace(cut, labels=tuple(shortened), hub_log=kept)


def _newest_head(hub_log: StoredHubLog, label: Label, size: int) -> int:
    """Return ``upto_seq`` of the label's newest head in the first ``size`` entries; 0 if there is none."""
    try:
        return hub_log.head_of(label, None, size)[0].upto_seq
    except AbsentError:
        return 0


def _shorten(cut: LabelCut, index: Index, read: Reader, upto: StreamSeq) -> LabelCut:
    if upto == cut.stream_seq:
        return cut
    if not 0 < upto < cut.stream_seq:
        raise AbsentError(f"label {cut.label.hex()} has {cut.stream_seq} entries and cannot be cut at {upto}")
    held = next((part for part in sealed_parts(index, cut) if part.start <= upto <= part.end), None)
    if held is not None and held.pruned:
        raise PrunedError(
            f"label {cut.label.hex()} cannot be cut at {upto}: entries {held.start} to {held.end} are "
            "pruned; cut before or after them"
        )
    with index.reading() as view:
        checkpoint = CHECKPOINTS.last_of_label(view, cut.number, upto)
    return dataclasses.replace(
        cut,
        stream_seq=upto,
        mmr_root=read.root(cut.label, upto),
        chunk_start=held.start if held is not None else cut.chunk_start,
        chunk_bytes=None,
        checkpointed=checkpoint[0][1] if checkpoint is not None else StreamSeq(0),
    )


def sealed_parts(index: Index, cut: LabelCut) -> Iterator[SealedPart]:
    """Return the sealed chunks below a cut in order, as the index knows them now."""
    with index.reading() as view:
        parts = [
            SealedPart(start, record.end, record.pruned)
            for (_number, start), record in CHUNKS.scan_label(view, cut.number)
            if record.end < cut.chunk_start
        ]
    return iter(parts)


def sealed_end(index: Index, cut: LabelCut) -> StreamSeq | None:
    """Return where the chunk that grew at the cut was sealed since then; None if it still grows."""
    with index.reading() as view:
        record = CHUNKS.get(view, (cut.number, cut.chunk_start))
    return record.end if record is not None else None


def checkpoints(index: Index, cut: LabelCut) -> list[StreamSeq]:
    """Return ``upto_seq`` of every checkpoint within the cut, in order."""
    with index.reading() as view:
        keys = CHECKPOINTS.keys_of_label(view, cut.number)
        return [upto for _number, upto in keys if upto <= cut.checkpointed]


def anchored(index: Index, cut: LabelCut) -> set[StreamSeq]:
    """Return ``upto_seq`` of every checkpoint whose anchor the applier has written to a file."""
    with index.reading() as view:
        return {upto for _number, upto in ANCHORS.keys_of_label(view, cut.number)}


def chunk_starts(index: Index, label: Label) -> dict[StreamSeq, StreamSeq]:
    """Return the first entry of each sealed chunk of a label, by its last entry."""
    with index.reading() as view:
        if (number := LABELS.get(view, label)) is None:
            return {}
        return {record.end: start for (_number, start), record in CHUNKS.scan_label(view, number)}
