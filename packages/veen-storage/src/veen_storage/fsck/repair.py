"""repair: the index and every other file that follows from the log, made again from the log (§12).

Order, so that a directory is as it was or repaired, never half:

1. the log is folded as fsck does, with the signatures of each chunk's last entry only: its root commits to
   all before it, and files are mixed in whole; any fault in what cannot be derived ends it here;
2. the index is built beside the old one, in ``index.tmp/``, and synced;
3. summaries, peaks, checkpoint indices, binding, key map and identity signature that differ are replaced;
4. ``index/`` becomes ``index.old/``, ``index.tmp/`` becomes ``index/``: **the repair holds**; the old one
   goes. (Cut off between the two, the directory has no index, does not open, and says to repair it.)
5. a part of an entry at the end of a growing chunk is cut off, if the journal holds the whole of it.

Nothing is invented: an entry, checkpoint or anchor that is damaged or missing is named and left alone.
Which attachments were put is recorded from those that are there: of one that is gone or had another size only
the old index knew, and a note names it if that could be read.
The journal stays; the next opening applies what is in it and not in the log, as after any crash.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from veen_core import hub_identity
from veen_core.errors import VeenError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import Signature
from veen_storage.commit import journal
from veen_storage.commit.journal_floor import FLOOR, Floor, read_floor, write_floor
from veen_storage.disk import hub_keys
from veen_storage.disk.directory_lock import DirectoryLock
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import Registry, read_registry
from veen_storage.errors import DamageError
from veen_storage.fsck import attachments as fsck_attachments
from veen_storage.fsck import directory as fsck_directory
from veen_storage.fsck import index as fsck_index
from veen_storage.fsck.derive import Derivation
from veen_storage.fsck.entries import Trust
from veen_storage.fsck.files import (
    applied_by_files,
    floor_of,
    list_log,
    newest_segment,
    pieces_of,
    read_journal,
    walk_frames,
)
from veen_storage.fsck.fold_context import Book
from veen_storage.fsck.log import check_log
from veen_storage.fsck.plan import Workers
from veen_storage.fsck.report import Counters, Fault, Level, Progress, Report
from veen_storage.index.lmdb_index import Index
from veen_storage.index.records import U64


class RefusedError(DamageError):
    """Repair would have to invent something; ``faults`` has every reason, and nothing was changed."""

    def __init__(self, faults: list[Fault]) -> None:
        first = faults[0]
        more = f" (and {len(faults) - 1} more: run `veen hub fsck`)" if len(faults) > 1 else ""
        super().__init__(first.file, first.offset, f"{first.what}: not repaired{more}", first.remedy)
        self.faults = faults


@dataclass(slots=True)
class RepairReport:
    """What was done."""

    rewritten: list[str] = field(default_factory=list)
    """Files that were made again, the index apart."""
    cut: list[str] = field(default_factory=list)
    """Growing chunks whose torn end was cut off."""
    notes: list[str] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)

    def __str__(self) -> str:
        lines = [f"rewrote {name}" for name in self.rewritten]
        lines += [f"cut {name}" for name in self.cut]
        lines += [f"note: {note}" for note in self.notes]
        seen = self.counters
        return "\n".join(
            [*lines, f"rebuilt the index of {seen.entries} entries in {seen.labels} labels from the log"]
        )


def repair(
    root: Path, progress: Callable[[Progress], None] | None = None, *, files: Files | None = None
) -> RepairReport:
    """Repair a directory that no process has open; ``RefusedError`` if the log itself is damaged."""
    layout = Layout(root)
    registry = read_registry(layout)
    lock = DirectoryLock(layout)
    try:
        return _Repair(layout, registry, files or Files(), progress).run()
    finally:
        lock.release()


def rebuild_index(layout: Layout, files: Files | None = None) -> RepairReport:
    """The same for a directory in the making, which has no VERSION and nobody to lock out."""
    try:
        registry = Registry.decode(layout.registry.read_bytes())
    except (OSError, VeenError) as exc:
        raise DamageError(layout.registry.name, None, str(exc)) from exc
    return _Repair(layout, registry, files or Files(), None).run()


class _Repair:
    def __init__(
        self, layout: Layout, registry: Registry, files: Files, tell: Callable[[Progress], None] | None
    ) -> None:
        self._layout = layout
        self._registry = registry
        self._files = files
        self._tell = tell
        self._report = Report(Level.QUICK)
        self._beside = layout.root / "index.tmp"
        self._old = layout.root / "index.old"

    def run(self) -> RepairReport:
        identity, rewrites = self._identity()
        shutil.rmtree(self._beside, ignore_errors=True)
        try:
            book = self._derive(identity)
            self._refuse(book)
        except BaseException:
            shutil.rmtree(self._beside, ignore_errors=True)
            raise
        rewrites |= book.rewrites
        for path, content in rewrites.items():
            self._files.replace(path, content)
        self._swap()
        self._settle_floor(book)
        return RepairReport(
            sorted(path.name for path in rewrites),
            self._cut(book),
            [note for note in self._report.notes if "may be removed" not in note],
            self._report.counters,
        )

    # --- 1 and 2

    def _identity(self) -> tuple[HubIdentity, dict[Path, bytes]]:
        """The identity, and what follows from it and is not there. A rotation that was begun is finished."""
        layout, found = self._layout, Report(Level.QUICK)
        hub_keys.finish_identity(self._files, layout, self._registry.hub_id)
        identity = fsck_directory.check_identity(layout, self._registry, found)
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
        if key is None:
            raise RefusedError(
                [
                    Fault(
                        file=self._layout.identity_signature.name,
                        what="does not hold, and the hub's key to make it again is not here",
                        remedy="put the key's file into keys/ or restore the signature from a clone",
                    ),
                    *faults,
                ]
            )
        return hub_identity.sign_identity(key, identity)

    def _derive(self, identity: HubIdentity) -> Book:
        layout, report = self._layout, self._report
        zstd = self._registry.zstd_level is not None
        held, log = read_journal(layout, report), list_log(layout, report)
        # Never below what the journal was cleared for: an index that knows less is refused at opening.
        applied = max(applied_by_files(layout, log, held, zstd=zstd), floor_of(layout))
        index = Index(self._beside)
        try:
            derivation = Derivation(index, self._registry, {}, applied)
            book = Book(layout, Trust(identity, self._registry), report, log, held, derivation, None)
            with Workers(book.trust, 1) as workers:
                check_log(book, workers, recent=1, tell=self._tell)
            fsck_attachments.record(index, fsck_attachments.sizes_of(layout))
        finally:
            index.close()
        return book

    def _refuse(self, book: Book) -> None:
        """Everything that is wrong must follow from something that is right."""
        faults = [fault for fault in self._report.faults if not fault.is_repairable]
        if book.journal.damaged or faults:
            raise RefusedError(faults)
        if not (self._layout.index / "data.mdb").exists():
            return  # a clone in the making
        try:
            known = fsck_index.apart(fsck_index.survey, self._layout.index)
        except DamageError:
            return  # that is why repair was called
        self._note_lost(book, fsck_index.recorded_batch(known))
        self._note_attachments()
        for label, head in known.heads.items():
            if head.size > (held := book.sizes.get(label, 0)):
                what = f"entries {held + 1} to {head.size} are in the index and in no file"
                remedy = (
                    "restore the files from a clone, or move index/ away if it is the index that is wrong"
                )
                raise RefusedError([Fault(file="log", what=what, label=label, remedy=remedy)])

    def _note_lost(self, book: Book, applied: int) -> None:
        """A newest segment that ends before what the old index had applied."""
        if (newest := newest_segment(self._layout)) is None:
            return
        try:
            journal.check_end(newest, book.journal.last or 0, applied)
        except DamageError as exc:
            self._report.notes.append(f"{exc.file} {exc.what}; what the log does not hold of them is lost")

    def _note_attachments(self) -> None:
        """What was put and is gone, or had another size: the new record is of the files and does not know."""
        changed = fsck_index.apart(fsck_index.changed_attachments, self._layout.index, self._beside)
        for row in changed.rows:
            if row.wrong == "extra":
                what = "was put and is missing: put it again; it is not recorded any more"
            else:
                was = f"the {U64.unpack(row.value)[0]} bytes" if len(row.value) == U64.size else "the size"
                what = (
                    f"has not {was} that the old index recorded: a full `veen hub fsck` tells if it is whole"
                )
            self._report.notes.append(f"attachments/{row.key.hex()} {what}")
        if more := changed.more["attachments"]:
            self._report.notes.append(f"{more} more attachments are missing or have another size")

    # --- 4 and 5

    def _swap(self) -> None:
        layout, files = self._layout, self._files
        files.sync_directory(self._beside)
        shutil.rmtree(self._old, ignore_errors=True)
        if layout.index.exists():
            files.rename(layout.index, self._old)
        files.rename(self._beside, layout.index)  # the commit point
        files.sync_directory(layout.root)
        shutil.rmtree(self._old, ignore_errors=True)

    def _settle_floor(self, book: Book) -> None:
        """What the journal's folder must agree with from now on, if it did not until now."""
        directory = self._layout.journal
        try:
            journal.check_newest(directory, read_floor(directory))
        except DamageError as exc:
            damaged = exc.file == f"journal/{FLOOR}" and (directory / FLOOR).exists()
            in_the_making = not self._layout.version.exists()  # a clone never had a journal
            if not damaged and not in_the_making:
                self._report.notes.append(
                    f"{exc.file} {exc.what}; what the log does not hold of them is lost"
                )
            write_floor(self._files, directory, Floor(book.applied))

    def _cut(self, book: Book) -> list[str]:
        """Growing chunks that end inside an entry: the fold has found it whole in the journal."""
        cut: list[str] = []
        for label in book.journal.labels:
            for piece in pieces_of(self._layout, label, book.log.of(label), zstd=False):
                if piece.end is not None or piece.pruned:
                    continue
                walk = walk_frames(piece)
                if walk.damage is None:
                    continue
                fd = self._files.open_append(piece.path)
                try:
                    self._files.truncate(fd, walk.size)
                    self._files.sync(fd)
                finally:
                    os.close(fd)
                cut.append(piece.path.name)
        return cut
