"""The writer: turn admitted messages into receipts, one group commit at a time (RESOLUTIONS H2, H3, H5).

    batch = store.batch(now)          one sequencer thread, one batch at a time
    batch.label(…), batch.view        what admission may read; includes this batch's own messages
    batch.add(…)                      decides sequence number and location; the receipt must not leave yet
    batch.hub_checkpoint(origin)      extends the hub log; the hub checkpoint must not leave yet
    store.commit(batch)               journal written and synced; now the receipts may leave

The next entry needs the MMR root before it, not the receipt before it. So the receipts of a batch are signed
together, when something needs them: the commit, the end of a chunk, or a checkpoint. The signer gets
a hint about ``SIGN_AHEAD`` of them at a time and may sign the first while the last are still being added.

Commit order: the journal (commit point), the ledger in memory, the tail that readers see, the receipts. A
batch that is dropped instead of committed changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from veen_core import hub_identity, stream
from veen_core import receipt as receipts
from veen_core.cap import CapToken
from veen_core.checkpoint import Checkpoint
from veen_core.entry import FLAG_AUTHORIZE, FRAME_SIZE, Entry, authorize_leaf, unframe
from veen_core.hashing import Ht
from veen_core.hub_identity import HubIdentity
from veen_core.ids import AuthRef, ClientId, ClientSeq, Epoch, Label, LeafHash, Signature, StreamSeq, UnixTime
from veen_core.log_rules import LogTerms
from veen_core.log_verifier import LogVerifier
from veen_core.mmr import Node
from veen_core.receipt import Receipt
from veen_core.tlog.note import Note
from veen_core.tlog.tree_head import SignedHead
from veen_storage.commit import hub_log, journal
from veen_storage.commit.changes import Anchor, Changes, HubExtension, Placed, Prune
from veen_storage.commit.journal import Item
from veen_storage.commit.ledger import Draft, Ledger
from veen_storage.errors import AbsentError, DamageError, StorageError
from veen_storage.index.records import LabelCursor, Location

SIGN_AHEAD: Final = 32
"""Receipts announced to the signer at a time. More receipts cost fewer messages to the signer's process;
fewer let it start earlier."""


class BatchSigner(Protocol):
    """Signs with the hub's keys; ``HubKeys`` is the real one."""

    identity: HubIdentity

    def sign_receipt(self, digest: bytes, now: UnixTime) -> Signature: ...
    def expect_receipts(self, digests: list[bytes], now: UnixTime) -> None: ...
    def sign_receipts(self, digests: list[bytes], now: UnixTime) -> Sequence[Signature]: ...
    def sign_checkpoint(self, unsigned: Checkpoint, now: UnixTime) -> Checkpoint: ...
    def sign_note(self, text: str, name: str, now: UnixTime) -> Note: ...


class PreviousLabel(Protocol):
    """Returns the label of the previous epoch, for streams that the hub knows (RESOLUTIONS H4, H9)."""

    def __call__(self, label: Label) -> Label | None: ...


class AdmittedMsg(Protocol):
    """The fields of a MSG that appending needs, besides its bytes."""

    @property
    def label(self) -> Label: ...
    @property
    def client_id(self) -> ClientId: ...
    @property
    def client_seq(self) -> ClientSeq: ...
    @property
    def auth_ref(self) -> AuthRef | None: ...


@dataclass(slots=True)
class PendingEntry:
    """An entry of a batch: its sequence number and location are decided; it is signed with its batch."""

    cursor: LabelCursor
    stream_seq: StreamSeq
    msg_bytes: bytes
    unsigned: bytes
    """The RECEIPT's first six fields."""
    digest: bytes
    """The digest that ``hub_sig`` signs."""
    flags: int
    location: Location
    nodes: list[Node]
    batch: Batch = field(repr=False)
    signed: Entry | None = None

    @property
    def label(self) -> Label:
        return self.cursor.label

    def with_signature(self, hub_sig: Signature) -> Entry:
        signed = receipts.signed_bytes(self.unsigned, hub_sig)
        return Entry(self.cursor.label, self.stream_seq, self.msg_bytes, signed, self.flags)

    @property
    def entry(self) -> Entry:
        """The entry with its receipt, which must not leave before ``commit`` has returned."""
        if self.signed is None:
            self.batch.sign()
        assert self.signed is not None
        return self.signed


