"""The index that follows from the files. fsck compares it with the existing index; repair puts it in place.

Everything passes through the same ``Draft`` and ``write_index`` as when the hub wrote it. Two things cannot
be read from files and are inputs: the numbers of labels, and the last batch applied. Within one second files
do not show whether a token was authorized before it was used; it counts as authorized first, as gating
demands.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from veen_core.cap import CapToken, ClaimsRef
from veen_core.ids import AuthRef, HubId, Label, UnixTime
from veen_storage.commit.applier import NOTHING_TO_FINISH, write_index
from veen_storage.commit.ledger import Draft, Ledger
from veen_storage.disk.registry import Registry
from veen_storage.index.lmdb_index import Index, Transaction
from veen_storage.index.records import LabelCursor, LabelNo
from veen_storage.index.tables import META, NEXT_LABEL, UNFINISHED, mark_index, write_number

MIN_STEPS: Final = 4_096
"""Steps from which on a draft is written to the index; a smaller draft takes in the next label."""


@dataclass(slots=True)
class TokenFacts:
    """Facts about tokens that their records do not contain."""

    authorized_at: dict[AuthRef, UnixTime] = field(default_factory=dict)
    """hub_ts of the receipt on the control label; a record's issued_at may be earlier."""
    late: set[ClaimsRef] = field(default_factory=set)
    """Claims of tokens that were used before they were authorized: their buckets cannot be derived."""


class DerivedDraft(Draft):
    """A draft that sees labels one after another instead of in the order in which they were written."""

    def __init__(self, ledger: Ledger, tokens: TokenFacts) -> None:
        super().__init__(ledger)
        self._tokens = tokens

    def note_use(self, cursor: LabelCursor, auth_ref: AuthRef) -> None:
        record = self.cap(auth_ref)
        if record is not None and cursor.hub_ts < record.issued_at:  # the first use fixes it (core §6)
            record = dataclasses.replace(record, issued_at=cursor.hub_ts)
            self.changes.caps[auth_ref] = record
            self.note_claims(record)
        if record is not None and record.control_seq and cursor.hub_ts < self._tokens.authorized_at[auth_ref]:
            return  # the hub did not know the token's rate yet
        self._note_overdraft(cursor, auth_ref)
        super().note_use(cursor, auth_ref)

    def _note_overdraft(self, cursor: LabelCursor, auth_ref: AuthRef) -> None:
        """Note a use that an empty bucket forbids: the hub accepted it before it knew the token's rate."""
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
class DerivedIndex:
    """Builds an index from the changes that are added to ``draft``."""

    index: Index
    registry: Registry
    numbers: Mapping[Label, LabelNo]
    """Numbers that labels have in the existing index; other labels get the next free ones."""
    applied: int
    tokens: TokenFacts = field(default_factory=TokenFacts)
    ledger: Ledger = field(init=False)
    draft: DerivedDraft = field(init=False)
    _next: int = 0
    _new: dict[Label, LabelNo] = field(default_factory=dict)
    """Numbers of labels that the existing index does not have."""

    def __post_init__(self) -> None:
        self._next = max(self.numbers.values(), default=-1) + 1
        self.ledger = Ledger(self.index, self.registry)
        self.draft = DerivedDraft(self.ledger, self.tokens)

    def begin(self, label: Label, draft: Draft) -> LabelCursor:
        """Return the cursor of a label that holds nothing yet, under its number, as part of a draft."""
        number = self.number(label)
        draft.changes.new_labels[label] = number
        cursor = draft.changes.heads[label] = LabelCursor.fresh(label, number)
        return cursor

    def number(self, label: Label) -> LabelNo:
        """Return the number of a label; a label without one gets the next free number."""
        if (number := self.numbers.get(label, self._new.get(label))) is None:
            number = self._new[label] = LabelNo(self._next)
            self._next += 1
        return number

    def settle(self, *, at_least: int = MIN_STEPS) -> None:
        """Write the draft to the index once it has ``at_least`` steps."""
        changes = self.draft.changes
        if len(changes.steps) < at_least:
            return
        changes.batch = self.applied
        self.ledger.adopt(changes)
        self.index.write(lambda txn: write_index(txn, [changes], NOTHING_TO_FINISH))
        self.ledger.shrink(self.applied)
        self.draft = DerivedDraft(self.ledger, self.tokens)

    def finish(self, hub: HubId, finishing: bytes) -> None:
        """Write the remaining changes, and the rows that belong to no label."""
        self.settle(at_least=0)

        def write(txn: Transaction) -> None:
            mark_index(txn, hub)
            write_number(txn, NEXT_LABEL, self._next)
            META.put(txn, UNFINISHED, finishing)

        self.index.write(write)
