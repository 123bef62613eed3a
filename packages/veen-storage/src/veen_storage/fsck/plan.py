"""The plan of a check: a label's chunk files as a run of events, with the spans that workers verify.

A chunk that grows is walked only as far as the index has applied it. What follows are bytes of an
interrupted write: they must be part of what the journal holds, and the next start writes them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from veen_core.ids import NO_ENTRIES, Label, StreamSeq
from veen_storage.disk.layout import Layout
from veen_storage.errors import DamageError, unreadable
from veen_storage.fsck.entries import EntryRun
from veen_storage.fsck.files.derived_files import check_tail
from veen_storage.fsck.files.log_files import (
    MAX_SEQ,
    ChunkRef,
    FrameWalk,
    LabelFiles,
    chunks_of,
    count_frames,
)
from veen_storage.fsck.journal_items import JournalItem
from veen_storage.fsck.workers import BUNDLE_FRAMES

MAX_SPAN_BYTES: Final = 2 * 1_048_576


@dataclass(frozen=True, slots=True)
class LabelBegins:
    """The chunks of this label follow."""

    label: Label


@dataclass(frozen=True, slots=True)
class LabelEnds:
    """All chunks of the label were walked."""


@dataclass(frozen=True, slots=True)
class ChunkBegins:
    """The spans of this chunk follow. A chunk without applied entries has only its ``ChunkEnds``."""

    chunk: ChunkRef


@dataclass(frozen=True, slots=True)
class ChunkEnds:
    """A chunk was walked to its end, or to damage."""

    chunk: ChunkRef
    damage: DamageError | None
    size: int
    """Offset at which the last intact entry ends."""
    surplus: int
    """Bytes after that which the journal holds."""


Event = LabelBegins | LabelEnds | ChunkBegins | ChunkEnds


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanPlanner:
    """Plans one label at a time."""

    layout: Layout
    zstd: bool
    recent: int | None
    """How many of the last entries of each label have their signatures verified, next to the last entry of
    each sealed chunk; None for all entries, 0 for none."""
    surplus_remedy: str

    def plan(
        self, label: Label, files: LabelFiles, pending: Mapping[StreamSeq, JournalItem]
    ) -> Iterator[Event | EntryRun]:
        """Yield the events of a label. ``pending`` are its entries that the index has not applied."""
        yield LabelBegins(label)
        first_pending = min(pending, default=MAX_SEQ)
        chunks = chunks_of(self.layout, label, files, zstd=self.zstd)
        stops = {chunk.start: first_pending if chunk.end is None else MAX_SEQ for chunk in chunks}
        applied = [chunk for chunk in chunks if chunk.start < stops[chunk.start]]
        for chunk in chunks:
            stop = stops[chunk.start]
            walk = FrameWalk(chunk, stop)
            if chunk.start < stop:
                yield ChunkBegins(chunk)
                yield from self._spans(label, chunk, walk, stop, last=chunk is applied[-1])
            damage, surplus = walk.damage, 0
            if damage is None and stop < MAX_SEQ:
                damage, surplus = self._check_surplus(chunk, walk, pending)
            yield ChunkEnds(chunk, damage, walk.size, surplus)
        yield LabelEnds()

    def _spans(
        self, label: Label, chunk: ChunkRef, walk: FrameWalk, stop: StreamSeq, *, last: bool
    ) -> Iterator[EntryRun]:
        """Yield spans while the chunk is walked, so that workers verify the first during the walk."""
        sigs_from = self._sigs_from(chunk, stop, last=last)
        if chunk.pruned:
            yield EntryRun(path=chunk.path, label=label, frames=(), pruned=True, sigs_from=sigs_from)
            return
        for run in _runs(walk):
            yield EntryRun(
                path=chunk.path, label=label, frames=run, compressed=chunk.compressed, sigs_from=sigs_from
            )

    def _sigs_from(self, chunk: ChunkRef, stop: StreamSeq, *, last: bool) -> StreamSeq:
        if self.recent is None:
            return NO_ENTRIES
        if not last:  # roots do not show which hub signed a chunk; its last entry does
            return chunk.end if chunk.end is not None and self.recent else MAX_SEQ
        end = chunk.end if chunk.end is not None else chunk.start + count_frames(chunk, stop) - 1
        return StreamSeq(max(0, end + 1 - self.recent))

    def _check_surplus(
        self, chunk: ChunkRef, walk: FrameWalk, pending: Mapping[StreamSeq, JournalItem]
    ) -> tuple[DamageError | None, int]:
        """Compare the bytes after the applied entries with what the journal will write there."""
        try:
            with chunk.path.open("rb") as file:
                file.seek(walk.size)
                there = file.read()
        except OSError as exc:
            return unreadable(chunk.path.name, exc), 0
        waiting, size, seq = list[bytes](), 0, chunk.start + walk.count
        while size < len(there) and (item := pending.get(StreamSeq(seq))) is not None:
            waiting.append(item.data)
            size, seq = size + len(item.data), seq + 1
        if (at := check_tail(there, b"".join(waiting), walk.size)) is None:
            return None, len(there)
        what = "contains bytes that are in neither index nor journal"
        return DamageError(chunk.path.name, at, what, self.surplus_remedy), 0


def _runs(frames: Iterable[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Group frames into spans."""
    run: list[tuple[int, int]] = []
    size = 0
    for frame in frames:
        run.append(frame)
        size += frame[1]
        if len(run) >= BUNDLE_FRAMES or size >= MAX_SPAN_BYTES:
            yield tuple(run)
            run, size = [], 0
    if run:
        yield tuple(run)
