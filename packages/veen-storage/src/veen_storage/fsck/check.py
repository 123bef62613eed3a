"""fsck: re-derive everything in a data directory from its files alone, and compare (DESIGN, storage step 5).

In this order: version, registry, identity and keys; the journal; the log (``log_check``); attachments; and
last the index, against the one that follows from the files (``index_check``). Nothing is changed. A fault
does not end the check; a note says what had to be left out.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final, Literal

from veen_core.errors import VeenError
from veen_storage.commit.applier import NOTHING_TO_FINISH, decode_finishing
from veen_storage.disk.directory_lock import DirectoryLock
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import MOVED, not_a_data_directory
from veen_storage.errors import REPAIR, DamageError
from veen_storage.fsck import index_check
from veen_storage.fsck.context import FoldContext
from veen_storage.fsck.derived_index import DerivedIndex
from veen_storage.fsck.entries import LogTrust
from veen_storage.fsck.files.attachments import check_attachments, record_attachments, report_records
from veen_storage.fsck.files.directory import (
    check_fork_record,
    check_identity,
    check_keys,
    check_names,
    check_registry,
)
from veen_storage.fsck.files.log_files import list_log
from veen_storage.fsck.index_check import (
    ALL_BUT_ATTACHMENTS,
    INDEX_FILE,
    Survey,
    TableDifference,
    Unknown,
)
from veen_storage.fsck.journal_items import applied_by_files, floor_of, read_journal
from veen_storage.fsck.log_check import check_log
from veen_storage.fsck.report import FsckLevel, Report, ReportProgress, counted, no_progress
from veen_storage.fsck.workers import FsckWorkers, available_cores
from veen_storage.index.lmdb_index import Index
from veen_storage.index.tables import (
    ANCHORS,
    ATTACHMENTS,
    BUCKETS,
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
        check = _Fsck(layout, FsckLevel(level), progress or no_progress, processes or available_cores())
        return check.run(part=part)
    finally:
        lock.release()


class _Fsck:
    def __init__(self, layout: Layout, level: FsckLevel, progress: ReportProgress, processes: int) -> None:
        self._layout = layout
        self._progress = progress
        self._processes = processes
        self._report = Report(level)

    def run(self, *, part: bool) -> Report:
        report, layout = self._report, self._layout
        registry = check_registry(layout, report, part=part)
        if registry is None:
            return report
        check_names(layout, report)
        identity = check_identity(layout, registry, report)
        if identity is None:
            report.notes.append("without the hub's identity neither log nor index could be checked")
            return report
        check_keys(layout, identity, report)
        check_fork_record(layout, identity, report)
        with tempfile.TemporaryDirectory(prefix="veen-fsck-") as scratch:
            self._check_contents(LogTrust(identity, registry), Path(scratch, "index"))
        if report.level is FsckLevel.QUICK:
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
        limits = trust.registry.limits
        with FsckWorkers(self._processes) as workers, closing(Index(scratch, sync=False)) as index:
            if has_log:
                context = self._check_log(trust, workers, survey, index)
            record_attachments(index, check_attachments(self._layout, self._report, limits, workers, faulty))
        if survey is not None and context is not None:
            self._compare_index(context, survey, scratch, faulty)

    # --- the log

    def _check_log(
        self, trust: LogTrust, workers: FsckWorkers, survey: Survey | None, index: Index
    ) -> FoldContext:
        layout, report = self._layout, self._report
        applied = self._applied(survey) if survey is not None else None
        items = read_journal(layout, report, applied)
        report.counters.bytes += items.size
        log = list_log(layout, report)
        if applied is None:
            applied = applied_by_files(layout, log, items, zstd=trust.registry.zstd_level is not None)
        numbers = survey.numbers if survey is not None else {}
        derived = DerivedIndex(index, trust.registry, numbers, applied)
        context = FoldContext(layout, trust, report, log, items, derived, survey)
        recent = QUICK_ENTRIES if report.level is FsckLevel.QUICK else None
        check_log(context, workers, recent=recent, surplus_remedy=REPAIR, progress=self._progress)
        return context

    def _applied(self, survey: Survey) -> int | None:
        """Return the last batch that the index has applied; None if that row is damaged."""
        if (applied := survey.applied) is None:
            self._index_fault("table meta: the number of the last batch is damaged")
        elif applied < (lowest := floor_of(self._layout).applied):
            self._index_fault(
                f"is older than the log: its last batch is {applied}, but batch {lowest} was applied"
            )
        return applied

    # --- the index

    def _survey(self) -> Survey | None:
        try:
            survey = index_check.run_isolated(index_check.survey, self._layout.index)
        except DamageError as exc:
            self._report.fault_of(exc, INDEX_FILE, REPAIR)
        else:
            numbers = sorted(survey.numbers.values())
            if numbers == list(range(len(numbers))):
                return survey
            self._index_fault("table labels: its numbers are not 0, 1, 2 and so on")
        self._report.notes.append("the index could not be compared with the log")
        return None

    def _compare_index(self, context: FoldContext, survey: Survey, derived: Path, faulty: set[bytes]) -> None:
        report, unknown = self._report, ALL_BUT_ATTACHMENTS
        if not context.damaged:
            unknown = _unknown_rows(context, survey)
            self._check_unfinished(context, survey)
        try:
            found = index_check.run_isolated(index_check.compare, self._layout.index, derived, unknown)
        except DamageError as exc:
            report.fault_of(exc, INDEX_FILE, REPAIR)
            return
        for table in found:
            if table.table == ATTACHMENTS.name:
                report_records(table, report, faulty)
            elif table.rows:
                self._index_fault(_describe(table))
        if context.damaged or context.hub_log_damaged:
            report.notes.append(
                "what follows from the damaged log (index, checkpoint binding) was not compared with it: "
                "check again when the log is restored"
            )
        for claims in sorted(context.derived.tokens.late):
            report.notes.append(
                f"rate buckets of the token with claims {claims.hex()} were not checked: "
                "it was used before it was authorized"
            )

    def _check_unfinished(self, context: FoldContext, survey: Survey) -> None:
        """Compare the index's list of chunks to rename or remove with the old files that are there."""
        try:
            known = set(decode_finishing(survey.meta.get(UNFINISHED, NOTHING_TO_FINISH)))
        except (VeenError, TypeError, ValueError):
            self._index_fault("table meta: the list of unfinished renames is damaged")
            return
        there = set(decode_finishing(context.finishing))
        for kind, label, start, end in sorted(there ^ known):
            files = context.log.of(label)
            if (kind, label, start, end) in there:
                path = self._layout.chunk(label, start, None if kind == "seal" else end)
                done = "sealed" if kind == "seal" else "pruned"
                what = f"should no longer exist: entries {start} to {end} are {done}"
                self._report.fault(path.name, what, REPAIR, label=label, seq=start)
            elif kind not in {"seal", "prune"} or end not in (files.logs.get(start), files.pruned.get(start)):
                what = f"table meta: the unfinished rename of entries {start} to {end} names no chunk"
                self._index_fault(what)

    def _index_fault(self, what: str) -> None:
        self._report.fault(INDEX_FILE, what, REPAIR)


