"""Recovery: apply the journal batches that the index does not include, when a directory is opened.

Every batch passes through the same draft and the same applier as a new batch. Then the journal's segments
are removed or kept for replicas, since the index includes all their batches. If recovery is interrupted, the
next opening repeats it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from veen_core import hub_identity
from veen_core.errors import SignatureError, VeenError
from veen_core.hub_identity import HubIdentity
from veen_storage.commit import journal
from veen_storage.commit.applier import ROUND_BYTES
from veen_storage.commit.changes import Changes, Placed
from veen_storage.commit.journal_floor import Floor, read_floor, write_floor
from veen_storage.commit.kept_segments import KeptSegments
from veen_storage.commit.ledger import Draft, Ledger
from veen_storage.commit.writer import replay
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.errors import DamageError, MismatchError


@dataclass(frozen=True, slots=True)
class Recovery:
    """Recovery of one data directory; ``notice`` receives a line about a batch that was torn."""

    layout: Layout
    files: Files
    identity: HubIdentity
    ledger: Ledger
    notice: Callable[[str], None]
    kept: KeptSegments

    def run(self, applied: int, apply_round: Callable[[list[Changes]], None]) -> int:
        """Apply every batch after ``applied``, and return the number of the last one."""
        floor = read_floor(self.layout.journal)
        replayed: list[Changes] = []
        size, last = 0, applied
        for batch in journal.read_batches(self.layout.journal, applied, floor, self.notice):
            replayed.append(self._replay(batch))
            last, size = batch.number, size + sum(len(item.data) for item in batch.items)
            if size >= ROUND_BYTES:
                apply_round(replayed)
                replayed, size = [], 0
        if replayed:
            apply_round(replayed)
        self._remove_segments(last)
        return last

    def _replay(self, batch: journal.JournalBatch) -> Changes:
        draft = Draft(self.ledger)
        for item in batch.items:
            try:
                replay(draft, self.identity, item)
            except (DamageError, MismatchError):
                raise
            except VeenError as exc:
                raise DamageError(f"journal batch {batch.number}", None, str(exc)) from exc
        self._check_signatures(draft.changes)
        draft.changes.batch = batch.number
        self.ledger.adopt(draft.changes)
        return draft.changes

    def _check_signatures(self, changes: Changes) -> None:
        """Check that this hub signed each label's last receipt, whose root commits to all before it (I3)."""
        last = {step.entry.label: step.entry for step in changes.steps if isinstance(step, Placed)}
        for entry in last.values():
            try:
                hub_identity.verify_receipt(self.identity, entry.receipt)
            except SignatureError as exc:
                raise MismatchError(f"journal: {exc}: another hub's files were mixed in") from None

    def _remove_segments(self, last: int) -> None:
        segments = journal.list_segments(self.layout.journal)
        if segments:
            write_floor(self.files, self.layout.journal, Floor(last))
        for segment in segments:
            self.kept.retire(segment)
        self.kept.trim()
