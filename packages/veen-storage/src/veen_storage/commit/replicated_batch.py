"""A replicated batch: a batch that the primary has committed, verified before the replica writes it (P9).

A replica adds no item of its own. It replays each item of the primary's journal through the same draft as
recovery does, so that chunk boundaries, offsets and the index follow from the same code. Before the batch may
be committed, every rule is checked that the log shows:

1. the batch matches its checksums and follows the last batch;
2. each entry by itself (``log_rules.examine``), with the signatures of MSG, token and RECEIPT;
3. each entry against the label before it: position, root, time, acknowledgement, counter, token
   (I3, H3, I6, I8, I9, H5);
4. checkpoints, anchors, prunes and extensions of the hub log as ``writer.replay`` checks them.

The commit writes the same bytes to the replica's journal as the primary's has.
"""

from __future__ import annotations

from veen_core.cap import verify_token
from veen_core.entry import Entry, unframe
from veen_core.errors import VeenError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import Label
from veen_core.log_rules import (
    LogStep,
    LogTerms,
    check_acknowledgement,
    check_position,
    check_token,
    check_writer,
    examine,
)
from veen_core.log_verifier import HubSignatures
from veen_core.receipt import Receipt
from veen_core.signatures import SignatureClaim, verifying
from veen_storage.commit import journal
from veen_storage.commit.changes import Changes, Placed
from veen_storage.commit.journal_format import Item, JournalBatch, split_segment
from veen_storage.commit.ledger import Draft, Ledger
from veen_storage.commit.writer import replay
from veen_storage.errors import StorageError


class RefusedBatchError(StorageError):
    """The primary sent a batch that contradicts the replica's log or breaks a rule; nothing was written."""

    def __init__(self, number: int, why: str, receipt: Receipt | None) -> None:
        super().__init__(
            f"batch {number} of the primary is refused: {why}",
            action="keep both data directories as evidence and compare them with `veen hub fsck`",
        )
        self.number = number
        self.why = why
        self.receipt = receipt
        """The RECEIPT of the entry that is refused, if the fault is in an entry."""


def split_batches(data: bytes) -> list[JournalBatch]:
    """Decode whole batches, one after the other; raise ``DamageError`` if one does not match its checksum."""
    return [batch for _offset, batch in split_segment("the primary's journal", data, last=False)]


class ReplicatedBatch:
    """One batch of the primary, replayed and verified; ``Store.commit`` makes it durable."""

    def __init__(
        self, ledger: Ledger, identity: HubIdentity, batch: JournalBatch, *, threads: int | None = None
    ) -> None:
        """Verify the batch against the state of the ledger; raise ``RefusedBatchError``.

        ``threads``: how many verify signatures, as for ``veen_core.signatures.verify_all``.
        """
        self.items = list(batch.items)
        self.made_after = ledger.adopted
        self._number = batch.number
        self._identity = identity
        self._draft = Draft(ledger)
        self._checks: dict[Label, HubSignatures] = {}
        self._claims: list[SignatureClaim] = []
        self._at: Receipt | None = None
        try:
            with verifying(self._claims, threads=threads):
                for item in batch.items:
                    self._replay(item)
        except VeenError as exc:
            raise RefusedBatchError(batch.number, str(exc), self._at) from exc

    # --- what ``Store.commit`` needs

    def sign(self) -> None:
        """Do nothing: the primary has signed every entry."""

    def finish(self, number: int) -> Changes:
        """Return the changes, after the batch became durable under its number."""
        assert number == self._number, "the caller compares the numbers before the commit"
        self._draft.changes.batch = number
        for cursor in self._draft.changes.heads.values():
            cursor.batch = number
        return self._draft.changes

    @property
    def entries(self) -> list[Entry]:
        """The entries of the batch, in order."""
        return [step.entry for step in self._draft.changes.steps if isinstance(step, Placed)]

    @property
    def signatures(self) -> int:
        """Number of signatures of entries that were verified."""
        return len(self._claims)

    # --- verification

    def _replay(self, item: Item) -> None:
        self._at = None
        if item.kind == journal.ENTRY:
            entry = unframe(item.data)
            self._at = entry.receipt
            self._check_entry(entry)
        replay(self._draft, self._identity, item)

    def _check_entry(self, entry: Entry) -> None:
        signatures = self._checks.get(entry.label)
        if signatures is None:
            signatures = HubSignatures(self._terms(entry.label), later=self._claims)
            self._checks[entry.label] = signatures
        step = examine(entry, signatures.terms)
        signatures.check_receipt(entry.receipt, entry.receipt_bytes)
        if entry.is_authorize:
            verify_token(entry.token, signatures.terms.limits)
        else:
            signatures.check_msg(entry.msg, entry.msg_bytes)
        self._check_order(entry.label, step)

    def _terms(self, label: Label) -> LogTerms:
        registry = self._draft.ledger.registry
        return LogTerms(
            label=label, identity=self._identity, profile=registry.profile, limits=registry.limits
        )

    def _check_order(self, label: Label, step: LogStep) -> None:
        """Check the rules between this entry and the label before it; the replay checks the root."""
        draft, cursor = self._draft, self._draft.label(label)
        size, hub_ts = (cursor.log.size, cursor.hub_ts) if cursor is not None else (0, None)
        check_position(step, size, hub_ts)
        if step.client_id is not None:
            held = draft.client(label, step.client_id)
            check_acknowledgement(step)
            check_writer(step, held.last_seq if held is not None else 0)
        elif step.authorizes is not None:
            record = draft.cap(step.authorizes)
            check_token(step, record.control_seq or None if record is not None else None)
