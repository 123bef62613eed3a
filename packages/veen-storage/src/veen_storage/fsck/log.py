"""The whole log: every label planned, verified, folded, and the index derived. For fsck and repair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from veen_core.entry import FLAG_AUTHORIZE, decode_frame, unframe
from veen_core.errors import VeenError
from veen_core.ids import Label, StreamSeq, UnixTime
from veen_storage.chunks.chunk_files import ChunkFile
from veen_storage.chunks.pruned_chunk import read_pruned_chunk
from veen_storage.commit.applier import encode_finishing
from veen_storage.commit.changes import Changes
from veen_storage.fsck.entries import NEVER
from veen_storage.fsck.files import Piece, pieces_of
from veen_storage.fsck.fold_context import Book
from veen_storage.fsck.label import LabelFold
from veen_storage.fsck.pending import Folded, check_pending
from veen_storage.fsck.plan import Event, LabelBegins, LabelEnds, PieceBegins, PieceEnds, Planner, Workers
from veen_storage.fsck.report import Progress

Tell = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, order=True)
class _Turn:
    """When a label's turn comes: tokens before what uses them, then as labels appeared."""

    without_tokens: bool
    first_ts: UnixTime
    label: Label


def check_log(book: Book, workers: Workers, *, recent: int | None, tell: Tell | None = None) -> None:
    """Fold every label into the book; its derivation is complete afterwards."""
    zstd = book.trust.registry.zstd_level is not None
    planner = Planner(layout=book.layout, zstd=zstd, applied=book.applied, recent=recent, heads=book.heads)
    labels = [turn.label for turn in sorted(_turns(book, zstd=zstd))]
    fold: LabelFold | None = None
    for event, checked in workers.verify(_plan(planner, book, labels)):
        if checked is not None and fold is not None:
            book.report.faults.extend(checked.faults)
            book.report.counters.signatures += checked.signatures
            fold.facts(checked.facts)
            _tell(tell, book, len(labels))
            continue
        match event:
            case LabelBegins(label):
                fold = LabelFold(book, label)
            case PieceBegins(piece) if fold is not None:
                fold.piece(piece)
            case PieceEnds(damage, size) if fold is not None:
                fold.piece_end(damage, size)
            case LabelEnds() if fold is not None:
                fold.end()
    _tell(tell, book, len(labels))
    path = book.layout.checkpoint_binding
    if faults := list(book.bindings.check(path)):
        book.report.faults.extend(faults)
        book.rewrites[path] = book.bindings.content()
    book.derivation.finish(book.trust.registry.hub_id, encode_finishing([Changes(steps=book.unfinished)]))


def _plan(planner: Planner, book: Book, labels: list[Label]) -> Iterator[Event]:
    for label in labels:
        yield from planner.plan(label, book.log.of(label), book.journal.of(label))


def _tell(tell: Tell | None, book: Book, total: int) -> None:
    if tell is not None:
        seen = book.report.counters
        tell(Progress("log", seen.labels, total, seen.entries, seen.bytes))


def _turns(book: Book, *, zstd: bool) -> Iterator[_Turn]:
    for label in book.log.labels.keys() | book.journal.labels.keys():
        pieces = pieces_of(book.layout, label, book.log.of(label), zstd=zstd)
        if pieces:
            yield _turn(label, pieces[0])
        elif (first := book.journal.of(label).entries.get(StreamSeq(1))) is not None:
            flags = decode_frame(first.data).flags
            yield _Turn(not flags & FLAG_AUTHORIZE, UnixTime(NEVER), label)
        else:
            _report_orphans(book, label)


def _turn(label: Label, piece: Piece) -> _Turn:
    """By the first entry; if that cannot be read, it is reported in the label's turn."""
    try:
        if piece.pruned:
            return _Turn(True, read_pruned_chunk(piece.path).kept[0][1].receipt.hub_ts, label)
        with ChunkFile(piece.path, compressed=piece.compressed) as chunk:
            for _offset, frame in chunk.walk():
                entry = unframe(frame)
                return _Turn(not entry.is_authorize, entry.receipt.hub_ts, label)
    except (OSError, VeenError, IndexError):
        pass
    return _Turn(True, UnixTime(NEVER), label)


def _report_orphans(book: Book, label: Label) -> None:
    """Files of a label that has no entries at all."""
    files = book.log.of(label)
    paths = [book.layout.summary(label, start, end) for start, end in files.summaries]
    paths += [book.layout.peaks(label, upto) for upto in files.peaks]
    paths += [book.layout.checkpoint(label, upto) for upto in files.checkpoints]
    paths += [book.layout.anchor(label, upto) for upto in files.anchors]
    paths += [book.layout.checkpoint_index(label)] if files.index else []
    for path in sorted(paths):
        book.fault(path.name, "its label has no chunk", label=label)
    check_pending(book, label, Folded())
    book.broken.add(label)
