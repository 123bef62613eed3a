"""The index as it follows from the files: fsck compares it with the one there is, repair puts it in place.

Everything goes through the same ``Draft`` and ``write_index`` as when it was new. What files do not tell is
handed in: the labels' numbers, and the last batch applied. One thing they tell only almost: in which order a
token was authorized and used within one second. It counts as authorized first, as gating demands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from veen_core.ids import AuthRef, HubId, Label, StreamSeq
from veen_core.rate import Bucket
from veen_storage.applier import NOTHING_TO_FINISH, write_index
from veen_storage.index import Index, Transaction
from veen_storage.ledger import Changes, Draft, Ledger
from veen_storage.records import U64, CapRecord, LabelCursor, LabelNo
from veen_storage.registry import Registry

ROUND: Final = 4_096
"""Steps that are held before they are written."""
ROUND_BYTES: Final = 4 * 1_048_576


class DerivedDraft(Draft):
    """A draft that meets labels one after another, not in the order in which they were written."""

    def __init__(self, ledger: Ledger, late: set[AuthRef]) -> None:
        super().__init__(ledger)
        self._late = late

    def note_use(self, cursor: LabelCursor, auth_ref: AuthRef) -> None:
        record = self.cap(auth_ref)
        if record is None or cursor.hub_ts >= record.issued_at:
            super().note_use(cursor, auth_ref)
            self._bound_bucket(auth_ref, cursor.number)
        elif not record.control_seq:  # the first use of all, in a label that is met later
            self.changes.caps[auth_ref] = CapRecord(cursor.hub_ts, StreamSeq(0), b"")

    def _bound_bucket(self, auth_ref: AuthRef, number: LabelNo) -> None:
        """Uses that came before the token in the same second are counted too: never below nothing."""
        bucket = self.changes.buckets.get((auth_ref, number))
        if bucket is not None and bucket.tokens < 0:
            self.changes.buckets[auth_ref, number] = Bucket(0, bucket.refilled_at)
            self._late.add(auth_ref)

    def note_token(self, auth_ref: AuthRef, token_bytes: bytes, control: LabelCursor) -> None:
        if self.cap(auth_ref) is not None:
            self._late.add(auth_ref)
        super().note_token(auth_ref, token_bytes, control)


@dataclass(slots=True)
class Derivation:
    """Builds an index; ``draft`` takes what comes next."""

    index: Index
    registry: Registry
    numbers: Mapping[Label, LabelNo]
    """Numbers that labels have already; others get the next free ones."""
    applied: int
    late: set[AuthRef] = field(default_factory=set)
    """Tokens that were met after uses of them: where their buckets stood cannot be told."""
    ledger: Ledger = field(init=False)
    draft: DerivedDraft = field(init=False)
    _waiting: list[Changes] = field(default_factory=list)
    _next: int = 0

    def __post_init__(self) -> None:
        self._next = max(self.numbers.values(), default=-1) + 1
        self.ledger = Ledger(self.index, self.registry)
        self.draft = DerivedDraft(self.ledger, self.late)

    def begin(self, label: Label) -> LabelCursor:
        """A label's first cursor, under its number."""
        number = self.numbers.get(label)
        if number is None:
            number, self._next = LabelNo(self._next), self._next + 1
        self.draft.changes.new_labels[label] = number
        cursor = self.draft.changes.heads[label] = LabelCursor.fresh(label, number)
        return cursor

    def settle(self, *, at_least: int = 0) -> None:
        """What was drafted so far holds; it is written when there is enough of it."""
        changes = self.draft.changes
        if len(changes.steps) < at_least:
            return
        changes.batch = self.applied
        self.ledger.adopt(changes)
        self._waiting.append(changes)
        self.draft = DerivedDraft(self.ledger, self.late)
        steps = sum(len(change.steps) for change in self._waiting)
        if steps + len(self._waiting) >= ROUND or sum(c.size for c in self._waiting) >= ROUND_BYTES:
            self._write()

    def aside(self) -> DerivedDraft:
        """A draft on top that is never written: for what is not applied yet, or not to be relied on."""
        self.settle()
        return DerivedDraft(self.ledger, set())

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        self.index.write(lambda txn: write_index(txn, waiting, NOTHING_TO_FINISH))
        self.ledger.shrink(self.applied)

    def finish(self, hub: HubId, finishing: bytes) -> None:
        """Write the rest, and what belongs to no label."""
        self.settle()
        self._write()
        rows = {b"hub_id": bytes(hub), b"next_label": U64.pack(self._next), b"finishing": finishing}

        def write(txn: Transaction) -> None:
            for key, value in rows.items():
                txn.put("meta", key, value)

        self.index.write(write)
