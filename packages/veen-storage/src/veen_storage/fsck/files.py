"""What lies in ``log/`` and ``journal/``, by label: the ground that fsck and repair stand on (§4.8.3)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from veen_core.checkpoint import Checkpoint
from veen_core.chunk import ChunkName, chunk_name, parse_chunk_name, pruned_name
from veen_core.entry import decode_frame
from veen_core.errors import VeenError
from veen_core.ids import EntryHash, Label, StreamSeq
from veen_storage.chunks.chunk_files import ChunkFile
from veen_storage.commit import journal
from veen_storage.commit.changes import Anchor, Prune
from veen_storage.commit.journal import Item, JournalBatch
from veen_storage.commit.journal_floor import FLOOR, read_floor
from veen_storage.disk.layout import Layout
from veen_storage.errors import DamageError, unreadable
from veen_storage.fsck.report import RESTORE, Fault, Report

_BESIDE: Final = re.compile(
    r"(?P<kind>peaks|checkpoint|anchor)-(?P<label>[0-9a-f]{64})-(?P<upto>[0-9]{20})\.cbor"
    r"|checkpoint-index-(?P<of>[0-9a-f]{64})\.cbor"
)
LAST: Final = 2**64 - 1
"""The highest stream_seq that there is (§4.8.1)."""


@dataclass(slots=True)
class LabelFiles:
    """The names of one label's files, by what their names say."""

    logs: dict[StreamSeq, StreamSeq] = field(default_factory=dict)
    """Sealed chunks: start to end."""
    pruned: dict[StreamSeq, StreamSeq] = field(default_factory=dict)
    summaries: set[tuple[StreamSeq, StreamSeq]] = field(default_factory=set)
    growing: set[StreamSeq] = field(default_factory=set)
    peaks: set[StreamSeq] = field(default_factory=set)
    checkpoints: set[StreamSeq] = field(default_factory=set)
    anchors: set[StreamSeq] = field(default_factory=set)
    index: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """One chunk file, to be read in its turn."""

    start: StreamSeq
    end: StreamSeq | None
    path: Path
    pruned: bool = False
    compressed: bool = False
    limit: int | None = None
    """Where it ends as far as the index knows; what follows is the journal's to write again."""


@dataclass(slots=True)
class LogFiles:
    """Everything in ``log/``."""

    labels: dict[Label, LabelFiles] = field(default_factory=dict)
    doubled: list[ChunkName] = field(default_factory=list)
    """Chunks that begin where another does."""

    def of(self, label: Label) -> LabelFiles:
        return self.labels.get(label) or LabelFiles()


def list_log(layout: Layout, report: Report) -> LogFiles:
    """Sort the names; what has no place in ``log/`` is reported."""
    found = LogFiles()
    strange = [name for name in sorted(os.listdir(layout.log)) if not _sort_name(found, name)]
    for name in (*strange, *_strays(found)):
        if name.endswith(".tmp"):
            report.notes.append(f"log/{name} is left from a write that was cut off: it may be removed")
        else:
            report.faults.append(
                Fault(file=name, what="has no place in log/", remedy="move it out of the data directory")
            )
    return found


def _sort_name(found: LogFiles, name: str) -> bool:
    chunk = parse_chunk_name(name) if name.isascii() else None
    if chunk is not None:
        return max(chunk.start, chunk.end or 0) <= LAST and _sort_chunk(found, chunk)
    match = _BESIDE.fullmatch(name)
    if match is None or int(match["upto"] or 0) > LAST:
        return False
    files = found.labels.setdefault(Label.from_hex(match["label"] or match["of"]), LabelFiles())
    if match["of"] is not None:
        files.index = True
    else:
        names = {"peaks": files.peaks, "checkpoint": files.checkpoints, "anchor": files.anchors}
        names[match["kind"]].add(StreamSeq(int(match["upto"])))
    return True


def _sort_chunk(found: LogFiles, chunk: ChunkName) -> bool:
    files = found.labels.setdefault(chunk.label, LabelFiles())
    if chunk.end is None:
        files.growing.add(chunk.start)
    elif chunk.kind == "summary":
        files.summaries.add((chunk.start, chunk.end))
    else:
        kept = files.logs if chunk.kind == "log" else files.pruned
        if (other := kept.get(chunk.start)) is not None:
            found.doubled.append(replace(chunk, end=other))
        kept[chunk.start] = chunk.end
    return True


def _strays(found: LogFiles) -> Iterator[str]:
    """Of chunks that begin alike and end differently, those without a summary, or all but the longest."""
    for chunk in found.doubled:
        files = found.labels[chunk.label]
        kept = files.logs if chunk.kind == "log" else files.pruned
        ends = sorted(e for e in (chunk.end, kept[chunk.start]) if e is not None)
        right = next((end for end in ends if (chunk.start, end) in files.summaries), ends[-1])
        kept[chunk.start] = right
        name = chunk_name if chunk.kind == "log" else pruned_name
        yield from (name(chunk.label, chunk.start, end) for end in ends if end != right)


