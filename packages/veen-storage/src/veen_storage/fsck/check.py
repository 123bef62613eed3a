"""fsck: everything a data directory holds, re-derived from its files alone and checked (DESIGN, storage).

In order: version, registry, identity and keys; the journal; the log, label by label, each entry verified by
itself in worker processes (``entries``) and folded here in its order (``label``); what lies beside the
chunks; attachments; and at last the index, against the one that the fold derived (``index``).
Nothing is changed. A fault does not end it: it goes on where it can, and a note says what it left out.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Literal

from veen_core.errors import VeenError
from veen_core.ids import Label, StreamSeq
from veen_storage.commit import journal
from veen_storage.commit.applier import decode_finishing
from veen_storage.disk.directory_lock import DirectoryLock
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import not_a_data_directory
from veen_storage.errors import DamageError
from veen_storage.fsck import directory as fsck_directory
from veen_storage.fsck import index as fsck_index
from veen_storage.fsck.attachments import check_attachments, row_fault
from veen_storage.fsck.derive import Derivation
from veen_storage.fsck.entries import Trust
from veen_storage.fsck.files import (
    JournalFiles,
    LogFiles,
    applied_by_files,
    floor_of,
    list_log,
    newest_segment,
    read_journal,
)
from veen_storage.fsck.fold_context import Book, Unfinished
from veen_storage.fsck.index import Comparison, Excused, Row, Survey
from veen_storage.fsck.log import check_log
from veen_storage.fsck.plan import Workers
from veen_storage.fsck.report import REPAIR, Counters, Fault, Level, Progress, Report
from veen_storage.index.lmdb_index import Index
from veen_storage.index.records import LABEL_SEQ, U64, LabelNo, Location

__all__ = ["Counters", "Fault", "Level", "Progress", "Report", "fsck"]

RECENT: Final = 256
"""Of so many last entries of each label the quick level verifies the signatures."""
RESTORE_LOG: Final = "restore the label's files from a clone"


def fsck(
    root: Path,
    *,
    level: Literal["full", "quick"] = "full",
    progress: Callable[[Progress], None] | None = None,
    processes: int | None = None,
) -> Report:
    """Check a data directory that no process has open; raises ``LockedError`` if one has."""
    layout = Layout(root)
    if not layout.version.exists() and not layout.registry.exists():
        raise not_a_data_directory(root)
    lock = DirectoryLock(layout)
    try:
        return _Fsck(layout, Level(level), progress, processes or cores()).run()
    finally:
        lock.release()


def cores() -> int:
    """Those that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Fsck:
    def __init__(
        self, layout: Layout, level: Level, tell: Callable[[Progress], None] | None, processes: int
    ) -> None:
        self._layout = layout
        self._level = level
        self._tell = tell
        self._processes = processes
        self._report = Report(level)

    def run(self) -> Report:
        report, layout = self._report, self._layout
        registry = fsck_directory.check_registry(layout, report)
        if registry is None:
            return report
        fsck_directory.check_names(layout, report)
        identity = fsck_directory.check_identity(layout, registry, report)
        if identity is None:
            report.notes.append("without the hub's identity neither log nor index could be checked")
            return report
        fsck_directory.check_keys(layout, identity, report)
        fsck_directory.check_fork_record(layout, identity, report)
        trust = Trust(identity, registry)
        if layout.log.is_dir() and layout.journal.is_dir():
            self._check_all(trust)
        else:
            with Workers(trust, self._processes) as workers:
                check_attachments(layout, report, workers, self._tell, None)
        if self._level is Level.QUICK:
            report.notes.append(
                f"quick: MSG and hub signatures were verified only of each label's last {RECENT} entries (as "
                "far as they lie in its last chunk), of each other chunk's last one and of those in the "
                "journal; attachments were not read"
            )
        return report

    # --- the log and the index

    def _check_all(self, trust: Trust) -> None:
        """Log, attachments, then the index. While no worker runs, a process to read it starts at once."""
        survey = self._survey()
        with tempfile.TemporaryDirectory(prefix="veen-fsck-") as scratch:
            with Workers(trust, self._processes) as workers:
                book = self._check_log(workers, survey, Path(scratch, "index"))
                faulty = check_attachments(
                    self._layout, self._report, workers, self._tell, Path(scratch, "index")
                )
            if survey is not None:
                self._compare(_excused(book, survey, faulty), book, survey, Path(scratch, "index"))

    def _check_log(self, workers: Workers, survey: Survey | None, derived: Path) -> Book:
        applied = fsck_index.recorded_batch(survey)
        held, log = read_journal(self._layout, self._report, applied), list_log(self._layout, self._report)
        self._report.counters.bytes += held.size
        registry = workers.trust.registry
        applied = self._applied(survey, held, log, zstd=registry.zstd_level is not None)
        index = Index(derived, sync=False)
        try:
            derivation = Derivation(index, registry, survey.numbers if survey is not None else {}, applied)
            finishing = self._finishing(survey, log)
            heads = survey.heads if survey is not None else None
            book = Book(self._layout, workers.trust, self._report, log, held, derivation, finishing, heads)
            recent = RECENT if self._level is Level.QUICK else None
            check_log(book, workers, recent=recent, tell=self._tell)
        finally:
            index.close()
        return book

    def _survey(self) -> Survey | None:
        try:
            survey = fsck_index.apart(fsck_index.survey, self._layout.index)
        except DamageError as exc:
            fsck_directory.add_fault(self._report, exc, fsck_index.FILE, REPAIR)
            self._report.notes.append("the index could not be compared with the log")
            return None
        numbers = sorted(survey.numbers.values())
        if numbers == list(range(len(numbers))):
            return survey
        self._index_fault("table labels: its numbers are not 0, 1, 2 …, each once")
        self._report.notes.append("the index could not be compared with the log")
        return None

    def _applied(self, survey: Survey | None, held: JournalFiles, log: LogFiles, *, zstd: bool) -> int:
        by_files = partial(applied_by_files, self._layout, log, held, zstd=zstd)
        if survey is None:
            return by_files()
        stored = survey.meta.get(b"applied", bytes(U64.size))
        if len(stored) != U64.size:
            self._index_fault("table meta: the batch applied last is not a number")
            return by_files()
        applied = int(U64.unpack(stored)[0])
        if applied < (floor := floor_of(self._layout)):
            self._index_fault(f"is older than the log: it knows batch {applied}, {floor} was applied")
        if held.first is not None and held.first > applied + 1:
            what = f"batches {applied + 1} to {held.first - 1} are neither in the index nor in the journal"
            self._report.faults.append(Fault(file="journal", what=what))
        self._check_end(held, applied)
        return applied

    def _check_end(self, held: JournalFiles, applied: int) -> None:
        """A journal may end before what is applied, its newest segment may not."""
        if not held.damaged and (newest := newest_segment(self._layout)) is not None:
            try:
                journal.check_end(newest, held.last or 0, applied)
            except DamageError as exc:
                fsck_directory.add_fault(self._report, exc, exc.file, exc.action)
                return
        if held.last is not None and held.last < applied:
            self._report.notes.append(f"the journal ends at batch {held.last}, {applied} is applied")

    def _finishing(self, survey: Survey | None, log: LogFiles) -> frozenset[Unfinished] | None:
        if survey is None:
            return None
        try:
            rows = frozenset(decode_finishing(survey.meta.get(b"finishing", b"\x80")))
        except (VeenError, TypeError, ValueError):
            self._index_fault("table meta: what is to be finished cannot be read")
            return None
        for kind, label, start, end in rows:
            files = log.of(label)
            if kind not in {"seal", "prune"} or (start, end) not in files.summaries:
                self._index_fault(f"table meta: {start} to {end} are to be finished and are no chunk", label)
        return rows

    def _index_fault(self, what: str, label: Label | None = None) -> None:
        self._report.faults.append(Fault(file=fsck_index.FILE, what=what, label=label, remedy=REPAIR))

    def _compare(self, excused: Excused, book: Book, survey: Survey, derived: Path) -> None:
        try:
            found = fsck_index.apart(fsck_index.compare, self._layout.index, derived, excused)
        except DamageError as exc:
            fsck_directory.add_fault(self._report, exc, fsck_index.FILE, REPAIR)
            return
        self._report_rows(found, survey, {label for label in survey.numbers if label not in book.log.labels})
        for claims in sorted(book.derivation.tokens.late):
            self._report.notes.append(
                f"rate buckets of the token with claims {claims.hex()} were not checked: "
                "it was used before it was authorized"
            )

    def _report_rows(self, found: Comparison, survey: Survey, gone: set[Label]) -> None:
        labels = {number: label for label, number in survey.numbers.items()}
        short = {labels.get(LABEL_SEQ.unpack(row.key)[0]) for row in found.rows if _beyond_the_log(row)}
        for row in found.rows:
            if row.table == "attachments":
                self._report.faults.append(row_fault(row, self._level))
                continue
            label = _label_of(row, labels)
            lost = label is not None and (label in short or label in gone)
            remedy = RESTORE_LOG if lost else REPAIR
            seq = fsck_index.seq_of(row.table, row.key)
            self._report.faults.append(
                Fault(
                    file=fsck_index.FILE,
                    what=_describe(row, lost=lost),
                    label=label,
                    seq=StreamSeq(seq) if seq is not None else None,
                    remedy=remedy,
                )
            )
        if found.unrecorded:
            self._report.notes.append(
                f"{found.unrecorded} attachments are not recorded, as when a put is cut off, so that their "
                f"loss would not show; {REPAIR}"
            )
        for table, count in found.more.items():
            self._index_fault(f"table {table}: {count} more rows are wrong")


