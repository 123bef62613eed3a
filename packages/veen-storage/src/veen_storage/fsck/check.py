"""fsck: re-derive everything in a data directory from its files alone, and compare (DESIGN, storage step 5).

In this order: version, registry, identity and keys; the journal; the log (``log_check``); attachments; and
last the index, against the one that follows from the files (``index_check``). Nothing is changed. A fault
does not end the check; a note says what had to be left out.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final, Literal

from veen_core.errors import VeenError
from veen_core.ids import Label, StreamSeq
from veen_storage.commit import journal
from veen_storage.commit.applier import NOTHING_TO_FINISH, decode_finishing, encode_finishing
from veen_storage.commit.changes import Changes
from veen_storage.disk.directory_lock import DirectoryLock
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import MOVED, not_a_data_directory
from veen_storage.errors import REPAIR, DamageError
from veen_storage.fsck import index_check
from veen_storage.fsck.context import FoldContext
from veen_storage.fsck.derived_index import DerivedIndex
from veen_storage.fsck.entries import LogTrust
from veen_storage.fsck.files.attachments import check_attachments, record_attachments, record_fault
from veen_storage.fsck.files.directory import (
    add_fault,
    check_fork_record,
    check_identity,
    check_keys,
    check_names,
    check_registry,
)
from veen_storage.fsck.files.log_files import LogFiles, list_log
from veen_storage.fsck.index_check import INDEX_FILE, Survey, TableFault
from veen_storage.fsck.journal_items import (
    JournalItems,
    applied_by_files,
    lowest_applied,
    newest_segment,
    read_journal,
)
from veen_storage.fsck.log_check import check_log
from veen_storage.fsck.report import Fault, FsckLevel, Report, ReportProgress, counted
from veen_storage.fsck.workers import FsckWorkers, available_cores
from veen_storage.index.lmdb_index import Index
from veen_storage.index.tables import (
    ANCHORS,
    BINDING_BYTES,
    FORMAT,
    FORMAT_WITHOUT_HUB_LOG,
    HUB_CHECKPOINT,
    HUB_LOG,
    HUB_LOG_TABLES,
    HUB_MOVED,
    META,
    UNFINISHED,
)

QUICK_ENTRIES: Final = 256
"""The quick level verifies the signatures of this many last entries of each label."""

Unfinished = tuple[str, Label, StreamSeq, StreamSeq]


def fsck(
    root: Path,
    *,
    level: Literal["full", "quick"] = "full",
    progress: ReportProgress | None = None,
    processes: int | None = None,
    part: bool = False,
) -> Report:
    """Check a data directory that no process has open; raise ``LockedError`` if one has.

    ``part``: it is a part of a sharded hub (``shards``).
    """
    layout = Layout(root)
    is_moved = (root / MOVED).exists()
    if not layout.version.exists() and (is_moved or not layout.registry.exists()):
        raise not_a_data_directory(root)
    lock = DirectoryLock(layout)
    try:
        return _Fsck(layout, FsckLevel(level), progress, processes or available_cores(), part=part).run()
    finally:
        lock.release()


class _Fsck:
    def __init__(
        self, layout: Layout, level: FsckLevel, progress: ReportProgress | None, processes: int, *, part: bool
    ) -> None:
        self._part = part
        self._layout = layout
        self._level = level
        self._progress = progress
        self._processes = processes
        self._report = Report(level)

    def run(self) -> Report:
        report, layout = self._report, self._layout
        registry = check_registry(layout, report, part=self._part)
        if registry is None:
            return report
        check_names(layout, report)
        identity = check_identity(layout, registry, report)
        if identity is None:
            report.notes.append("without the hub's identity neither log nor index could be checked")
            return report
        check_keys(layout, identity, report)
        check_fork_record(layout, identity, report)
        trust = LogTrust(identity, registry)
        with tempfile.TemporaryDirectory(prefix="veen-fsck-") as scratch:
            self._check_contents(trust, Path(scratch, "index"))
        if self._level is FsckLevel.QUICK:
            report.notes.append(
                f"quick: signatures were verified only of each label's last {QUICK_ENTRIES} entries (as far "
                "as they lie in its last chunk), of the last entry of each other chunk and of entries in "
                "the journal; attachments were not read"
            )
        return report

    def _check_contents(self, trust: LogTrust, scratch: Path) -> None:
        """Check log, attachments and index."""
        has_log = self._layout.log.is_dir() and self._layout.journal.is_dir()
        survey = self._survey() if has_log else None  # before workers start: forking is faster then
        faulty: set[bytes] = set()
        context = None
        with FsckWorkers(trust, self._processes) as workers:
            index = Index(scratch, sync=False)
            try:
                if has_log:
                    context = self._check_log(workers, survey, index)
                whole = check_attachments(self._layout, self._report, workers, faulty)
                record_attachments(index, whole)
            finally:
                index.close()
        if survey is not None and context is not None:
            self._compare_index(context, survey, scratch, faulty)

    # --- the log

    def _check_log(self, workers: FsckWorkers, survey: Survey | None, index: Index) -> FoldContext:
        layout, report, registry = self._layout, self._report, workers.trust.registry
        items = read_journal(layout, report, survey.applied or 0 if survey is not None else 0)
        log = list_log(layout, report)
        report.counters.bytes += items.size
        applied = self._applied(survey, items)
        if applied is None:
            applied = applied_by_files(layout, log, items, zstd=registry.zstd_level is not None)
        numbers, sizes = (survey.numbers, survey.sizes) if survey is not None else ({}, {})
        derived = DerivedIndex(index, registry, numbers, applied)
        index_format = survey.meta.get(FORMAT) if survey is not None else None
        context = FoldContext(layout, workers.trust, report, log, items, derived, index_format, sizes)
        unfinished = self._unfinished(survey, log)
        recent = QUICK_ENTRIES if self._level is FsckLevel.QUICK else None
        check_log(context, workers, recent=recent, surplus_remedy=REPAIR, progress=self._progress)
        if unfinished is not None:
            self._check_unfinished(context, unfinished)
        return context

    def _applied(self, survey: Survey | None, items: JournalItems) -> int | None:
        """Return the last batch that the index has applied; None if the index does not say."""
        if survey is None:
            return None
        if (applied := survey.applied) is None:
            self._index_fault("table meta: the number of the last batch is damaged")
            return None
        if applied < (lowest := lowest_applied(self._layout)):
            self._index_fault(
                f"is older than the log: its last batch is {applied}, but batch {lowest} was applied"
            )
        if items.first is not None and items.first > applied + 1:
            what = f"batches {applied + 1} to {items.first - 1} are neither in the index nor in the journal"
            self._report.faults.append(Fault(file="journal", what=what))
        self._check_journal_end(items, applied)
        return applied

    def _check_journal_end(self, items: JournalItems, applied: int) -> None:
        """Check that the newest segment reaches the last batch applied; older segments may be gone."""
        if not items.damaged and (newest := newest_segment(self._layout)) is not None:
            try:
                journal.check_end(newest, items.last or 0, applied)
            except DamageError as exc:
                add_fault(self._report, exc, exc.file, exc.action)
                return
        if items.last is not None and items.last < applied:
            self._report.notes.append(
                f"the journal ends with batch {items.last}; the index has applied batch {applied}"
            )

    def _unfinished(self, survey: Survey | None, log: LogFiles) -> set[Unfinished] | None:
        """Return the chunks that the index says still have to be renamed or removed."""
        if survey is None:
            return None
        try:
            rows = set(decode_finishing(survey.meta.get(UNFINISHED, NOTHING_TO_FINISH)))
        except (VeenError, TypeError, ValueError):
            self._index_fault("table meta: the list of unfinished renames is damaged")
            return None
        for kind, label, start, end in rows:
            if kind not in {"seal", "prune"} or (start, end) not in log.of(label).summaries:
                what = f"table meta: the unfinished rename of entries {start} to {end} names no chunk"
                self._index_fault(what, label)
        return rows

    def _check_unfinished(self, context: FoldContext, known: set[Unfinished]) -> None:
        """Report old files of sealed and pruned chunks that the index does not list for removal."""
        there = decode_finishing(encode_finishing([Changes(steps=context.unfinished)]))
        for kind, label, start, end in there:
            if (kind, label, start, end) not in known and label not in context.damaged:
                path = self._layout.chunk(label, start, None if kind == "seal" else end)
                done = "sealed" if kind == "seal" else "pruned"
                what = f"should no longer exist: entries {start} to {end} are {done}"
                context.fault(path.name, what, label=label, seq=start, remedy=REPAIR)

    # --- the index

    def _survey(self) -> Survey | None:
        try:
            survey = index_check.run_isolated(index_check.survey, self._layout.index)
        except DamageError as exc:
            add_fault(self._report, exc, INDEX_FILE, REPAIR)
        else:
            numbers = sorted(survey.numbers.values())
            if numbers == list(range(len(numbers))):
                return survey
            self._index_fault("table labels: its numbers are not 0, 1, 2 and so on")
        self._report.notes.append("the index could not be compared with the log")
        return None

    def _compare_index(self, context: FoldContext, survey: Survey, derived: Path, faulty: set[bytes]) -> None:
        actual = self._layout.index
        try:
            if context.damaged:
                self._report.notes.append(
                    "the index was not compared with the log, because the log is damaged: check again when "
                    "the log is restored"
                )
            else:
                self._compare_tables(context, survey, derived)
            attachments = index_check.run_isolated(index_check.compare_attachments, actual, derived)
        except DamageError as exc:
            add_fault(self._report, exc, INDEX_FILE, REPAIR)
            return
        for row in attachments.rows:
            if row.key not in faulty:
                self._report.faults.append(record_fault(row, self._level))
        if attachments.more:
            more = counted(attachments.more, "more row")
            self._index_fault(f"table attachments: {more} differ from the files in attachments/")
        if attachments.unrecorded:
            self._report.notes.append(
                f"{counted(attachments.unrecorded, 'attachment is', 'attachments are')} not recorded in the "
                f"index, after an interrupted upload: a later loss would not be noticed; {REPAIR}"
            )
        for claims in sorted(context.derived.tokens.late):
            self._report.notes.append(
                f"rate buckets of the token with claims {claims.hex()} were not checked: "
                "it was used before it was authorized"
            )

    def _compare_tables(self, context: FoldContext, survey: Survey, derived: Path) -> None:
        rows, late = _unknown_rows(context, survey), frozenset(context.derived.tokens.late)
        left_out = frozenset(HUB_LOG_TABLES if context.hub_log_damaged else ())
        if left_out:
            self._report.notes.append(
                "the index's rows of the hub log were not compared, because the hub log is damaged"
            )
        faults = index_check.run_isolated(
            index_check.compare, self._layout.index, derived, rows, late, left_out
        )
        for fault in faults:
            self._index_fault(_describe(fault))

    def _index_fault(self, what: str, label: Label | None = None) -> None:
        self._report.faults.append(Fault(file=INDEX_FILE, what=what, label=label, remedy=REPAIR))


def _unknown_rows(context: FoldContext, survey: Survey) -> frozenset[tuple[str, bytes]]:
    """Return the rows whose content does not follow from the files, or was reported already."""
    anchors = {
        (ANCHORS.name, ANCHORS.key.pack((survey.numbers[label], seq)))
        for label, seq in context.unknown_anchors
        if label in survey.numbers
    }
    meta = {UNFINISHED}
    if not context.bindings.complete:
        meta.add(BINDING_BYTES)
    if not context.hub_checkpoint_known or context.hub_log_damaged:
        meta.add(HUB_CHECKPOINT)
    if context.hub_log_damaged:
        meta.add(HUB_LOG)
    moved: set[tuple[str, bytes]] = set()
    if context.index_format == FORMAT_WITHOUT_HUB_LOG and not _has_files(context.layout.hub_log):
        meta.add(FORMAT)  # the next start writes these rows
        moved = {(HUB_MOVED.name, bytes(label)) for label in context.sizes}
    return frozenset(anchors | moved | {(META.name, name) for name in meta})


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _describe(fault: TableFault) -> str:
    wrong = {
        "missing": "is missing",
        "differs": "does not follow from the log",
        "extra": "follows from nothing in the log",
    }[fault.first.wrong]
    more = f"; so are {counted(fault.rows - 1, 'further row')}" if fault.rows > 1 else ""
    return f"table {fault.table}: row {fault.first.key.hex()} {wrong}{more}"
