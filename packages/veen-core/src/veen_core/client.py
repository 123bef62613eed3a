"""The client of one label as a state machine, without IO (core §9, RESYNC0, KEX1+ 4.1).

Sending:   ``next_binding`` → seal → ``submitted`` → *persist* → send → ``accept_receipt`` → *persist*.
Reading:   ``accept_page`` for the entries that follow the verified prefix.
Jumping:   ``catch_up`` skips entries by a consistency proof; ``confirm`` accepts the receipt of one of them.
Recovery:  ``resync`` rebuilds the verified prefix from a checkpoint.

Every method verifies first and changes state last: a method that raises leaves the client as it was.
If the hub contradicts what it signed earlier, a ``DivergenceError`` carries both statements.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from veen_core import hub_identity
from veen_core.checkpoint import Checkpoint, check_transition
from veen_core.ciphertext import Binding
from veen_core.client_state import MAX_STALLS, UNUSED, ClientBounds, ClientState
from veen_core.consistency import MmrConsistency
from veen_core.entry import Entry
from veen_core.errors import InvariantError, StateError
from veen_core.ids import AuthRef, ClientId, ClientSeq, LeafHash, StreamSeq, UnixTime
from veen_core.label_prefix import Trust, VerifiedPrefix
from veen_core.log_rules import LogStep, examine
from veen_core.log_verifier import LogVerifier, SignatureCheck
from veen_core.msg import Msg, verify_signature
from veen_core.proof import MmrProof, peaks_of_proof
from veen_core.receipt import Receipt
from veen_core.signatures import verifying_ahead

__all__ = ["Gap", "LabelClient", "Trust"]

ENTRIES_PER_CHECK: Final = 32
"""Entries whose signatures are verified together. Their other checks hold the GIL, for 1 to 2 ms."""
ROTATE: Final = "rotate client_id before sending"


@dataclass(frozen=True, slots=True)
class Gap:
    """A receipt is ahead of the verified prefix: read the entries between, or ``catch_up``."""

    from_seq: StreamSeq
    to_seq: StreamSeq


class PendingMsg(NamedTuple):
    """A message without a receipt, and its leaf hash."""

    msg: Msg
    leaf: LeafHash

    @classmethod
    def decode(cls, wire: bytes) -> PendingMsg:
        msg = Msg.decode(wire)
        return cls(msg, msg.leaf_hash)


class LabelClient(VerifiedPrefix):
    """One label's client: the verified prefix, and the messages that wait for a receipt."""

    __slots__ = ("_pending", "_pending_of", "bounds")

    def __init__(self, state: ClientState, trust: Trust, bounds: ClientBounds | None = None) -> None:
        super().__init__(state, trust)
        self.bounds = bounds or ClientBounds()
        self._pending: dict[bytes, PendingMsg] = {}
        self._pending_of: tuple[bytes, ...] = ()
        """The pending MSGs of the state that ``_pending`` was made from."""
        self._check_pending()

    def _check_pending(self) -> None:
        state, pending = self.state, self.unanswered
        if len(pending) != len(state.pending):
            raise StateError("a pending MSG is in the state twice")
        first = state.client_seq - len(pending) + 1
        for position, msg in enumerate(pending):
            if (msg.label, msg.client_id, msg.client_seq) != (state.label, state.client_id, first + position):
                raise StateError(
                    f"pending MSG {position + 1} contradicts the label, client_id or client_seq of the state"
                )

    # --- sending

    def next_binding(self, now: UnixTime, auth_ref: AuthRef | None = None) -> Binding:
        """Return the binding of the next MSG, with the next client_seq and current prev_ack (core §4.1)."""
        if self.must_rotate(now):
            raise StateError("client_id has reached its bounds (KEX1+ 4.1)", action=ROTATE)
        if (furthest := self._furthest[0]) > self._log.size:
            raise StateError(
                f"the prefix was rewound to {self._log.size}, and prev_ack must not decrease (core §7)",
                action=f"read the entries up to {furthest} again before sending",
            )
        return Binding(
            profile_id=self.state.profile_id,
            label=self.state.label,
            client_id=self.state.client_id,
            client_seq=ClientSeq(self.state.client_seq + 1),
            prev_ack=self.state.last_stream_seq,
            auth_ref=auth_ref,
        )

    def submitted(self, msg: Msg) -> None:
        """Add a sealed MSG to the pending ones; persist the state before the MSG is sent."""
        state = self.state
        expected = (state.label, state.profile_id, state.client_id, state.client_seq + 1)
        if (msg.label, msg.profile_id, msg.client_id, msg.client_seq) != expected:
            raise StateError(
                f"a MSG with client_seq {msg.client_seq} is not the next one, which is {expected[3]}"
            )
        if msg.prev_ack > state.last_stream_seq:
            raise StateError(f"prev_ack {msg.prev_ack} is ahead of the verified prefix (core §7)")
        if state.pending and msg.prev_ack < (before := self.unanswered[-1].prev_ack):
            raise StateError(f"prev_ack {msg.prev_ack} is less than {before} in the previous MSG (core §7)")
        if msg.client_seq > self.bounds.max_msgs_per_client_id_per_label:
            raise StateError("client_id has reached its bounds (KEX1+ 4.1)", action=ROTATE)
        wire = msg.encode()
        verify_signature(msg, wire)
        pending = (*self.state.pending, wire)
        self.state = dataclasses.replace(self.state, client_seq=msg.client_seq, pending=pending)

    @property
    def unanswered(self) -> tuple[Msg, ...]:
        """The pending MSGs. After a crash: ask the hub for each, then confirm it or resend the same bytes."""
        return tuple(one.msg for one in self._pending_msgs)

    @property
    def pending_leaves(self) -> list[LeafHash]:
        """Leaf hashes of the pending MSGs, oldest first."""
        return [one.leaf for one in self._pending_msgs]

    @property
    def _pending_msgs(self) -> Iterable[PendingMsg]:
        """The pending MSGs, each decoded and hashed once."""
        wires, held = self.state.pending, self._pending
        if wires is not self._pending_of:
            self._pending = {wire: held.get(wire) or PendingMsg.decode(wire) for wire in wires}
            self._pending_of = wires
        return self._pending.values()

    def accept_receipt(self, receipt: Receipt) -> Gap | None:
        """Verify the hub's answer to the oldest pending MSG.

        Return None if the verified prefix now ends with this MSG, or a ``Gap`` if others wrote in between.
        """
        step = self._verify_answer(receipt)
        if receipt.stream_seq > self._log.size + 1:
            return Gap(self.state.last_stream_seq, receipt.stream_seq)
        self._refuse_within(receipt)
        log = self._log.copy()
        self._note_own(log, self.state.client_id, step.client_seq)
        try:
            log.advance(step)
        except InvariantError as exc:
            raise self._as_divergence(exc, receipt, None) from None
        self._advance(log, receipt, (receipt,))
        return None

    def catch_up(self, receipt: Receipt, proof: MmrProof, consistency: MmrConsistency | None) -> None:
        """Accept a pending MSG's receipt across a ``Gap``, without reading the entries between.

        ``proof`` includes the message in the receipt's tree. ``consistency`` shows that this tree
        extends the verified prefix; it is None only if the prefix is empty.
        """
        self._verify_answer(receipt)
        self._refuse_within(receipt)
        after = peaks_of_proof(proof, receipt.mmr_root, receipt.stream_seq, receipt.leaf_hash)
        self._verify_extension(after, consistency, receipt.encode())
        self._advance(self._log_at(after, receipt.hub_ts), receipt, (receipt,))

    def confirm(self, receipt: Receipt, proof: MmrProof, consistency: MmrConsistency | None = None) -> None:
        """Accept the receipt of a pending MSG that ``catch_up`` or ``resync`` jumped over.

        ``proof`` includes the MSG in its own receipt's tree. ``consistency`` shows that this tree is
        a prefix of the verified prefix; it is None only if the two are equal.
        """
        self._verify_answer(receipt)
        if receipt.stream_seq > self._log.size:
            raise StateError(
                f"stream_seq {receipt.stream_seq} is beyond the verified prefix", action="call accept_receipt"
            )
        tree = peaks_of_proof(proof, receipt.mmr_root, receipt.stream_seq, receipt.leaf_hash)
        self._verify_part(tree, (self._log.size, self._log.root), consistency, receipt.encode())
        self.state = dataclasses.replace(self.state, **self._answered((receipt,)))

    def refused(self) -> tuple[Msg, ...]:
        """Drop all pending MSGs after the hub's final refusal of the oldest; its client_seq is free again.

        The hub takes no client_seq out of turn, so the MSGs after it are refused too. Returns all of
        them, to be sealed anew.
        """
        if not self.state.pending:
            raise StateError("no MSG is pending")
        dropped = self.unanswered
        last = ClientSeq(dropped[0].client_seq - 1)
        self.state = dataclasses.replace(self.state, client_seq=last, pending=())
        return dropped

    def stalled(self) -> bool:
        """Count an attempt that did not move ``prev_ack``; return True from the third on.

        The caller must then refresh its keys (RESYNC0.3).
        """
        self.state = dataclasses.replace(self.state, stalls=self.state.stalls + 1)
        return self.state.stalls >= MAX_STALLS

    # --- reading

    def accept_page(self, entries: Sequence[Entry]) -> None:
        """Verify entries that follow the verified prefix: signatures, invariants, roots (core §9 Read)."""
        if not entries:
            return
        log, last = self._log.copy(), self.state.head
        if last is not None and last.stream_seq != log.size:
            last = None
        with verifying_ahead() as batch:  # a signature is reported before the faults of later entries
            signatures = self._collect_signatures(batch.claims)
            for begin in range(0, len(entries), ENTRIES_PER_CHECK):
                last = self._accept_entries(log, entries[begin : begin + ENTRIES_PER_CHECK], last, signatures)
                batch.start()
        last_used = self._last_used(entries)
        own = set(self.pending_leaves)
        answered = [r for entry in entries if (r := entry.receipt).leaf_hash in own] if own else ()
        self._advance(log, entries[-1].receipt, answered)
        self.state = dataclasses.replace(self.state, client_seq=last_used)

    def _accept_entries(
        self,
        log: LogVerifier,
        entries: Sequence[Entry],
        last: Receipt | None,
        signatures: SignatureCheck,
    ) -> Receipt | None:
        """Check the next entries on ``log``, a copy; ``last`` is the receipt before them, if it is known."""
        for entry in entries:
            self._check_place(entry, log.size + 1)
            if not entry.is_authorize and entry.msg.client_id == self.state.client_id:
                self._note_own(log, entry.msg.client_id, entry.msg.client_seq)
            try:
                log.accept(entry, signatures)
            except InvariantError as exc:
                raise self._as_divergence(exc, entry.receipt, last) from None
            last = entry.receipt
        return last

    def has_verified(self, wire: bytes) -> bool:
        return wire in self._pending

    def _check_place(self, entry: Entry, expected: int) -> None:
        """Raise unless the entry has this label and the position that was asked for."""
        for label in (entry.label, entry.receipt.label):
            if label != self.state.label:
                raise StateError(f"the entry has label {label.hex()}, not {self.state.label.hex()}")
        for seq in (entry.stream_seq, entry.receipt.stream_seq):
            if seq != expected:
                raise StateError(
                    f"the page has entry {seq} in place of {expected}", action=f"read again from {expected}"
                )

    def _last_used(self, entries: Sequence[Entry]) -> ClientSeq:
        """Return the last client_seq of this client_id, in the state or in ``entries``."""
        pending = {one.msg.client_seq: one.leaf for one in self._pending_msgs}
        used = self.state.client_seq
        for entry in entries:
            if entry.is_authorize or (msg := entry.msg).client_id != self.state.client_id:
                continue
            if pending.get(msg.client_seq, msg.leaf_hash) != msg.leaf_hash:
                raise StateError(f"client_seq {msg.client_seq} was used by another MSG", action=ROTATE)
            used = max(used, msg.client_seq)
        return used

    def _note_own(self, log: LogVerifier, client_id: ClientId, client_seq: ClientSeq) -> None:
        """Give the verifier this client's last client_seq before ``client_seq``, unless it has one.

        The verifier may lack it because a receipt was accepted by proof, without its entry. The state has
        the last client_seq with a receipt; an entry that repeats an earlier one must fail.
        """
        if client_id in log.writers:
            return
        accepted = self.state.client_seq - len(self.state.pending)
        repeated = log.size >= self._furthest[0] and client_seq <= accepted
        log.writers.put(client_id, ClientSeq(accepted if repeated else client_seq - 1))

    # --- recovering

    def resync(
        self,
        checkpoint: Checkpoint,
        last_leaf: LeafHash,
        proof: MmrProof,
        consistency: MmrConsistency | None = None,
    ) -> None:
        """Rebuild the verified prefix from a checkpoint (RESYNC0.2).

        ``proof`` includes the checkpoint's last leaf and so carries its peaks. A checkpoint beyond
        the verified prefix needs ``consistency`` from the prefix to the checkpoint. A checkpoint within
        the prefix rewinds the prefix and needs ``consistency`` from the checkpoint to the prefix; the
        caller then reads the entries after the checkpoint again.
        """
        hub_identity.verify_checkpoint(self._trust.identity, checkpoint, self._trust.profile.epoch_sec)
        if checkpoint.label_curr != self.state.label:
            raise StateError(
                f"the checkpoint is for label {checkpoint.label_curr.hex()}, not {self.state.label.hex()}"
            )
        after = peaks_of_proof(proof, checkpoint.mmr_root, checkpoint.upto_seq, last_leaf)
        check_transition(checkpoint, after, last_upto_seq=self.state.checkpointed, origin=self._trust.origin)
        if after.size >= self._furthest[0]:
            self._verify_extension(after, consistency, checkpoint.encode())
        else:
            self._verify_part(after, self._furthest, consistency, checkpoint.encode())
        self._log = self._log_at(after, None)
        self.state = dataclasses.replace(
            self.state,
            last_stream_seq=after.stream_seq,
            peaks=after.peaks,
            checkpointed=checkpoint.upto_seq,
            stalls=0,
            checkpoint=checkpoint if checkpoint.upto_seq >= self._furthest[0] else None,
        )

    # --- client_id

    def must_rotate(self, now: UnixTime) -> bool:
        """Whether client_id has reached its bounds (KEX1+ 4.1)."""
        return self.bounds.exhausted(self.state, now)

    def rotate(self, client_id: ClientId, now: UnixTime) -> None:
        """Switch to a fresh client_id; nothing that is sent links it to the old one (KEX0.2).

        The caller must pass an id that was never used on this label: its client_seq starts at 1, and the
        state knows no id but the current one.
        """
        if self.state.pending:
            raise StateError(
                "a MSG is pending under this client_id",
                action="wait for its receipt before rotating client_id",
            )
        if client_id == self.state.client_id:
            raise StateError("the new client_id is the same as the old one")
        self.state = dataclasses.replace(self.state, client_id=client_id, created_at=now, client_seq=UNUSED)

    # --- shared

    def _verify_answer(self, receipt: Receipt) -> LogStep:
        """Verify that the receipt answers the oldest pending MSG and obeys every rule except I3's root."""
        pending = self.unanswered
        if all(msg.leaf_hash != receipt.leaf_hash for msg in pending):
            raise StateError("the receipt answers no pending MSG")
        oldest = pending[0]
        if oldest.leaf_hash != receipt.leaf_hash:
            raise StateError(
                f"the MSG with client_seq {oldest.client_seq} has no receipt yet",
                action="accept its receipt first",
            )
        self._verify_receipt(receipt)
        entry = Entry(receipt.label, receipt.stream_seq, self.state.pending[0], receipt.encode())
        step = examine(entry, self._log.terms)
        LogVerifier(self._log.terms, size=receipt.stream_seq - 1, peaks=None).advance(step)
        return step

    def _answered(self, receipts: Sequence[Receipt]) -> dict[str, Any]:
        """Return the changes that remove the MSGs of these receipts and advance ``rk`` (spec-1 §9)."""
        leaves, rk = {receipt.leaf_hash for receipt in receipts}, self.state.rk
        for receipt in receipts:
            rk = rk.after(receipt.stream_seq)
        wires = zip(self.state.pending, self.pending_leaves, strict=True)
        return {"pending": tuple(wire for wire, leaf in wires if leaf not in leaves), "rk": rk}

    def _refuse_within(self, receipt: Receipt) -> None:
        if receipt.stream_seq <= self._log.size:
            raise StateError(
                f"stream_seq {receipt.stream_seq} is within the verified prefix", action="call confirm"
            )

    def _advance(self, log: LogVerifier, receipt: Receipt, answered: Sequence[Receipt]) -> None:
        """Replace the verified prefix by a longer one: the only place where it grows."""
        head = self.state.head
        furthest = receipt if head is None or receipt.stream_seq >= head.stream_seq else head
        changes = self._answered(answered)
        self._log = log
        self.state = dataclasses.replace(
            self.state,
            **changes,
            last_stream_seq=self._tree.stream_seq,
            peaks=self._tree.peaks,
            head=furthest,
            stalls=0,
            checkpoint=None,
        )