class Batch:
    """One group commit that is being prepared."""

    def __init__(
        self, ledger: Ledger, signer: BatchSigner, previous_label: PreviousLabel, now: UnixTime
    ) -> None:
        self._draft = Draft(ledger)
        self._signer = signer
        self._previous_label = previous_label
        self.hub_ts = UnixTime(max(now, ledger.hub_ts))
        """``hub_ts`` of every receipt in this batch; it never decreases (RESOLUTIONS H3)."""
        self.made_after = ledger.adopted
        """Batches committed before this one; if another was committed since, this one is refused."""
        self.items: list[Item] = []
        self._unsigned: list[PendingEntry] = []

    # --- for admission

    def label(self, label: Label) -> LabelCursor | None:
        return self._draft.label(label)

    @property
    def view(self) -> Draft:
        """Cursors, tokens and rate buckets, with the changes of this batch."""
        return self._draft

    @property
    def length(self) -> int:
        """Number of items so far. If a failed action has added none, the batch is still usable."""
        return len(self.items) + len(self._unsigned)

    # --- for the sequencer

    def add(self, msg: AdmittedMsg, msg_bytes: bytes, leaf: LeafHash) -> PendingEntry:
        """Append an admitted MSG to its label."""
        cursor = self._draft.own(msg.label)
        pending = self._append(cursor, msg_bytes, leaf, 0)
        note_msg(self._draft, cursor, msg.client_id, msg.client_seq, msg.auth_ref)
        return pending

    def authorize(self, token: CapToken, token_bytes: bytes, control: Label) -> PendingEntry:
        """Append a token to the control label (RESOLUTIONS H5); the caller checks that the token is new."""
        cursor = self._draft.own(control)
        auth_ref = token.auth_ref
        pending = self._append(cursor, token_bytes, authorize_leaf(auth_ref, token_bytes), FLAG_AUTHORIZE)
        self._draft.note_token(auth_ref, token_bytes, cursor)
        return pending

    def copy_entry(self, frame: bytes) -> None:
        """Append an entry that another part of this hub has written and signed, byte for byte (``shards``).

        Raise unless it continues its label exactly. The caller has verified its receipt.
        """
        self.sign()
        cursor = self._draft.own(unframe(frame).label)
        if self._draft.must_roll(cursor, len(frame)) and cursor.checkpointed != cursor.log.size:
            self._checkpoint(cursor)
        _replay_entry(self._draft, frame)
        self.items.append(Item(journal.ENTRY, frame))

    def checkpoint(self, label: Label) -> Checkpoint | None:
        """Checkpoint a label with all its entries; None if its last checkpoint covers them."""
        cursor = self._draft.label(label)
        if cursor is None:
            raise AbsentError(f"label {label.hex()} has no entries to checkpoint")
        if cursor.checkpointed == cursor.log.size:
            return None
        return self._checkpoint(self._draft.own(label))

    def hub_checkpoint(self, origin: str) -> SignedHead | None:
        """Extend the hub log by every label that moved since the last hub checkpoint, and sign its tree (P1).

        Return None if no label moved. The hub checkpoint must not leave before ``commit`` has returned.
        """
        self.sign()
        step = hub_log.extend(self._draft, origin, self._signer, self.hub_ts)
        if step is None:
            return None
        extension = HubExtension(entries=step.bundle, checkpoint=step.signed.encode())
        self.items.append(Item(journal.HUB_CHECKPOINT, extension.encode()))
        return step.signed

    def anchor(self, label: Label, upto_seq: StreamSeq, anchor_ref: bytes) -> None:
        """Record the anchor of a checkpoint; raise unless the label has that checkpoint.

        The journal must never contain an item that cannot be applied.
        """
        record = Anchor(label=label, upto_seq=upto_seq, anchor_ref=anchor_ref)
        self.sign()
        file_anchor(self._draft, record)
        self.items.append(Item(journal.ANCHOR, record.encode()))

    def prune(self, decision: Prune) -> None:
        """Prune a sealed chunk; raise if it has no payloads, or if its label holds capability tokens."""
        self.sign()
        file_prune(self._draft, decision)
        self.items.append(Item(journal.PRUNE, decision.encode()))

    def _append(self, cursor: LabelCursor, msg_bytes: bytes, leaf: LeafHash, flags: int) -> PendingEntry:
        seq, hub_ts = StreamSeq(cursor.log.size + 1), self.hub_ts
        size = FRAME_SIZE + len(msg_bytes) + receipts.encoded_size(seq, hub_ts)
        if self._draft.must_roll(cursor, size):
            self.sign()
            if cursor.checkpointed != cursor.log.size:
                self._checkpoint(cursor)
            self._draft.seal_chunk(cursor)
        nodes = cursor.log.append(leaf)
        cursor.hub_ts = hub_ts
        unsigned = receipts.unsigned_bytes(cursor.label, seq, leaf, cursor.log.root, hub_ts)
        location = self._draft.reserve(cursor, size)
        digest = Ht("veen/sig", unsigned)
        pending = PendingEntry(cursor, seq, msg_bytes, unsigned, digest, flags, location, nodes, self)
        self._unsigned.append(pending)
        if len(self._unsigned) % SIGN_AHEAD == 0:
            self._signer.expect_receipts([each.digest for each in self._unsigned[-SIGN_AHEAD:]], hub_ts)
        return pending

    def sign(self) -> None:
        """Sign the receipts of all pending entries."""
        if not self._unsigned:
            return
        digests = [pending.digest for pending in self._unsigned]
        signatures = self._signer.sign_receipts(digests, self.hub_ts)
        if len(signatures) != len(digests):
            raise StorageError(
                f"the signer returned {len(signatures)} signatures for {len(digests)} receipts"
            )
        entries = list(map(PendingEntry.with_signature, self._unsigned, signatures))
        signed, self._unsigned = self._unsigned, []  # nothing below fails: all entries are signed, or none
        for pending, entry in zip(signed, entries, strict=True):
            digest = entry.entry_hash
            frame = entry.frame(digest)
            placed = Placed(pending.cursor.number, entry, frame, pending.location, self.hub_ts, pending.nodes)
            self._draft.fill(pending.cursor, placed, digest)
            self.items.append(Item(journal.ENTRY, frame))
            pending.signed = entry

    def _checkpoint(self, cursor: LabelCursor) -> Checkpoint:
        """Sign and file a checkpoint up to the label's last entry; H9 defines epoch and label_prev."""
        self.sign()
        profile = self._draft.ledger.registry.profile
        previous = self._previous_label(cursor.label) if cursor.checkpointed == 0 else None
        unsigned = Checkpoint(
            label_prev=previous or cursor.label,
            label_curr=cursor.label,
            upto_seq=cursor.log.stream_seq,
            mmr_root=cursor.log.root,
            epoch=stream.epoch_at(cursor.hub_ts, profile.epoch_sec),
        )
        signed = self._signer.sign_checkpoint(unsigned, self._last_moment(unsigned.epoch))
        self.items.append(Item(journal.CHECKPOINT, signed.encode()))
        file_checkpoint(self._draft, self._signer.identity, cursor, signed)
        return signed

    def _last_moment(self, epoch: Epoch) -> UnixTime:
        """The latest second of an epoch up to now: only a key active in that epoch may sign (core §8.4)."""
        epoch_sec = self._draft.ledger.registry.profile.epoch_sec
        return UnixTime(min(self.hub_ts, (epoch + 1) * epoch_sec - 1)) if epoch_sec else self.hub_ts

    @property
    def entries(self) -> list[Entry]:
        """The entries of the batch, in order."""
        self.sign()
        return [step.entry for step in self._draft.changes.steps if isinstance(step, Placed)]

    @property
    def receipts(self) -> list[Receipt]:
        """The receipts of the entries, in order."""
        return [entry.receipt for entry in self.entries]

    def finish(self, number: int) -> Changes:
        """Return the changes of this batch, which became durable under ``number``."""
        self._draft.changes.batch = number
        for cursor in self._draft.changes.heads.values():
            cursor.batch = number
        return self._draft.changes


