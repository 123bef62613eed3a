"""How the log is cut into work, and how the work is shared among processes: in order, in bounded memory.

The plan of a label is a run of events: its chunk files begin and end, and between that come ``Span``s, which
workers verify. Whoever folds gets the events back in the same order, each span with what it came to.
"""

from __future__ import annotations

import dataclasses
import gc
import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, TypeVar

from veen_core.ids import NO_ENTRIES, Label, StreamSeq
from veen_storage.commit.journal import foreign_at
from veen_storage.disk.layout import Layout
from veen_storage.errors import DamageError
from veen_storage.fsck.entries import NEVER, Checked, Span, Trust, check_span
from veen_storage.fsck.files import (
    FrameWalk,
    Journaled,
    LabelFiles,
    LabelJournal,
    Piece,
    pieces_of,
    walk_frames,
)
from veen_storage.fsck.index import Recorded, context

SPAN_FRAMES: Final = 512
SPAN_BYTES: Final = 2 * 1_048_576
AHEAD: Final = 3
"""Bundles of work in flight for each process."""
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class LabelBegins:
    """Its files follow."""

    label: Label


@dataclass(frozen=True, slots=True)
class LabelEnds:
    """All of its files were there."""

    label: Label


@dataclass(frozen=True, slots=True)
class PieceBegins:
    """A chunk file, or entries that only the journal holds."""

    piece: Piece | None


@dataclass(frozen=True, slots=True)
class PieceEnds:
    """A chunk file was walked to its end, or to damage."""

    damage: DamageError | None
    size: int
    """Where the last whole entry ends."""


Event = LabelBegins | LabelEnds | PieceBegins | PieceEnds | Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Plans one label at a time."""

    layout: Layout
    zstd: bool
    applied: int
    recent: int | None
    """Of how many last entries of each label signatures are verified, and of each chunk's last one; None
    for all, 0 for none."""
    heads: Mapping[Label, Recorded] | None = None
    """Where the index says that labels stand, if it says anything."""

    def plan(self, label: Label, files: LabelFiles, journal: LabelJournal) -> Iterator[Event]:
        yield LabelBegins(label)
        ahead = {seq: item for seq, item in journal.entries.items() if item.batch > self.applied}
        found = (
            self._cut_back(label, p, ahead) for p in pieces_of(self.layout, label, files, zstd=self.zstd)
        )
        pieces = [piece for piece in found if piece.limit != 0]
        expected = 1
        for at, piece in enumerate(pieces):
            yield from self._journaled(label, ahead, expected, piece.start)
            walk = FrameWalk(piece)
            yield PieceBegins(piece)
            yield from self._spans(label, piece, walk, last=at == len(pieces) - 1)
            yield PieceEnds(walk.damage, walk.size)
            expected = piece.end + 1 if piece.end is not None else piece.start + walk.count
        yield from self._journaled(label, ahead, expected, None)
        yield LabelEnds(label)

    def _cut_back(self, label: Label, piece: Piece, ahead: dict[StreamSeq, Journaled]) -> Piece:
        """A growing chunk as opening would leave it before the journal is applied: as the index knows it.

        Unless what follows is no part of what the journal holds: then it is to be judged with the rest.
        """
        if self.heads is None or piece.end is not None or piece.pruned:
            return piece
        head = self.heads.get(label, Recorded())
        if piece.start < head.chunk_start:
            return piece
        limit, seq = (
            (head.chunk_bytes, head.size + 1) if piece.start == head.chunk_start else (0, piece.start)
        )
        try:
            with piece.path.open("rb") as file:
                file.seek(limit)
                there = file.read()
        except OSError:
            return piece  # walking it says so
        waiting, size = list[bytes](), 0
        while size < len(there) and (item := ahead.get(StreamSeq(seq))) is not None:
            waiting.append(item.data)
            size, seq = size + len(item.data), seq + 1
        ours = size >= len(there) and foreign_at(there, b"".join(waiting), limit) is None
        return dataclasses.replace(piece, limit=limit) if ours and there else piece

    def _spans(self, label: Label, piece: Piece, walk: FrameWalk, *, last: bool) -> Iterator[Span]:
        """While a chunk is walked, what was walked of it is being verified."""
        sigs_from = self._sigs_from(piece, last=last)
        if piece.pruned:
            yield Span(path=piece.path, label=label, frames=(), pruned=True, sigs_from=sigs_from)
            return
        for run in _runs(walk):
            yield Span(
                path=piece.path, label=label, frames=run, compressed=piece.compressed, sigs_from=sigs_from
            )

    def _sigs_from(self, piece: Piece, *, last: bool) -> StreamSeq:
        if self.recent is None:
            return NO_ENTRIES
        if not last:  # of a chunk that ended its last entry: roots do not tell whose it is (``origin``)
            return piece.end if piece.end is not None and self.recent else NEVER
        end = piece.end if piece.end is not None else piece.start + walk_frames(piece).count - 1
        return StreamSeq(max(0, end + 1 - self.recent))

    def _journaled(
        self, label: Label, ahead: dict[StreamSeq, Journaled], start: int, end: int | None
    ) -> Iterator[Event]:
        """Entries that no chunk holds yet, from ``start`` on and before ``end``."""
        run: list[Journaled] = []
        while (end is None or start < end) and StreamSeq(start) in ahead:
            run.append(ahead[StreamSeq(start)])
            start += 1
        if run:
            yield PieceBegins(None)
        while run:
            file = run[0].file
            same = next((i for i, item in enumerate(run) if item.file != file), len(run))
            part, run = run[: min(same, SPAN_FRAMES)], run[min(same, SPAN_FRAMES) :]
            yield Span(
                path=self.layout.journal / file,
                label=label,
                frames=tuple((item.offset, len(item.data)) for item in part),
                inline=tuple(item.data for item in part),
                sigs_from=NO_ENTRIES if self.recent != 0 else NEVER,
            )


def _runs(frames: Iterable[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], ...]]:
    run: list[tuple[int, int]] = []
    size = 0
    for frame in frames:
        run.append(frame)
        size += frame[1]
        if len(run) >= SPAN_FRAMES or size >= SPAN_BYTES:
            yield tuple(run)
            run, size = [], 0
    if run:
        yield tuple(run)


# --- sharing it


_trust: Trust | None = None


def _start_worker(trust: Trust) -> None:
    global _trust  # noqa: PLW0603 - a process's own, set once when it starts
    _trust = trust
    gc.disable()
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """Whoever asked was killed: else this one would wait for work for ever, and may hold the lock."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _nothing() -> None:
    """The first work for a pool, so that its processes start at once."""


