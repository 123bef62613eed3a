"""The client of one label for batches of messages and random access (core §9).

``submit_all`` and ``accept_receipts`` handle a batch in one pass over the pending messages. ``extend`` moves
the verified prefix to any receipt by proofs alone. ``at`` returns a reader that starts within the verified
prefix. Like ``LabelClient``, every method verifies first and changes state last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final, NamedTuple

from veen_core.checkpoint import Checkpoint, check_transition
from veen_core.client import Gap, LabelClient, PendingMsg
from veen_core.client_state import ClientBounds, ClientState
from veen_core.consistency import MmrConsistency, verify_consistency
from veen_core.errors import InvariantError, ProofError, StateError, UnprovenError
from veen_core.hashing import H
from veen_core.hub_identity import verify_checkpoint_signers
from veen_core.ids import NO_ENTRIES, ClientId, ClientSeq, MmrRoot, StreamSeq, UnixTime
from veen_core.label_prefix import Trust
from veen_core.log_rules import LogStep, step_of
from veen_core.log_verifier import LogVerifier
from veen_core.lru import Lru
from veen_core.mmr import Mmr
from veen_core.msg import SealedMsg
from veen_core.proof import MmrProof, peaks_of_proof
from veen_core.receipt import Receipt
from veen_core.signatures import SignatureClaim, verifying, verifying_ahead

MAX_TREES_KEPT: Final = 4
"""Trees kept for followers. A follower that is further behind asks the hub for a proof."""
MAX_OWN_ENTRIES_KEPT: Final = 256
"""Own entries whose signatures a follower does not verify again: eight batches of a followed stream."""


class CheckedReceipt(NamedTuple):
    """A receipt that obeys all rules of the log; its signature is not verified yet."""

    receipt: Receipt
    step: LogStep
    tree: Mmr | None
    """The tree of the log with the receipt's message."""