def _unknown_rows(context: FoldContext, survey: Survey) -> Unknown:
    """Return the rows whose content does not follow from the files, or was reported already."""
    unknown = {
        (ANCHORS.name, ANCHORS.key.pack((survey.numbers[label], seq)))
        for label, seq in context.unknown_anchors
        if label in survey.numbers
    }
    unknown |= {(BUCKETS.name, bytes(claims)) for claims in context.derived.tokens.late}
    unknown.add((META.name, UNFINISHED))
    if not context.hub_checkpoint_known or context.hub_log_damaged:
        unknown.add((META.name, HUB_CHECKPOINT))
    if context.hub_log_damaged:
        unknown |= {(META.name, HUB_LOG), *((table, b"") for table in HUB_LOG_TABLES)}
    if context.index_format == FORMAT_WITHOUT_HUB_LOG and not any(context.layout.hub_log.glob("*")):
        unknown |= {(META.name, FORMAT), (HUB_MOVED.name, b"")}  # the next start writes these rows
    return frozenset(unknown)


def _describe(found: TableDifference) -> str:
    first = found.rows[0]
    wrong = {
        "missing": "is missing",
        "differs": "does not follow from the log",
        "extra": "follows from nothing in the log",
    }[first.wrong]
    more = f"; so are {counted(found.count - 1, 'further row')}" if found.count > 1 else ""
    return f"table {found.table}: row {first.key.hex()} {wrong}{more}"