def _check_spans(spans: list[Span]) -> list[Checked]:
    assert _trust is not None
    return [check_span(_trust, span) for span in spans]


@dataclass(slots=True)
class Workers:
    """Verifies spans in ``processes`` processes, or right here if that is one. A context manager."""

    trust: Trust
    processes: int
    _pool: ProcessPoolExecutor | None = field(default=None)
    _collected: bool = field(default=False)

    def __enter__(self) -> Workers:
        # Millions of small tuples and no cycles: looking for them takes 5 % of the time.
        self._collected = gc.isenabled()
        gc.disable()
        if self.processes > 1:
            self._pool = ProcessPoolExecutor(
                self.processes, mp_context=context(), initializer=_start_worker, initargs=(self.trust,)
            )
            self._pool.submit(_nothing)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _exc: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._collected:
            gc.enable()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=kind is not None)

    def verify(self, events: Iterable[Event]) -> Iterator[tuple[Event, Checked | None]]:
        """The events in their order, each span with its result."""
        for bundle, results in self._results(_bundles(events)):
            checked = iter(results)
            for event in bundle:
                yield event, next(checked) if isinstance(event, Span) else None

    def _results(self, bundles: Iterable[list[Event]]) -> Iterator[tuple[list[Event], list[Checked]]]:
        if self._pool is None:
            for bundle in bundles:
                yield bundle, [check_span(self.trust, event) for event in bundle if isinstance(event, Span)]
            return
        flying: deque[tuple[list[Event], Future[list[Checked]]]] = deque()
        for bundle in bundles:
            spans = [event for event in bundle if isinstance(event, Span)]
            flying.append((bundle, self._pool.submit(_check_spans, spans)))
            while len(flying) > AHEAD * self.processes:
                done, future = flying.popleft()
                yield done, future.result()
        for done, future in flying:
            yield done, future.result()

    def map(self, call: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Any other work, in order."""
        if self._pool is None:
            yield from map(call, items)
            return
        flying: deque[Future[R]] = deque()
        for item in items:
            flying.append(self._pool.submit(call, item))
            if len(flying) > AHEAD * self.processes:
                yield flying.popleft().result()
        for future in flying:
            yield future.result()


def _bundles(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Enough work at a time that handing it over costs little."""
    bundle: list[Event] = []
    weight = 0
    for event in events:
        bundle.append(event)
        weight += event.weight if isinstance(event, Span) else 0
        if weight >= SPAN_FRAMES or len(bundle) >= 8 * SPAN_FRAMES:
            yield bundle
            bundle, weight = [], 0
    if bundle:
        yield bundle