class PipelinedClient(LabelClient):
    """One label's client that sends in batches and reads from any entry on."""

    __slots__ = ("_before_own", "_own_entries")

    def __init__(self, state: ClientState, trust: Trust, bounds: ClientBounds | None = None) -> None:
        super().__init__(state, trust, bounds)
        self._before_own: dict[int, Mmr] = {}
        """The verified trees before the last own messages, by size: a follower reads these messages next."""
        self._own_entries: Lru[bytes, bool] | None = None
        """Hashes of the last own MSGs and RECEIPTs, all verified; shared with readers, None without one."""

    @property
    def size(self) -> StreamSeq:
        """Number of entries in the verified prefix."""
        return self.state.last_stream_seq

    @property
    def root(self) -> MmrRoot:
        """Root of the verified prefix."""
        return self._log.root

    # --- sending

    def submit_all(self, sealed: Sequence[SealedMsg]) -> None:
        """Add consecutive sealed MSGs to the pending ones; persist the state before they are sent."""
        expected = self.state.client_seq + 1
        for position, one in enumerate(sealed):
            found = (one.msg.label, one.msg.client_id, one.msg.client_seq)
            if found != (self.state.label, self.state.client_id, expected + position):
                raise StateError(
                    f"a MSG with client_seq {one.msg.client_seq} is not the next one, which is "
                    f"{expected + position}"
                )
        self.state = dataclasses.replace(
            self.state,
            client_seq=ClientSeq(self.state.client_seq + len(sealed)),
            pending=(*self.state.pending, *(one.wire for one in sealed)),
        )
        self._pending |= {one.wire: PendingMsg(one.msg, one.msg.leaf_hash) for one in sealed}

    def withdraw(self, count: int) -> None:
        """Drop the last ``count`` pending MSGs, which have not left; their client_seqs are free again."""
        if not 0 < count <= len(self.state.pending):
            raise StateError(f"{len(self.state.pending)} MSGs are pending, not {count}")
        self.state = dataclasses.replace(
            self.state,
            client_seq=ClientSeq(self.state.client_seq - count),
            pending=self.state.pending[:-count],
        )

    def accept_receipts(self, receipts: Sequence[Receipt]) -> Gap | None:
        """Verify the receipts of the oldest pending MSGs, in order; at a ``Gap`` none of them is accepted."""
        if len(receipts) == 1:
            return self._accept_alone(receipts[0])
        after, pending = self._log.copy(), list(self._pending_msgs)
        if receipts and pending:
            self._note_own(after, self.state.client_id, pending[0].msg.client_seq)
        if len(receipts) > len(pending):
            raise StateError("a receipt answers no pending MSG")
        with verifying_ahead() as batch:  # a signature is reported before the faults of later receipts
            signatures = self._collect_signatures(batch.claims)
            for (msg, leaf), receipt in zip(pending, receipts, strict=False):
                if leaf != receipt.leaf_hash:
                    raise StateError(
                        f"the MSG with client_seq {msg.client_seq} has no receipt yet",
                        action="accept its receipt first",
                    )
                signatures.check_receipt(receipt, receipt.encode())
                if receipt.stream_seq > after.size + 1:
                    return Gap(after.size, receipt.stream_seq)
                self._refuse_within(receipt)
                try:
                    after.advance(step_of(receipt, msg))  # the MSG itself was sealed here and needs no check
                except InvariantError as exc:
                    raise self._as_divergence(exc, receipt, None) from None
                if batch.is_assisted:
                    batch.start()
        if receipts:
            self._advance(after, receipts[-1], receipts)
        return None

    def _accept_alone(self, receipt: Receipt) -> Gap | None:
        """Verify the receipt of the oldest pending MSG, without a copy of the verified log."""
        claims: list[SignatureClaim] = []
        with verifying(claims):
            checked = self.check_receipt(receipt, claims)
        if isinstance(checked, Gap):
            return checked
        self.accept_checked(checked)
        return None

    def check_receipt(self, receipt: Receipt, claims: list[SignatureClaim]) -> CheckedReceipt | Gap:
        """Check the receipt of the oldest pending MSG, except its signature, which is added to ``claims``.

        The state and the verified prefix do not change until ``accept_checked``.
        """
        if (oldest := next(iter(self._pending_msgs), None)) is None:
            raise StateError("a receipt answers no pending MSG")
        msg, leaf = oldest
        if leaf != receipt.leaf_hash:
            raise StateError(
                f"the MSG with client_seq {msg.client_seq} has no receipt yet",
                action="accept its receipt first",
            )
        self._collect_signatures(claims).check_receipt(receipt, receipt.encode())
        if receipt.stream_seq > self._log.size + 1:
            return Gap(self._log.size, receipt.stream_seq)
        self._refuse_within(receipt)
        self._note_own(self._log, self.state.client_id, msg.client_seq)
        step = step_of(receipt, msg)  # the MSG itself was sealed here and needs no check
        try:
            return CheckedReceipt(receipt, step, self._log.check(step))
        except InvariantError as exc:
            raise self._as_divergence(exc, receipt, None) from None

    def accept_checked(self, checked: CheckedReceipt) -> None:
        """Accept what ``check_receipt`` has just returned; the caller has verified its claims."""
        self._before_own[self._log.size] = self._tree
        if len(self._before_own) > MAX_TREES_KEPT:
            del self._before_own[min(self._before_own)]
        self._log.move(checked.step, checked.tree)
        self._advance(self._log, checked.receipt, (checked.receipt,))

    def switch(self, client_id: ClientId, created_at: UnixTime, client_seq: ClientSeq) -> None:
        """Switch to a client_id that may have been used before, after its last ``client_seq``."""
        if self.state.pending:
            raise StateError(
                "a MSG is pending under this client_id",
                action="wait for its receipt before changing client_id",
            )
        self.state = dataclasses.replace(
            self.state, client_id=client_id, created_at=created_at, client_seq=client_seq
        )

    # --- reading

    def extend(self, receipt: Receipt, proof: MmrProof, consistency: MmrConsistency | None) -> None:
        """Extend the verified prefix to a receipt beyond it, without reading the entries between (B11)."""
        self._verify_receipt(receipt)
        self._refuse_within(receipt)
        after = peaks_of_proof(proof, receipt.mmr_root, receipt.stream_seq, receipt.leaf_hash)
        self._verify_extension(after, consistency, receipt.encode())
        self._advance(self._log_at(after, receipt.hub_ts), receipt, ())

    def adopt(self, state: ClientState) -> None:
        """Replace the state, and the verified prefix with it, by one that was loaded."""
        fresh = PipelinedClient(state, self.trust, self.bounds)
        self.state, self._pending, self._before_own, self._own_entries = fresh.state, {}, {}, None
        self._log = self._log_at(fresh._tree, fresh._log.hub_ts)

    def verify_own(self, receipt: Receipt) -> None:
        """Verify a receipt's signature and label, and that it agrees with the furthest receipt."""
        self._verify_receipt(receipt)

    def verify_within(self, receipt: Receipt, proof: MmrProof, consistency: MmrConsistency | None) -> None:
        """Verify a receipt within the prefix: its tree is part of the verified tree (B10, B11)."""
        self._verify_receipt(receipt)
        tree = peaks_of_proof(proof, receipt.mmr_root, receipt.stream_seq, receipt.leaf_hash)
        self.verify_part(tree, consistency, receipt.encode())

    def verify_part(self, tree: Mmr, consistency: MmrConsistency | None, shown: bytes) -> None:
        """Verify that ``tree``, whose root the hub signed (``shown``), is a prefix of the verified one."""
        self._verify_part(tree, (self._log.size, self._log.root), consistency, shown)

    def at(self, size: StreamSeq, consistency: MmrConsistency | None) -> PipelinedClient:
        """Return a client that continues after the first ``size`` entries and keeps the furthest receipt."""
        if (known := self.known_tree(size)) is not None:
            tree = known.copy()
        else:
            if consistency is None:
                raise StateError(f"this step needs a consistency proof from {size} to {self.size}")
            try:
                tree = Mmr(consistency.from_seq, consistency.peaks_from)
                verify_consistency(consistency, tree.root, self.root)
            except ProofError as exc:
                raise UnprovenError(str(exc), held=self._evidence, shown=consistency.encode()) from None
        state = dataclasses.replace(
            self.state, last_stream_seq=tree.stream_seq, peaks=tree.peaks, pending=(), checkpointed=NO_ENTRIES
        )
        if self._own_entries is None:
            self._own_entries = Lru(2 * MAX_OWN_ENTRIES_KEPT)  # a MSG and a RECEIPT each
        reader = PipelinedClient(state, self.trust, self.bounds)
        reader._own_entries = self._own_entries
        return reader

    def has_verified(self, wire: bytes) -> bool:
        own = self._own_entries
        return super().has_verified(wire) or (own is not None and len(own) > 0 and H(wire) in own)

    def _advance(self, log: LogVerifier, receipt: Receipt, answered: Sequence[Receipt]) -> None:
        if (own := self._own_entries) is not None and answered:
            leaves = {one.leaf_hash for one in answered}
            wires = zip(self.state.pending, self.pending_leaves, strict=True)
            for wire in (*(wire for wire, leaf in wires if leaf in leaves), *(r.encode() for r in answered)):
                own.put(H(wire), True)
        super()._advance(log, receipt, answered)

    def known_tree(self, size: int) -> Mmr | None:
        """Return the tree of the first ``size`` entries if this client holds it, verified; else None."""
        if size == self.size:
            return self._tree
        return self._before_own.get(size) if 0 < size < self.size else Mmr() if size == 0 else None

    @property
    def tree(self) -> Mmr:
        """A copy of the verified prefix's tree."""
        return self._tree.copy()

    def accept_checkpoint(
        self, checkpoint: Checkpoint, tree: Mmr, last: Receipt, *, now: UnixTime, seen: StreamSeq
    ) -> None:
        """Verify a checkpoint over ``tree``, a part of the verified prefix: its rules and its signers.

        ``last`` is the receipt of its last entry, ``seen`` the upto_seq of the last checkpoint when this one
        was asked for (core §4.4.1, KEX0.1).
        """
        epoch_sec = self.trust.profile.epoch_sec
        verify_checkpoint_signers(self.trust.identity, checkpoint, epoch_sec, since=last.hub_ts, now=now)
        check_transition(
            checkpoint,
            tree,
            last_upto_seq=seen,
            origin=self.trust.origin,
            hub_ts=last.hub_ts,
        )
        newest = max(self.state.checkpointed, checkpoint.upto_seq)
        self.state = dataclasses.replace(self.state, checkpointed=newest)
