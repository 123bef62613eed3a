"""The plan of a check: a label's chunk files as runs of entries, which workers verify.

A chunk that grows is walked only as far as the index has applied it. What follows are bytes of an
interrupted write: they must be part of what the journal holds, and the next start writes them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Final

from veen_core.ids import Label, StreamSeq
from veen_storage.commit import journal
from veen_storage.fsck.context import FoldContext
from veen_storage.fsck.entries import ChunkEnd, EntryRun
from veen_storage.fsck.files.log_files import MAX_SEQ, ChunkRef, chunks_of, walk_frames
from veen_storage.fsck.files.surplus_bytes import foreign_byte
from veen_storage.fsck.journal_items import JournalItem
from veen_storage.fsck.workers import JOB_WEIGHT

MAX_RUN_BYTES: Final = 2 * 1_048_576


def pending_entries(context: FoldContext, label: Label) -> dict[StreamSeq, JournalItem]:
    """Return the entries of a label that the index has not applied."""
    items = context.journal.of(label, journal.ENTRY)
    return {item.seq: item for item in items if context.is_pending(item)}


def runs_of(
    context: FoldContext, label: Label, *, recent: int | None, surplus_remedy: str
) -> Iterator[EntryRun]:
    """Yield the runs of a label's chunks in order; the last run of a chunk says how the chunk ends.

    ``recent``: how many of the label's last entries have their signatures verified, next to the last entry of
    each other chunk; None for all entries, 0 for none.
    """
    pending = pending_entries(context, label)
    first_pending = min(pending, default=MAX_SEQ)
    chunks = chunks_of(context.layout, label, context.log.of(label), zstd=context.zstd)
    stops = [MAX_SEQ if chunk.end is not None else first_pending for chunk in chunks]
    newest = max((at for at, chunk in enumerate(chunks) if chunk.start < stops[at]), default=-1)
    for at, (chunk, stop) in enumerate(zip(chunks, stops, strict=True)):
        frames, damage = walk_frames(chunk, stop)
        size = sum(frames[-1]) if frames else 0
        if damage is None and stop < MAX_SEQ:
            waiting = (pending.get(StreamSeq(seq)) for seq in count(chunk.start + len(frames)))
            _check_surplus(context, chunk, size, waiting, surplus_remedy)
        if chunk.start < stop:
            last = chunk.end or chunk.start + len(frames) - 1
            verified = last + 1 if recent is None else recent if at == newest else min(recent, 1)
            run = EntryRun(chunk=chunk, sigs_from=StreamSeq(max(0, last + 1 - verified)))
            *others, end = _cut(frames) or [()]
            yield from (replace(run, frames=part) for part in others)
            yield replace(run, frames=end, ends=ChunkEnd(damage, size))


def _cut(frames: list[tuple[int, int]]) -> list[tuple[tuple[int, int], ...]]:
    """Cut the frames of a chunk into runs of bounded number and size."""
    runs, begin, size = [], 0, 0
    for at, (_offset, length) in enumerate(frames, 1):
        size += length
        if at - begin >= JOB_WEIGHT or size >= MAX_RUN_BYTES or at == len(frames):
            runs.append(tuple(frames[begin:at]))
            begin, size = at, 0
    return runs


def _check_surplus(
    context: FoldContext, chunk: ChunkRef, size: int, pending: Iterator[JournalItem | None], remedy: str
) -> None:
    """Compare the bytes after the applied entries with what the journal will write there."""
    try:
        there = chunk.path.read_bytes()[size:]
    except OSError as exc:
        context.report.faults.append(chunk.fault(exc))
        context.damaged.add(chunk.label)
        return
    waiting = bytearray()
    while len(waiting) < len(there) and (item := next(pending)) is not None:
        waiting += item.data
    file = chunk.path.name
    if (at := foreign_byte(there, bytes(waiting), size)) is not None:
        what = "contains bytes that are in neither index nor journal"
        context.damage(chunk.label, file, what, remedy, offset=at)
    elif there:
        context.report.notes.append(
            f"{file} ends in part of an interrupted write, from byte {size} on: "
            "the next start writes it again from the journal"
        )