def pieces_of(layout: Layout, label: Label, files: LabelFiles, *, zstd: bool) -> list[Piece]:
    """The chunk files to read, in order; of one that is there twice, the one that holds more."""
    found: dict[StreamSeq, Piece] = {}
    for start, end in files.pruned.items():
        found[start] = Piece(start, end, layout.pruned(label, start, end), pruned=True)
    for start in files.growing:
        found[start] = Piece(start, None, layout.chunk(label, start, None))
    for start, end in files.logs.items():
        found[start] = Piece(start, end, layout.chunk(label, start, end), compressed=zstd)
    return [found[start] for start in sorted(found)]


class FrameWalk:
    """Offset and size of every frame of a chunk, up to the first that is none: then ``damage`` says why."""

    def __init__(self, piece: Piece) -> None:
        self._piece = piece
        self.damage: DamageError | None = None
        self.count = 0
        self.size = 0
        """Where the last whole entry ends."""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        piece = self._piece
        try:
            with ChunkFile(piece.path, compressed=piece.compressed) as chunk:
                for offset, frame in chunk.walk(piece.limit):
                    self.count, self.size = self.count + 1, offset + len(frame)
                    yield offset, len(frame)
        except DamageError as exc:
            self.damage = exc
        except OSError as exc:
            self.damage = DamageError(piece.path.name, None, str(exc))


def walk_frames(piece: Piece) -> FrameWalk:
    """Walked to its end."""
    walk = FrameWalk(piece)
    for _ in walk:
        pass
    return walk


def read_held(
    path: Path,
    report: Report,
    *,
    remedy: str = RESTORE,
    label: Label | None = None,
    seq: StreamSeq | None = None,
) -> bytes | None:
    """A file's content; None if it is not there. One that the disk does not give is a fault, and empty."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as exc:
        what = unreadable(path.name, exc).what
        report.faults.append(Fault(file=path.name, what=what, label=label, seq=seq, remedy=remedy))
        return b""


# --- the journal


class Journaled(NamedTuple):
    """One item of the journal, and where it stands."""

    batch: int
    order: int
    """Position among all items of the journal: items of one batch are applied in this order."""
    file: str
    offset: int
    data: bytes


@dataclass(slots=True)
class LabelJournal:
    """What the journal holds of one label."""

    entries: dict[StreamSeq, Journaled] = field(default_factory=dict)
    checkpoints: dict[StreamSeq, Journaled] = field(default_factory=dict)
    anchors: dict[StreamSeq, list[Journaled]] = field(default_factory=dict)
    prunes: dict[StreamSeq, list[Journaled]] = field(default_factory=dict)
    """Decisions by the chunk's first entry, oldest first: one may be journaled again before it is applied."""
    hashes: dict[StreamSeq, EntryHash] = field(default_factory=dict)
    """Of the entries."""


@dataclass(slots=True)
class JournalFiles:
    """Every durable batch that is still there, by label."""

    labels: dict[Label, LabelJournal] = field(default_factory=dict)
    first: int | None = None
    last: int | None = None
    damaged: bool = False
    size: int = 0
    items: int = 0

    def of(self, label: Label) -> LabelJournal:
        return self.labels.get(label) or LabelJournal()


def _check_floor(layout: Layout, report: Report) -> None:
    try:
        journal.check_newest(layout.journal, read_floor(layout.journal))
    except DamageError as exc:
        report.faults.append(Fault(file=exc.file, what=exc.what, remedy=exc.action))


def floor_of(layout: Layout) -> int:
    """What the index must have applied, as far as that can be read."""
    try:
        return read_floor(layout.journal).applied
    except DamageError:
        return 0


def newest_segment(layout: Layout) -> Path | None:
    """The one that must hold everything since it began, if it is there."""
    try:
        path = journal.segment_path(layout.journal, read_floor(layout.journal).segment)
    except DamageError:
        return None
    return path if path.exists() else None


def read_journal(layout: Layout, report: Report, applied: int = 0) -> JournalFiles:
    """Read every segment; damage is reported, and the next segment read all the same.

    Of batches up to ``applied`` some may be gone: removals reach the disk in any order.
    """
    held, applied = JournalFiles(), max(applied, floor_of(layout))
    _check_floor(layout, report)
    for name in sorted(os.listdir(layout.journal)):
        if name == FLOOR:
            continue
        if name == f"{FLOOR}.tmp":
            report.notes.append(f"journal/{name} is left from a write that was cut off: it may be removed")
            continue
        if not re.fullmatch(r"journal-\d{20}\.wal", name):
            what = "has no place in journal/"
            report.faults.append(Fault(file=name, what=what, remedy="move it out of the data directory"))
    segments = journal.list_segments(layout.journal)
    for path in segments:
        for offset, batch in _batches(path, held, report, last=path == segments[-1]):
            _check_number(path, offset, batch, held, report, applied=applied)
            for item in batch.items:
                held.items += 1
                _keep(held, report, Journaled(batch.number, held.items, path.name, offset, item.data), item)
    return held


