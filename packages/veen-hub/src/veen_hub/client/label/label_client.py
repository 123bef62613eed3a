"""Core's ``LabelClient`` with the steps of a client that pipelines and reads from anywhere (§9).

``submit_all`` and ``accept_receipts`` do for a batch what core does for one message, in one pass over what
is pending; ``extend`` moves the verified prefix to any receipt by proofs alone; ``at`` gives a reader that
starts inside the verified prefix. Verify first, change state last, as in core.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from veen_core.checkpoint import Checkpoint, check_transition
from veen_core.client import Gap, LabelClient
from veen_core.client_state import ClientState
from veen_core.consistency import MmrConsistency, verify_consistency
from veen_core.errors import InvariantError, ProofError, StateError, UnprovenError
from veen_core.ids import NO_ENTRIES, ClientId, ClientSeq, LeafHash, MmrRoot, StreamSeq, UnixTime
from veen_core.log_rules import step_of
from veen_core.mmr import Mmr
from veen_core.msg import SealedMsg
from veen_core.proof import MmrProof, peaks_of_proof
from veen_core.receipt import Receipt
from veen_hub.client.trust import check_signatures


class PipelinedClient(LabelClient):
    """One label's client for many messages at once."""

    __slots__ = ()

    @property
    def size(self) -> StreamSeq:
        """Of the verified prefix."""
        return self.state.last_stream_seq

    @property
    def root(self) -> MmrRoot:
        return self._log.root

    # --- sending

    def submit_all(self, sealed: Sequence[SealedMsg]) -> None:
        """``submitted`` for messages that follow each other; persist before they leave."""
        expected = self.state.client_seq + 1
        for position, one in enumerate(sealed):
            found = (one.msg.label, one.msg.client_id, one.msg.client_seq)
            if found != (self.state.label, self.state.client_id, expected + position):
                raise StateError(
                    f"a MSG with client_seq {one.msg.client_seq} is not the next one, {expected}"
                )
        self.state = dataclasses.replace(
            self.state,
            client_seq=ClientSeq(self.state.client_seq + len(sealed)),
            pending=(*self.state.pending, *(one.wire for one in sealed)),
        )
        self._messages |= {one.wire: one.msg for one in sealed}

    def accept_receipts(self, receipts: Sequence[Receipt]) -> Gap | None:
        """``accept_receipt`` for the oldest pending MSGs, in order; at a ``Gap`` none of them is accepted."""
        after, pending = self._log.copy(), self.unanswered
        if receipts and pending:
            self._note_own(after, self.state.client_id, pending[0].client_seq)
        if len(receipts) > len(pending):
            raise StateError("a receipt answers no pending MSG")
        for msg, receipt in zip(pending, receipts, strict=False):
            if msg.leaf_hash != receipt.leaf_hash:
                raise StateError(
                    f"the MSG with client_seq {msg.client_seq} has no receipt yet: settle it first"
                )
            self._verify_receipt(receipt)
            if receipt.stream_seq > after.size + 1:
                return Gap(after.size, receipt.stream_seq)
            self._refuse_within(receipt)
            try:
                after.advance(step_of(receipt, msg))  # what a MSG shows by itself holds: it was sealed here
            except InvariantError as exc:
                raise self._as_divergence(exc, receipt, None) from None
        if receipts:
            self._advance(after, receipts[-1], receipts)
        return None

    def switch(self, client_id: ClientId, created_at: UnixTime, client_seq: ClientSeq) -> None:
        """Go on under a client_id that may have been used before, from where it had come."""
        if self.state.pending:
            raise StateError("settle what is pending before changing client_id")
        self.state = dataclasses.replace(
            self.state, client_id=client_id, created_at=created_at, client_seq=client_seq
        )

    # --- the verified prefix

    def extend(self, receipt: Receipt, proof: MmrProof, consistency: MmrConsistency | None) -> None:
        """Move the verified prefix to a receipt ahead of it, without reading what lies between (B11)."""
        self._verify_receipt(receipt)
        self._refuse_within(receipt)
        after = peaks_of_proof(proof, receipt.mmr_root, receipt.stream_seq, receipt.leaf_hash)
        self._verify_extension(after, consistency, receipt.encode())
        self._advance(self._log_at(after, receipt.hub_ts), receipt, ())

    def adopt(self, state: ClientState) -> None:
        """Go on from a state that was loaded; its prefix is the one that counts."""
        fresh = PipelinedClient(state, self.trust, self.bounds)
        self.state, self._messages = fresh.state, {}
        self._log = self._log_at(fresh._tree, fresh._log.hub_ts)

    def verify_own(self, receipt: Receipt) -> None:
        """A receipt's signature, label, and agreement with the furthest one held."""
        self._verify_receipt(receipt)

    def verify_within(self, receipt: Receipt, proof: MmrProof, consistency: MmrConsistency | None) -> None:
        """A receipt inside the prefix: its leaf in its own tree, and that tree a part of ours (B10, B11)."""
        self._verify_receipt(receipt)
        tree = peaks_of_proof(proof, receipt.mmr_root, receipt.stream_seq, receipt.leaf_hash)
        self.verify_part(tree, consistency, receipt.encode())

    def verify_part(self, tree: Mmr, consistency: MmrConsistency | None, shown: bytes) -> None:
        """``tree``, whose root the hub has signed, is a prefix of the verified one, or the hub diverged."""
        self._verify_part(tree, (self._log.size, self._log.root), consistency, shown)

    def at(self, size: StreamSeq, consistency: MmrConsistency | None) -> PipelinedClient:
        """A reader that has verified ``size`` entries of this prefix; it knows the head to come."""
        if size == 0:
            tree = Mmr()
        elif size == self.size:
            tree = self._tree.copy()
        else:
            if consistency is None:
                raise StateError(f"wants a consistency proof from {size} to {self.size}")
            try:
                tree = Mmr(consistency.from_seq, consistency.peaks_from)
                verify_consistency(consistency, tree.root, self.root)
            except ProofError as exc:
                raise UnprovenError(str(exc), held=self._evidence, shown=consistency.encode()) from None
        state = dataclasses.replace(
            self.state, last_stream_seq=tree.stream_seq, peaks=tree.peaks, pending=(), checkpointed=NO_ENTRIES
        )
        return PipelinedClient(state, self.trust, self.bounds)

    @property
    def tree(self) -> Mmr:
        """A copy."""
        return self._tree.copy()

    def accept_checkpoint(
        self, checkpoint: Checkpoint, tree: Mmr, last: Receipt, *, now: UnixTime, seen: StreamSeq
    ) -> None:
        """§4.4.1's rules over a tree that is known to be a part of the prefix, and who signed it (KEX0.1).

        ``seen`` is where the last one lay when this one was asked for; others may have come since.
        """
        epoch_sec = self.trust.profile.epoch_sec
        check_signatures(self.trust.identity, checkpoint, epoch_sec, since=last.hub_ts, now=now)
        check_transition(
            checkpoint,
            tree,
            last_upto_seq=seen,
            origin=self.trust.origin,
            hub_ts=last.hub_ts,
        )
        newest = max(self.state.checkpointed, checkpoint.upto_seq)
        self.state = dataclasses.replace(self.state, checkpointed=newest)

    @property
    def pending_leaves(self) -> list[LeafHash]:
        return [msg.leaf_hash for msg in self.unanswered]
