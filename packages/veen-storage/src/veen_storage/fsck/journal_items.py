"""The journal as fsck reads it: every item of every durable batch, and how far the log has applied them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from veen_core.checkpoint import Checkpoint
from veen_core.entry import decode_frame
from veen_core.errors import VeenError
from veen_core.ids import Label, StreamSeq
from veen_core.tlog.tiles import decode_bundle
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_storage.commit import journal
from veen_storage.commit.changes import Anchor, HubExtension, Prune
from veen_storage.commit.journal import Item, JournalBatch
from veen_storage.commit.journal_floor import FLOOR, read_floor
from veen_storage.disk.layout import Layout
from veen_storage.errors import DamageError
from veen_storage.fsck.files.log_files import LabelFiles, LogFiles, chunks_of, count_frames
from veen_storage.fsck.report import MOVE_AWAY, Fault, Report


class JournalItem(NamedTuple):
    """One item of a batch, with its place in the journal."""

    batch: int
    file: str
    offset: int
    """Offset of the batch in its segment."""
    kind: int
    data: bytes
    label: Label
    seq: StreamSeq
    """stream_seq of an entry, upto_seq of a checkpoint or anchor, start_seq of a prune."""


class HubItem(NamedTuple):
    """An extension of the hub log, with its place in the journal."""

    batch: int
    file: str
    offset: int
    """Offset of the batch in its segment."""
    extension: HubExtension
    signed: SignedHead
    size_before: int
    """Number of entries of the hub log before the extension."""


@dataclass(slots=True)
class JournalItems:
    """Every item of the journal, in the order in which opening applies them."""

    items: list[JournalItem | HubItem] = field(default_factory=list)
    labels: dict[Label, list[JournalItem]] = field(default_factory=dict)
    hub_log: list[HubItem] = field(default_factory=list)
    first: int | None = None
    last: int | None = None
    """Numbers of the first and the last batch."""
    damaged: bool = False
    size: int = 0

    def of(self, label: Label, kind: int) -> list[JournalItem]:
        return [item for item in self.labels.get(label, ()) if item.kind == kind]


def lowest_applied(layout: Layout) -> int:
    """Return the batch that every index of this directory has applied; 0 if that file cannot be read."""
    try:
        return read_floor(layout.journal).applied
    except DamageError:
        return 0


def newest_segment(layout: Layout) -> Path | None:
    """Return the segment that must hold every later batch, if it exists."""
    try:
        path = journal.segment_path(layout.journal, read_floor(layout.journal).segment)
    except DamageError:
        return None
    return path if path.exists() else None


def read_journal(layout: Layout, report: Report, applied: int = 0) -> JournalItems:
    """Read every segment. Damage is reported, and reading continues with the next segment.

    Batches up to ``applied`` may be missing: segments are removed in no particular order.
    """
    found, applied = JournalItems(), max(applied, lowest_applied(layout))
    try:
        journal.check_newest(layout.journal, read_floor(layout.journal))
    except DamageError as exc:
        report.faults.append(Fault(file=exc.file, what=exc.what, remedy=exc.action))
    _report_unknown_names(layout, report)
    segments = journal.list_segments(layout.journal)
    for path in segments:
        for offset, batch in _read_batches(path, found, report, last=path == segments[-1]):
            _check_number(path, offset, batch, found, report, applied=applied)
            for item in batch.items:
                try:
                    _add_item(found, item, (batch.number, path.name, offset))
                except VeenError as exc:
                    found.damaged = True
                    report.faults.append(Fault(file=path.name, offset=offset, what=str(exc)))
    return found


def _add_item(found: JournalItems, item: Item, place: tuple[int, str, int]) -> None:
    if item.kind == journal.HUB_CHECKPOINT:
        extension = HubExtension.decode(item.data)
        signed = parse_signed_head(extension.checkpoint)
        before = signed.head.size - len(decode_bundle(extension.entries))
        extended = HubItem(*place, extension, signed, before)
        found.items.append(extended)
        found.hub_log.append(extended)
        return
    label, seq = _address(item.kind, item.data)
    read = JournalItem(*place, item.kind, item.data, label, seq)
    found.items.append(read)
    found.labels.setdefault(label, []).append(read)


def _report_unknown_names(layout: Layout, report: Report) -> None:
    for name in sorted(os.listdir(layout.journal)):
        if name == f"{FLOOR}.tmp":
            report.notes.append(f"journal/{name} is left over from an interrupted write and may be removed")
        elif name != FLOOR and not re.fullmatch(r"journal-\d{20}\.wal", name):
            report.faults.append(Fault(file=name, what="is not a journal file", remedy=MOVE_AWAY))


def _read_batches(
    path: Path, found: JournalItems, report: Report, *, last: bool
) -> Iterator[tuple[int, JournalBatch]]:
    end, size = 0, path.stat().st_size
    found.size += size
    try:
        for offset, batch in journal.read_segment(path, last=last):
            yield offset, batch
            end = offset + batch.size
    except DamageError as exc:
        found.damaged = True
        report.faults.append(Fault(file=path.name, offset=exc.offset, what=exc.what))
        report.notes.append(f"{path.name}: nothing after byte {exc.offset or 0} was checked")
        return
    if end < size:
        report.notes.append(
            f"{path.name} ends in a batch that was only partly written, from byte {end} on: "
            "no receipt was issued for it, and the next start drops it"
        )


def _check_number(
    path: Path, offset: int, batch: JournalBatch, found: JournalItems, report: Report, *, applied: int
) -> None:
    if found.last is None:
        found.first = batch.number
        if batch.number != journal.first_batch(path):
            what = f"begins with batch {batch.number}, but its name says {journal.first_batch(path)}"
            report.faults.append(Fault(file=path.name, offset=offset, what=what))
    elif not found.last < batch.number <= max(found.last, applied) + 1 and not found.damaged:
        found.damaged = True
        what = f"batch {batch.number} comes directly after batch {found.last}"
        report.faults.append(Fault(file=path.name, offset=offset, what=what))
    found.last = batch.number


def _address(kind: int, data: bytes) -> tuple[Label, StreamSeq]:
    """Return which label and entry an item is about."""
    match kind:
        case journal.ENTRY:
            header = decode_frame(data)
            return header.label, header.stream_seq
        case journal.CHECKPOINT:
            checkpoint = Checkpoint.decode(data)
            return checkpoint.label_curr, checkpoint.upto_seq
        case journal.ANCHOR:
            anchor = Anchor.decode(data)
            return anchor.label, anchor.upto_seq
        case journal.PRUNE:
            decision = Prune.decode(data)
            return decision.label, decision.start_seq
    raise VeenError(f"contains an item of unknown kind {kind}")


# --- how far the journal is applied, if the index is lost


def applied_by_files(layout: Layout, log: LogFiles, items: JournalItems, *, zstd: bool) -> int:
    """Return the last batch whose effects are all in ``log/`` and ``hublog/``.

    This is the batch that the lost index had applied, or a later one: files are written before the index
    commits. Prunes do not count, because a prune is never carried out if its chunk is damaged.
    """
    if items.first is None or items.last is None:
        return 0
    applied = items.last
    for label in items.labels:
        files = log.of(label)
        last = _last_entry(layout, label, files, zstd=zstd)
        missing = [item.batch for item in items.of(label, journal.ENTRY) if item.seq > last]
        checkpoints = items.of(label, journal.CHECKPOINT)
        missing += [item.batch for item in checkpoints if item.seq not in files.checkpoints]
        missing += _unapplied_anchors(layout, items.of(label, journal.ANCHOR))
        applied = min([applied, *(batch - 1 for batch in missing)])
    applied = min([applied, *(batch - 1 for batch in _unapplied_extensions(layout, items))])
    return max(applied, _certainly_applied(log, items))


def _certainly_applied(log: LogFiles, items: JournalItems) -> int:
    """Return the last batch that the lost index must have applied.

    A chunk gets its final name, or is removed, only after the index has committed. Other files of such a
    batch that are missing are lost.
    """
    certain = 0
    for label in items.labels:
        files = log.of(label)
        starts = {end + 1 for end in files.logs.values()}
        certain = max([certain, *(i.batch for i in items.of(label, journal.ENTRY) if i.seq in starts)])
        removed = files.pruned.keys() - files.logs.keys() - files.growing
        first: dict[StreamSeq, int] = {}
        for item in items.of(label, journal.PRUNE):
            first.setdefault(item.seq, item.batch)  # the first decision is carried out, a repetition is not
        certain = max([certain, *(first[start] for start in first.keys() & removed)])
    return certain


def _last_entry(layout: Layout, label: Label, files: LabelFiles, *, zstd: bool) -> int:
    """Return the last entry that the chunks reach without a gap."""
    last = 0
    for chunk in chunks_of(layout, label, files, zstd=zstd):
        if chunk.start != last + 1:
            break
        last = chunk.end if chunk.end is not None else last + count_frames(chunk)
    return last


def _unapplied_extensions(layout: Layout, items: JournalItems) -> list[int]:
    """Return the batches whose hub checkpoints are newer than the one in the file."""
    try:
        written = parse_signed_head(layout.hub_log_checkpoint.read_bytes()).head.size
    except (OSError, VeenError):
        written = 0
    return [item.batch for item in items.hub_log if item.signed.head.size > written]


def _unapplied_anchors(layout: Layout, items: list[JournalItem]) -> list[int]:
    """Return the batches whose anchors are newer than those in the files."""
    batches: list[int] = []
    for upto in {item.seq for item in items}:
        same = [item for item in items if item.seq == upto]
        try:
            written = layout.anchor(same[0].label, upto).read_bytes()
        except OSError:
            written = b""
        done = next((at for at in reversed(range(len(same))) if same[at].data == written), -1)
        batches += [item.batch for item in same[done + 1 :]]
    return batches