def _batches(
    path: Path, held: JournalFiles, report: Report, *, last: bool
) -> Iterator[tuple[int, JournalBatch]]:
    end = 0
    size = path.stat().st_size
    held.size += size
    try:
        for offset, batch in journal.read_segment(path, last=last):
            yield offset, batch
            end = offset + batch.size
    except DamageError as exc:
        held.damaged = True
        report.faults.append(Fault(file=path.name, offset=exc.offset, what=exc.what))
        report.notes.append(f"{path.name}: nothing after byte {exc.offset or 0} was checked")
        return
    if end < size:
        report.notes.append(
            f"{path.name} ends in a batch that never fully reached the disk, from byte {end} on: "
            "nobody has a receipt for it, opening drops it"
        )


def _check_number(
    path: Path, offset: int, batch: JournalBatch, held: JournalFiles, report: Report, *, applied: int
) -> None:
    if held.last is None:
        held.first = batch.number
        if batch.number != journal.first_batch(path):
            report.faults.append(
                Fault(file=path.name, offset=offset, what=f"begins with batch {batch.number}")
            )
    elif not held.last < batch.number <= max(held.last, applied) + 1 and not held.damaged:
        held.damaged = True
        what = f"batch {batch.number} follows batch {held.last}"
        report.faults.append(Fault(file=path.name, offset=offset, what=what))
    held.last = batch.number


def _keep(held: JournalFiles, report: Report, where: Journaled, item: Item) -> None:
    try:
        match item.kind:
            case journal.ENTRY:
                header = decode_frame(item.data)
                label = _label(held, header.label)
                label.entries[header.stream_seq] = where
                label.hashes[header.stream_seq] = header.entry_hash
            case journal.CHECKPOINT:
                checkpoint = Checkpoint.decode(item.data)
                _label(held, checkpoint.label_curr).checkpoints[checkpoint.upto_seq] = where
            case journal.ANCHOR:
                anchor = Anchor.decode(item.data)
                _label(held, anchor.label).anchors.setdefault(anchor.upto_seq, []).append(where)
            case journal.PRUNE:
                decision = Prune.decode(item.data)
                _label(held, decision.label).prunes.setdefault(decision.start_seq, []).append(where)
            case unknown:
                raise DamageError(where.file, where.offset, f"holds an item of unknown kind {unknown}")
    except VeenError as exc:
        held.damaged = True
        what = exc.what if isinstance(exc, DamageError) else str(exc)
        report.faults.append(Fault(file=where.file, offset=where.offset, what=what))


def _label(held: JournalFiles, label: Label) -> LabelJournal:
    if (known := held.labels.get(label)) is None:
        known = held.labels[label] = LabelJournal()
    return known


# --- how far the journal is applied, where no index says so


def applied_by_files(layout: Layout, log: LogFiles, held: JournalFiles, *, zstd: bool) -> int:
    """The last batch of which every effect is in ``log/``.

    The index commits only what is there already, and chunks get their final names only after that:
    so this is at or after the batch that the lost index had applied. A pruning does not tell: that of a chunk
    which was found damaged is never carried out, and one that is forgotten will be decided again.
    """
    if held.first is None or held.last is None:
        return 0
    applied = held.last
    for label, pending in held.labels.items():
        files = log.of(label)
        last = _last_entry(layout, label, files, zstd=zstd)
        missing = [item.batch for seq, item in pending.entries.items() if seq > last]
        missing += [item.batch for upto, item in pending.checkpoints.items() if upto not in files.checkpoints]
        for upto, items in pending.anchors.items():
            missing += _unapplied_anchors(layout.anchor(label, upto), items)
        applied = min([applied, *(batch - 1 for batch in missing)])
    return max(applied, _finished(log, held))


def _finished(log: LogFiles, held: JournalFiles) -> int:
    """The last batch that the lost index had applied for certain: only then do chunks get their names, or go.

    What is missing of it all the same does not wait to be written: it is lost, and the fold says so.
    """
    finished = 0
    for label, pending in held.labels.items():
        files = log.of(label)
        sealed = [pending.entries.get(StreamSeq(end + 1)) for end in files.logs.values()]
        there = files.logs.keys() | files.growing
        gone = [items[0] for start, items in pending.prunes.items() if start in files.pruned.keys() - there]
        finished = max([finished, *(item.batch for item in (*sealed, *gone) if item is not None)])
    return finished


def _last_entry(layout: Layout, label: Label, files: LabelFiles, *, zstd: bool) -> int:
    """The last of the entries that follow each other without a gap."""
    last = 0
    for piece in pieces_of(layout, label, files, zstd=zstd):
        if piece.start != last + 1:
            break
        last = piece.end if piece.end is not None else last + walk_frames(piece).count
    return last


def _unapplied_anchors(path: Path, items: list[Journaled]) -> list[int]:
    try:
        written = path.read_bytes()
    except OSError:
        written = b""  # missing, or a fault of its own (``read_held``)
    at = next((i for i, item in reversed(list(enumerate(items))) if item.data == written), -1)
    return [item.batch for item in items[at + 1 :]]
