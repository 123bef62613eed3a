"""The journal as fsck reads it: every item of every durable batch, and how far the log has applied them."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
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
from veen_storage.commit.journal_floor import FLOOR, Floor, read_floor
from veen_storage.disk.layout import Layout
from veen_storage.errors import REPAIRABLE, RESTORE, DamageError
from veen_storage.fsck.files.log_files import MAX_SEQ, ChunkRef, LogFiles, chunks_of, walk_frames
from veen_storage.fsck.report import MOVE_AWAY, Report


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
    """An extension of the hub log."""

    batch: int
    extension: HubExtension
    signed: SignedHead
    size_before: int
    """Number of entries of the hub log before the extension."""


@dataclass(slots=True)
class JournalItems:
    """The batches of the journal in order, with file and offset; and their items by what they are about."""

    batches: list[tuple[str, int, JournalBatch]] = field(default_factory=list)
    labels: dict[Label, list[JournalItem]] = field(default_factory=dict)
    hub_log: list[HubItem] = field(default_factory=list)
    last: int | None = None
    """Number of the last batch."""
    damaged: bool = False
    """Whether damage kept later batches from being read, or the next start from applying them."""
    size: int = 0

    def of(self, label: Label, kind: int) -> list[JournalItem]:
        return [item for item in self.labels.get(label, ()) if item.kind == kind]


def read_journal(layout: Layout, report: Report, applied: int | None = None) -> JournalItems:
    """Read every durable batch, up to the first damage, which is reported.

    ``applied``: the last batch that the index includes; None if no index says so.
    """
    found, floor = JournalItems(), floor_of(layout)
    try:
        journal.check_newest(layout.journal, read_floor(layout.journal))
    except DamageError as exc:
        report.fault_of(exc, exc.file, exc.action)
    _report_unknown_names(layout, report)
    found.size = sum(path.stat().st_size for path in journal.list_segments(layout.journal))
    try:
        for path, offset, batch in journal.scan(layout.journal, applied, floor, report.notes.append):
            if not offset and batch.number != (named := journal.first_batch(path)):
                what = f"begins with batch {batch.number}, but its name says {named}"
                raise DamageError(path.name, offset, what)
            found.last = batch.number
            for item in batch.items:
                _add_item(found, item, (batch.number, path.name, offset))
            found.batches.append((path.name, offset, batch))
    except DamageError as exc:
        # A segment that ends too early was read to its end, and repair continues without its batches.
        found.damaged = exc.action not in REPAIRABLE
        report.fault_of(exc, exc.file, RESTORE if found.damaged else exc.action)
        if found.damaged:
            report.notes.append("the rest of the journal was not checked")
    return found


def _add_item(found: JournalItems, item: Item, place: tuple[int, str, int]) -> None:
    try:
        if item.kind == journal.HUB_CHECKPOINT:
            extension = HubExtension.decode(item.data)
            signed = parse_signed_head(extension.checkpoint)
            before = signed.head.size - len(decode_bundle(extension.entries))
            found.hub_log.append(HubItem(place[0], extension, signed, before))
            return
        label, seq = _address(item.kind, item.data)
    except VeenError as exc:
        _batch, file, offset = place
        raise DamageError(file, offset, str(exc)) from exc
    read = JournalItem(*place, item.kind, item.data, label, seq)
    found.labels.setdefault(label, []).append(read)


def _report_unknown_names(layout: Layout, report: Report) -> None:
    for name in sorted(os.listdir(layout.journal)):
        if name == f"{FLOOR}.tmp":
            report.note_leftover(f"journal/{name}", "write")
        elif name != FLOOR and not re.fullmatch(r"journal-\d{20}\.wal", name):
            report.fault(name, "is not a journal file", MOVE_AWAY)


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


# --- how far the journal is applied


def floor_of(layout: Layout) -> Floor:
    """Return the journal's floor; an empty one if that file is damaged, which ``read_journal`` reports."""
    try:
        return read_floor(layout.journal)
    except DamageError:
        return journal.NO_FLOOR


def applied_by_files(layout: Layout, log: LogFiles, items: JournalItems, *, zstd: bool) -> int:
    """Return the last batch whose effects are all in ``log/`` and ``hublog/``.

    This is the batch that the lost index had applied, or a later one: files are written before the index
    commits. Prunes do not count, because a prune is never carried out if its chunk is damaged. It is at least
    the floor: the journal was trimmed up to it, and opening refuses an older index.
    """
    certain = floor_of(layout).applied
    if items.last is None:
        return certain
    missing = [items.last + 1, *_unapplied_extensions(layout, items)]
    for label in items.labels:
        files = log.of(label)
        last = _last_entry(chunks_of(layout, label, files, zstd=zstd))
        entries = items.of(label, journal.ENTRY)
        missing += [item.batch for item in entries if item.seq > last]
        checkpoints = items.of(label, journal.CHECKPOINT)
        missing += [item.batch for item in checkpoints if item.seq not in files.checkpoints]
        missing += _unapplied_anchors(layout, items.of(label, journal.ANCHOR))
        # A chunk gets its final name, or is removed, only after the index has committed. Other files of
        # such a batch that are missing are lost.
        starts = {end + 1 for end in files.logs.values()}
        removed = files.pruned.keys() - files.logs.keys() - files.growing
        prunes = {
            item.seq: item.batch for item in reversed(items.of(label, journal.PRUNE))
        }  # the first counts
        proofs = [item.batch for item in entries if item.seq in starts]
        proofs += [prunes[start] for start in prunes.keys() & removed]
        certain = max([certain, *proofs])
    return max(min(missing) - 1, certain)


def _last_entry(chunks: list[ChunkRef]) -> int:
    """Return the last entry that the chunks reach without a gap."""
    last = 0
    for chunk in chunks:
        if chunk.start != last + 1:
            break
        last = chunk.end or last + len(walk_frames(chunk, MAX_SEQ)[0])
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
    batches = dict[StreamSeq, list[int]]()
    for item in items:
        waiting = batches.setdefault(item.seq, [])
        waiting.append(item.batch)
        with suppress(OSError):
            if layout.anchor(item.label, item.seq).read_bytes() == item.data:
                waiting.clear()
    return list(chain.from_iterable(batches.values()))
