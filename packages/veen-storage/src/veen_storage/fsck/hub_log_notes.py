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
        """The hub checkpoint at that size; None if the hub log is empty, or if the hub checkpoint is
        unknown."""

    def _check_names(self) -> None:
        """Check the names in the folder; a directory of an older veen has no folder."""
        context, layout = self._context, self._context.layout
        known = {path.name for path in (layout.hub_log_entries, layout.hub_log_checkpoint)}
        known.add(layout.hub_log_published.name)
        try:
            names = sorted(os.listdir(layout.hub_log))
        except FileNotFoundError:
            if context.index_format in (None, FORMAT_WITHOUT_HUB_LOG) and not context.journal.hub_log:
                context.report.notes.append("this directory has no hub log yet: the next start adds it")
            else:
                context.fault(layout.hub_log.name, "the folder is missing")
                context.hub_log_damaged = True
            return
        for name in names:
            if name.removesuffix(".tmp") in known and name not in known:
                context.report.notes.append(
                    f"hublog/{name} is left over from an interrupted write and may be removed"
                )
            elif name not in known:
                context.fault(f"hublog/{name}", "is not a file of the hub log", remedy=MOVE_AWAY)

    def _read(self, path: Path, name: str, remedy: str) -> StoredNote | None:
        """Return a note that this hub signed; None if the note is missing or damaged; report the damage."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            self._context.fault(name, unreadable(name, exc).what)
            return None
        try:
            signed = parse_signed_head(content)
            verify_hub_checkpoint(self._context.trust.identity, signed, origin=signed.head.origin)
        except VeenError as exc:
            self._context.fault(name, str(exc), remedy=remedy)
            return None
        self._context.report.counters.signatures += 1
        return StoredNote(content, signed)

    def _applied_size(self) -> int | None:
        if self.pending:
            return self.pending[0].size_before
        if self._stored is not None:
            return self._stored.signed.head.size
        layout = self._context.layout
        if not layout.hub_log_checkpoint.exists():
            if not layout.hub_log_entries.exists() or not layout.hub_log_entries.stat().st_size:
                return 0
            self._context.fault(HUB_LOG_CHECKPOINT, "is missing, but hublog/entries has entries")
        self._context.hub_log_damaged = True
        return None

    def _applied_note(self) -> StoredNote | None:
        """Return the hub checkpoint of the applied size, from the file or from the journal."""
        stored, context = self._stored, self._context
        if stored is not None and stored.signed.head.size == self.size:
            return stored
        if not self.size:
            return None
        waiting = [item.extension.checkpoint for item in self.pending]
        if stored is not None and stored.content not in waiting:
            what = (
                f"has size {stored.signed.head.size}: it is not in the journal, and the index has applied "
                f"size {self.size}"
            )
            context.fault(HUB_LOG_CHECKPOINT, what)
            context.hub_log_damaged = True
        elif stored is None and not context.layout.hub_log_checkpoint.exists():
            context.fault(HUB_LOG_CHECKPOINT, f"is missing, but the hub log has {self.size} entries")
            context.hub_log_damaged = True
        for item in context.journal.hub_log:
            if item.signed.head.size == self.size and not context.is_pending(item):
                return StoredNote(item.extension.checkpoint, item.signed)
        context.hub_checkpoint_known = False
        return None

    def check_root(self, size: int, root: bytes) -> None:
        """Check the tree at one size against the published hub checkpoint, if it has that size."""
        if self._published is not None and self._published.signed.head.size == size:
            self._compare_published(root)

    def check_published(self, size: int) -> None:
        """Check that a published hub checkpoint beyond the applied size is one of the journal."""
        if self._published is None or self._published.signed.head.size <= size:
            return
        head = self._published.signed.head
        roots = {item.signed.head.size: item.signed.head.root for item in self.pending}
        if head.size in roots:
            self._compare_published(roots[head.size])
        else:
            last = max(roots, default=size)
            what = f"has size {head.size}, but the hub log ends at {last}: its newest entries are lost"
            self._context.fault(HUB_LOG_PUBLISHED, what)

    def _compare_published(self, root: bytes) -> None:
        assert self._published is not None
        head = self._published.signed.head
        if head.root != root:
            self._context.fault(HUB_LOG_PUBLISHED, f"has another root than the hub log at size {head.size}")