def check_checkpoint(terms: LogTerms, cursor: LabelCursor, held: Checkpoint) -> None:
    """Raise unless a checkpoint of the label up to its last entry obeys every rule (core §4.4.1, H9)."""
    log = cursor.log
    verifier = LogVerifier(terms, size=log.size, peaks=log.peaks, hub_ts=cursor.hub_ts)
    verifier.checkpointed = cursor.checkpointed
    verifier.accept_checkpoint(held)


def file_checkpoint(draft: Draft, identity: HubIdentity, cursor: LabelCursor, checkpoint: Checkpoint) -> None:
    """Verify a checkpoint, bind it to the key that signed it, and add it to the draft."""
    signer = hub_identity.verify_checkpoint(identity, checkpoint, draft.ledger.registry.profile.epoch_sec)
    draft.note_checkpoint(cursor, checkpoint, hub_identity.bind_checkpoint(identity, signer, checkpoint))


def file_anchor(draft: Draft, record: Anchor) -> None:
    if not draft.has_checkpoint(record.label, record.upto_seq):
        raise AbsentError(f"label {record.label.hex()} has no checkpoint at {record.upto_seq} to anchor")
    draft.note_anchor(record)


def file_prune(draft: Draft, decision: Prune) -> None:
    draft.ledger.check_prune(decision)
    draft.note_prune(decision)


