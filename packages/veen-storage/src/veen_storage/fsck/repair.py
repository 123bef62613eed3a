"""repair: rebuild the index and every other derived file from the log (core §12).

The order leaves a directory as it was, or repaired:

1. the log is checked as fsck does, with the signatures of the last entry of each chunk only: its root
   commits to all entries before it. Damage to anything that cannot be derived ends the repair here;
2. the new index is built in ``index.tmp/`` and synced;
3. damaged summaries, peaks, checkpoint indices, binding, key map and identity signature are replaced; an
   unreadable published hub checkpoint is replaced by the newest one;
4. ``index/`` is renamed to ``index.old/`` and ``index.tmp/`` to ``index/``: **the commit point**; the old
   index is removed. (After a crash between the two renames the directory has no index and does not open;
   the error says to repair it.)

Nothing is invented: a damaged or missing entry, checkpoint or anchor is named and left alone. Attachments are
recorded as found; a note names those that are missing, or had another size in the old index.
The journal stays: the next start applies what it holds beyond the log, as after any crash.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from veen_core import hub_identity
from veen_core.errors import DecodeError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import Signature
from veen_storage.commit import journal
from veen_storage.commit.journal_floor import FLOOR, Floor, read_floor, write_floor
from veen_storage.disk import hub_keys
from veen_storage.disk.directory_lock import DirectoryLock
from veen_storage.disk.files import Files
from veen_storage.disk.layout import HUB_LOG_PUBLISHED, Layout
from veen_storage.disk.registry import Registry, read_registry
from veen_storage.errors import RESTORE, DamageError, read_file
from veen_storage.fsck import index_check
from veen_storage.fsck.context import FoldContext
from veen_storage.fsck.derived_index import DerivedIndex
from veen_storage.fsck.entries import LogTrust
from veen_storage.fsck.files.attachments import attachment_sizes, describe_change, record_attachments
from veen_storage.fsck.files.directory import check_identity
from veen_storage.fsck.files.log_files import list_log
from veen_storage.fsck.index_check import ALL_BUT_ATTACHMENTS, Survey
from veen_storage.fsck.journal_items import applied_by_files, floor_of, read_journal
from veen_storage.fsck.log_check import check_log
from veen_storage.fsck.report import (
    Fault,
    FsckCounters,
    FsckLevel,
    Report,
    ReportProgress,
    counted,
    no_progress,
)
from veen_storage.fsck.workers import FsckWorkers
from veen_storage.index.lmdb_index import Index


class RefusedError(DamageError):
    """The log itself is damaged, so repair changed nothing; ``faults`` has every reason."""

    def __init__(self, faults: list[Fault]) -> None:
        first = faults[0]
        more = f" (and {len(faults) - 1} more: run `veen hub fsck`)" if len(faults) > 1 else ""
        super().__init__(first.file, first.offset, f"{first.what}: not repaired{more}", first.remedy)
        self.faults = faults


@dataclass(slots=True)
class RepairReport:
    """The result of a repair."""

    rewritten: list[str] = field(default_factory=list)
    """Files that were replaced, besides the index."""
    notes: list[str] = field(default_factory=list)
    counters: FsckCounters = field(default_factory=FsckCounters)

    def __str__(self) -> str:
        lines = [f"rewrote {name}" for name in self.rewritten]
        lines += [f"note: {note}" for note in self.notes]
        entries = counted(self.counters.entries, "entry", "entries")
        labels = counted(self.counters.labels, "label")
        return "\n".join([*lines, f"rebuilt the index of {entries} in {labels} from the log"])


def repair(
    root: Path,
    progress: ReportProgress | None = None,
    *,
    files: Files | None = None,
    part: bool = False,
) -> RepairReport:
    """Repair a directory that no process has open; raise ``RefusedError`` if the log itself is damaged.

    ``part``: it is a part of a sharded hub (``shards``).
    """
    layout = Layout(root)
    registry = read_registry(layout, part=part)
    lock = DirectoryLock(layout)
    try:
        return _Repair(layout, registry, files or Files(), progress).run()
    finally:
        lock.release()


def rebuild_index(
    layout: Layout, files: Files | None = None, *, every_signature: bool = False
) -> RepairReport:
    """Build the index of a directory without VERSION, such as a new clone, which no process can open.

    ``every_signature``: verify the signatures of all entries, not only of the last one of each chunk.
    """
    try:
        registry = Registry.decode(read_file(layout.registry))
    except DecodeError as exc:
        raise DamageError(layout.registry.name, None, str(exc), RESTORE) from exc
    return _Repair(layout, registry, files or Files(), None, recent=None if every_signature else 1).run()


class _Repair:
    def __init__(
        self,
        layout: Layout,
        registry: Registry,
        files: Files,
        progress: ReportProgress | None,
        *,
        recent: int | None = 1,
    ) -> None:
        """``recent``: entries at the end of each chunk whose signatures are verified; None for all."""
        self._recent = recent
        self._layout = layout
        self._registry = registry
        self._files = files
        self._progress = progress or no_progress
        self._report = Report(FsckLevel.QUICK)
        self._new = layout.root / "index.tmp"
        self._old = layout.root / "index.old"

    def run(self) -> RepairReport:
        identity, rewrites = self._identity()
        shutil.rmtree(self._new, ignore_errors=True)
        survey = self._survey()
        try:
            context = self._derive(identity, survey)
            self._refuse(context)
            if survey is not None:
                self._note_lost_batches(context, survey.applied or 0)
                self._note_attachments()
        except BaseException:
            shutil.rmtree(self._new, ignore_errors=True)
            raise
        rewrites |= context.rewrites
        published = self._layout.hub_log_published
        for path, content in rewrites.items():
            self._files.replace(path, content)
        self._swap()
        self._rewrite_floor(context.derived.applied)
        notes = [note for note in self._report.notes if note not in self._report.leftovers]
        rewritten = [HUB_LOG_PUBLISHED if path == published else path.name for path in rewrites]
        return RepairReport(sorted(rewritten), notes, self._report.counters)

    # --- step 1

    def _identity(self) -> tuple[HubIdentity, dict[Path, bytes]]:
        """Return the identity and the files that follow from it and are damaged; finish a key rotation."""
        layout, found = self._layout, Report(FsckLevel.QUICK)
        hub_keys.finish_identity(self._files, layout, self._registry.hub_id)
        identity = check_identity(layout, self._registry, found)
        wrong = {fault.file for fault in found.faults}
        rewrites: dict[Path, bytes] = {}
        if identity is None:
            raise RefusedError(found.faults)
        if layout.key_map.name in wrong or not layout.key_map.exists():
            rewrites[layout.key_map] = hub_keys.encode_key_map(identity)
        if layout.identity_signature.name in wrong or not layout.identity_signature.exists():
            rewrites[layout.identity_signature] = self._signature(identity, found.faults)
        return identity, rewrites

    def _signature(self, identity: HubIdentity, faults: list[Fault]) -> Signature:
        key = hub_keys.read_keys(self._layout.keys, identity).get(identity.newest.key_id)
        if key is not None:
            return hub_identity.sign_identity(key, identity)
        missing = Fault(
            file=self._layout.identity_signature.name,
            what="is damaged, and the hub's key to sign again is not in keys/",
            remedy="put the key file into keys/, or restore the signature from a clone",
        )
        raise RefusedError([missing, *faults])

    def _derive(self, identity: HubIdentity, survey: Survey | None) -> FoldContext:
        layout, report, registry = self._layout, self._report, self._registry
        items, log = read_journal(layout, report), list_log(layout, report)
        applied = applied_by_files(layout, log, items, zstd=registry.zstd_level is not None)
        with closing(Index(self._new)) as index, FsckWorkers(1) as workers:
            derived = DerivedIndex(index, registry, {}, applied)
            trust = LogTrust(identity, registry)
            context = FoldContext(layout, trust, report, log, items, derived, survey)
            check_log(context, workers, recent=self._recent, surplus_remedy=RESTORE, progress=self._progress)
            record_attachments(index, attachment_sizes(layout))
        return context

    def _survey(self) -> Survey | None:
        """Return the survey of the old index; None if there is none, or if it cannot be read."""
        if not (self._layout.index / "data.mdb").exists():
            return None
        try:
            return index_check.run_isolated(index_check.survey, self._layout.index)
        except DamageError:
            return None

    def _refuse(self, context: FoldContext) -> None:
        """Raise if anything is damaged that cannot be derived."""
        faults = [fault for fault in self._report.faults if not fault.is_repairable]
        if context.journal.damaged or faults:
            raise RefusedError(faults)

    def _note_lost_batches(self, context: FoldContext, applied: int) -> None:
        """Note a newest segment that ends before what the old index had applied."""
        newest = journal.segment_path(self._layout.journal, floor_of(self._layout).segment)
        try:
            if newest.exists():
                journal.check_end(newest, context.journal.last or 0, applied)
        except DamageError as exc:
            self._report.notes.append(f"{exc.file} {exc.what}; batches that are not in the log are lost")

    def _note_attachments(self) -> None:
        """Note attachments that are gone or had another size: the new index does not record that."""
        (changed,) = index_check.run_isolated(
            index_check.compare, self._layout.index, self._new, ALL_BUT_ATTACHMENTS
        )
        self._report.notes += map(describe_change, changed.rows)
        if more := changed.count - len(changed.rows):
            counts = counted(more, "more attachment is", "more attachments are")
            self._report.notes.append(f"{counts} missing or changed in size")

    # --- step 4

    def _swap(self) -> None:
        layout, files = self._layout, self._files
        files.sync_directory(self._new)
        files.make_directory(layout.hub_log)  # a directory of an older veen has none
        shutil.rmtree(self._old, ignore_errors=True)
        if layout.index.exists():
            files.rename(layout.index, self._old)
        files.rename(self._new, layout.index)  # the commit point
        files.sync_directory(layout.root)
        shutil.rmtree(self._old, ignore_errors=True)

    def _rewrite_floor(self, applied: int) -> None:
        """Make ``journal/applied`` agree with the journal and the new index, if it does not."""
        directory = self._layout.journal
        try:
            journal.check_newest(directory, read_floor(directory))
        except DamageError as exc:
            damaged = exc.file == f"journal/{FLOOR}" and (directory / FLOOR).exists()
            new_clone = not self._layout.version.exists()
            if not damaged and not new_clone:
                self._report.notes.append(f"{exc.file} {exc.what}; batches that are not in the log are lost")
            write_floor(self._files, directory, Floor(applied))
