"""The index as it follows from the files: fsck compares it with the one there is, repair puts it in place.

Everything goes through the same ``Draft`` and ``write_index`` as when it was new. What files do not tell is
handed in: the labels' numbers, and the last batch applied. One thing they tell only almost: in which order a
token was authorized and used within one second. It counts as authorized first, as gating demands.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from veen_core.cap import CapToken, ClaimsRef
from veen_core.ids import AuthRef, HubId, Label, UnixTime
from veen_storage.commit.applier import NOTHING_TO_FINISH, write_index
from veen_storage.commit.changes import Changes
from veen_storage.commit.ledger import Draft, Ledger
from veen_storage.disk.registry import Registry
from veen_storage.index.lmdb_index import Index, Transaction
from veen_storage.index.records import U64, LabelCursor, LabelNo
from veen_storage.index.tables import mark_index

ROUND: Final = 4_096
"""Steps that are held before they are written."""
ROUND_BYTES: Final = 4 * 1_048_576


@dataclass(slots=True)
class Tokens:
    """What is known of tokens beyond their records."""

    authorized_at: dict[AuthRef, UnixTime] = field(default_factory=dict)
    """hub_ts of the receipt on the control label; a record's issued_at may be earlier."""
    late: set[ClaimsRef] = field(default_factory=set)
    """Claims of tokens that were met after uses of them: where their buckets stood cannot be told."""


class DerivedDraft(Draft):
    """A draft that meets labels one after another, not in the order in which they were written."""

    def __init__(self, ledger: Ledger, tokens: Tokens) -> None:
        super().__init__(ledger)
        self._tokens = tokens

    def note_use(self, cursor: LabelCursor, auth_ref: AuthRef) -> None:
        record = self.cap(auth_ref)
        if record is not None and cursor.hub_ts < record.issued_at:  # the first use fixes it (§6)
            record = dataclasses.replace(record, issued_at=cursor.hub_ts)
            self.changes.caps[auth_ref] = record
            self.note_claims(record)
        if record is not None and record.control_seq and cursor.hub_ts < self._tokens.authorized_at[auth_ref]:
            return  # the hub did not know its rate yet
        self._note_overdraft(cursor, auth_ref)
        super().note_use(cursor, auth_ref)

    def _note_overdraft(self, cursor: LabelCursor, auth_ref: AuthRef) -> None:
        """Note a use that an empty bucket forbids: the hub took it in the second before it knew the token."""
        record, bucket = self.cap(auth_ref), self.bucket(auth_ref, cursor.label)
        token = record.token if record is not None else None
        rate = token.allow.rate if token is not None else None
        if token is None or rate is None or bucket is None:
            return
        if not bucket.at(rate, cursor.hub_ts).allows:
            self._tokens.late.add(token.claims_ref)

    def note_token(self, auth_ref: AuthRef, token_bytes: bytes, control: LabelCursor) -> None:
        if self.cap(auth_ref) is not None:
            self._tokens.late.add(CapToken.decode(token_bytes).claims_ref)
        self._tokens.authorized_at.setdefault(auth_ref, control.hub_ts)
        super().note_token(auth_ref, token_bytes, control)
        record = self.changes.caps[auth_ref]
        if control.hub_ts < record.issued_at:
            record = dataclasses.replace(record, issued_at=control.hub_ts)
            self.changes.caps[auth_ref] = record
            self.note_claims(record)


@dataclass(slots=True)
class Derivation:
    """Builds an index; ``draft`` takes what comes next."""

    index: Index
    registry: Registry
    numbers: Mapping[Label, LabelNo]
    """Numbers that labels have already; others get the next free ones."""
    applied: int
    tokens: Tokens = field(default_factory=Tokens)
    ledger: Ledger = field(init=False)
    draft: DerivedDraft = field(init=False)
    _waiting: list[Changes] = field(default_factory=list)
    _next: int = 0

    def __post_init__(self) -> None:
        self._next = max(self.numbers.values(), default=-1) + 1
        self.ledger = Ledger(self.index, self.registry)
        self.draft = DerivedDraft(self.ledger, self.tokens)

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
        self.draft = DerivedDraft(self.ledger, self.tokens)
        steps = sum(len(change.steps) for change in self._waiting)
        if steps + len(self._waiting) >= ROUND or sum(c.size for c in self._waiting) >= ROUND_BYTES:
            self._write()

    def aside(self) -> DerivedDraft:
        """A draft on top that is never written: for what is not applied yet, or not to be relied on."""
        self.settle()
        return DerivedDraft(self.ledger, self.tokens)

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        self.index.write(lambda txn: write_index(txn, waiting, NOTHING_TO_FINISH))
        self.ledger.shrink(self.applied)

    def finish(self, hub: HubId, finishing: bytes) -> None:
        """Write the rest, and what belongs to no label."""
        self.settle()
        self._write()
        rows = {b"next_label": U64.pack(self._next), b"finishing": finishing}

        def write(txn: Transaction) -> None:
            mark_index(txn, hub)
            for key, value in rows.items():
                txn.put("meta", key, value)

        self.index.write(write)