def replay(draft: Draft, identity: HubIdentity, item: Item) -> None:
    """Repeat what ``Batch`` did when it wrote this journal item."""
    match item.kind:
        case journal.ENTRY:
            _replay_entry(draft, item.data)
        case journal.CHECKPOINT:
            checkpoint = Checkpoint.decode(item.data)
            cursor, registry = draft.own(checkpoint.label_curr), draft.ledger.registry
            terms = LogTerms(
                label=cursor.label, identity=identity, profile=registry.profile, limits=registry.limits
            )
            check_checkpoint(terms, cursor, checkpoint)
            file_checkpoint(draft, identity, cursor, checkpoint)
        case journal.ANCHOR:
            file_anchor(draft, Anchor.decode(item.data))
        case journal.PRUNE:
            file_prune(draft, Prune.decode(item.data))
        case journal.HUB_CHECKPOINT:
            hub_log.replay(draft, identity, HubExtension.decode(item.data))
        case unknown:
            raise StorageError(f"journal item of unknown kind {unknown}: written by a newer veen")


def _replay_entry(draft: Draft, frame: bytes) -> None:
    entry = unframe(frame)
    cursor = draft.own(entry.label)
    if draft.must_roll(cursor, len(frame)):
        draft.seal_chunk(cursor)
    nodes = append_leaf(cursor, entry.receipt)
    draft.place(cursor, entry, frame, nodes, entry.entry_hash)
    if entry.is_authorize:
        token = CapToken.decode(entry.msg_bytes)
        draft.note_token(token.auth_ref, entry.msg_bytes, cursor)
    else:
        msg = entry.msg
        note_msg(draft, cursor, msg.client_id, msg.client_seq, msg.auth_ref)


def append_leaf(cursor: LabelCursor, signed: Receipt) -> list[Node]:
    """Append the leaf of a receipt that was issued earlier; raise unless it continues the label exactly."""
    where = f"entry {signed.stream_seq} of label {cursor.label.hex()}"
    if signed.stream_seq != cursor.log.size + 1:
        raise DamageError(where, None, f"does not follow entry {cursor.log.size}")
    nodes = cursor.log.append(signed.leaf_hash)
    if cursor.log.root != signed.mmr_root:
        raise DamageError(where, None, "its mmr_root does not follow from the log before it (I3)")
    cursor.hub_ts = signed.hub_ts
    return nodes


def note_msg(
    draft: Draft, cursor: LabelCursor, client: ClientId, client_seq: ClientSeq, auth_ref: AuthRef | None
) -> None:
    """Update the client's cursor and the token's rate bucket for a MSG that was appended."""
    draft.note_client(cursor, client, client_seq)
    if auth_ref is not None:
        draft.note_use(cursor, auth_ref)