def _excused(book: Book, survey: Survey, faulty: set[tuple[str, bytes]]) -> Excused:
    """Rows that follow from something that is itself in doubt, or is reported already."""
    numbers = frozenset(book.derivation.numbers.get(label, LabelNo(-1)) for label in book.broken)
    meta = {b"finishing"}
    if book.broken:
        meta |= {b"hub_ts", b"next_label"}
    if book.broken or not book.bindings.complete:
        meta.add(b"binding_bytes")
    rows = {
        (table, LABEL_SEQ.pack(survey.numbers[label], seq))
        for table, label, seq in book.unsure
        if label in survey.numbers
    }
    rows |= {("labels", bytes(label)) for label in book.broken}
    rows |= faulty
    return Excused(
        numbers=numbers,
        rows=frozenset(rows),
        late=frozenset(book.derivation.tokens.late),
        caps=bool(book.broken),
        meta=frozenset(meta),
    )


def _beyond_the_log(row: Row) -> bool:
    return row.table == "entries" and row.wrong == "extra" and len(row.key) == LABEL_SEQ.size


def _label_of(row: Row, labels: dict[LabelNo, Label]) -> Label | None:
    if row.table == "labels" and len(row.key) == Label.SIZE:
        return Label(row.key)
    number = fsck_index.number_of(row.table, row.key)
    return labels.get(LabelNo(number)) if number is not None else None


def _describe(row: Row, *, lost: bool) -> str:
    match row.wrong:
        case "missing":
            return f"table {row.table}: row {row.key.hex()} is missing"
        case "differs":
            return f"table {row.table}: row {row.key.hex()} does not follow from the log"
        case "gap":
            return f"table {row.table}: a range before row {row.key.hex()} is missing"
    if lost and row.table == "entries" and len(row.value) == len(Location(StreamSeq(0), 0, 0).pack()):
        place = Location.unpack(row.value)
        return (
            f"knows this entry at byte {place.offset} of the chunk from {place.chunk_start} on, "
            "and no file holds it"
        )
    return f"table {row.table}: row {row.key.hex()} follows from nothing in the log"
