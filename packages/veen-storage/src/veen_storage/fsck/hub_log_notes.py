"""The two notes in ``hublog/``, and how far the index has applied the hub log (RESOLUTIONS P1).

The hub checkpoint on disk is the one that the index has applied, or one that only the journal holds, if a
round of the applier was interrupted. The published one is any of these, or an older one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from veen_core.errors import VeenError
from veen_core.hub_log import verify_hub_checkpoint
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_storage.disk.layout import HUB_LOG_CHECKPOINT, HUB_LOG_PUBLISHED
from veen_storage.errors import REPAIR, RESTORE, unreadable
from veen_storage.fsck.context import FoldContext
from veen_storage.fsck.report import MOVE_AWAY
from veen_storage.index.tables import FORMAT_WITHOUT_HUB_LOG


class StoredNote(NamedTuple):
    """A hub checkpoint as it is stored, which this hub signed."""

    content: bytes
    signed: SignedHead


class HubLogNotes:
    """Reads and checks the notes; reports what is wrong with them."""

    def __init__(self, context: FoldContext) -> None:
        self._context = context
        self.pending = [item for item in context.journal.hub_log if context.is_pending(item)]
        """Extensions that the index has not applied, in order."""
        layout = context.layout
        self._check_names()
        self._stored = self._read(layout.hub_log_checkpoint, HUB_LOG_CHECKPOINT, RESTORE)
        self._published = self._read(layout.hub_log_published, HUB_LOG_PUBLISHED, REPAIR)
        if self._published is None and layout.hub_log_published.exists() and self._stored is not None:
            context.rewrites[layout.hub_log_published] = self._stored.content
        self.size = self._applied_size()
        """Entries that the index has applied; None if that is unknown."""
        self.applied = self._applied_note()
        """The hub checkpoint at that size; None if the hub log is empty, or if it is unknown."""

    def _check_names(self) -> None:
        """Check the names in the folder; a directory of an older veen has no folder."""
        context, layout = self._context, self._context.layout
        files = (layout.hub_log_entries, layout.hub_log_checkpoint, layout.hub_log_published)
        known = {path.name for path in files}
        try:
            names = sorted(os.listdir(layout.hub_log))
        except FileNotFoundError:
            if context.index_format in (None, FORMAT_WITHOUT_HUB_LOG) and not context.journal.hub_log:
                context.report.notes.append("this directory has no hub log yet: the next start adds it")
            else:
                context.report.fault(layout.hub_log.name, "the folder is missing")
                context.hub_log_damaged = True
            return
        for name in names:
            if name not in known and name.removesuffix(".tmp") in known:
                context.report.note_leftover(f"hublog/{name}", "write")
            elif name not in known:
                context.report.fault(f"hublog/{name}", "is not a file of the hub log", MOVE_AWAY)

    def _read(self, path: Path, name: str, remedy: str) -> StoredNote | None:
        """Return a note that this hub signed; None if the note is missing or damaged; report the damage."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            self._context.report.fault(name, unreadable(name, exc).what)
            return None
        try:
            signed = parse_signed_head(content)
            verify_hub_checkpoint(self._context.trust.identity, signed, origin=signed.head.origin)
        except VeenError as exc:
            self._context.report.fault(name, str(exc), remedy)
            return None
        self._context.report.counters.signatures += 1
        return StoredNote(content, signed)

    def _applied_size(self) -> int | None:
        stored, layout = self._stored, self._context.layout
        size = stored.signed.head.size if stored is not None else None
        if self.pending:
            size = self.pending[0].size_before
        if not layout.hub_log_checkpoint.exists():
            entries = layout.hub_log_entries
            if size is None and not (entries.exists() and entries.stat().st_size):
                size = 0
            if size != 0:
                self._damage("is missing, but the hub log has entries")
        elif stored is not None and stored.signed.head.size != size and not self._is_pending(stored):
            self._damage(
                f"has size {stored.signed.head.size}: it is not in the journal, and the index has applied "
                f"size {size}"
            )
        if size is None:
            self._context.hub_log_damaged = True
        return size

    def _is_pending(self, note: StoredNote) -> bool:
        return note.content in [item.extension.checkpoint for item in self.pending]

    def _applied_note(self) -> StoredNote | None:
        """Return the hub checkpoint of the applied size, from the file or from the journal."""
        known = [self._stored] if self._stored is not None else []
        known += (
            StoredNote(item.extension.checkpoint, item.signed)
            for item in self._context.journal.hub_log
            if not self._context.is_pending(item)
        )
        found = next((note for note in known if note.signed.head.size == self.size), None)
        self._context.hub_checkpoint_known = found is not None or self.size == 0
        return found

    def _damage(self, what: str) -> None:
        self._context.report.fault(HUB_LOG_CHECKPOINT, what)
        self._context.hub_log_damaged = True

    def check_root(self, size: int, root: bytes) -> None:
        """Check the tree at one size against the published hub checkpoint, if it has that size."""
        head = self._published.signed.head if self._published is not None else None
        if head is not None and head.size == size and head.root != root:
            what = f"has another root than the hub log at size {size}"
            self._context.report.fault(HUB_LOG_PUBLISHED, what)

    def check_published(self, size: int) -> None:
        """Check that a published hub checkpoint beyond the applied size is one of the journal."""
        if self._published is None or (beyond := self._published.signed.head.size) <= size:
            return
        for item in self.pending:
            self.check_root(item.signed.head.size, item.signed.head.root)
        if self._context.journal.damaged:
            return  # the batches that were not read may have it
        sizes = [size, *(item.signed.head.size for item in self.pending)]
        if beyond not in sizes:
            what = f"has size {beyond}, but the hub log ends at {max(sizes)}: its newest entries are lost"
            self._context.report.fault(HUB_LOG_PUBLISHED, what)
