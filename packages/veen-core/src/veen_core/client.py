"""The client as a state machine, one per label (§9, RESYNC0, KEX1+ 4.1). No IO: bytes in, bytes out.

A submission goes ``next_binding`` → seal → ``submitted`` → *persist* → send → ``accept_receipt`` →
*persist*. Reading goes ``accept_page`` for what follows the verified prefix; ``catch_up`` jumps over
entries that were not read, by a consistency proof; ``resync`` rebuilds the prefix from a checkpoint;
``confirm`` settles a message that lies in a stretch that was jumped over.

Every method verifies first and changes state last: one that raises leaves the client as it was.
A contradiction of something the hub signed earlier is a ``DivergenceError`` that carries both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from veen_core import hub_identity
from veen_core.cap import verify_token
from veen_core.checkpoint import Checkpoint, LabelOrigin, check_transition
from veen_core.ciphertext import Binding
from veen_core.client_state import MAX_STALLS, UNUSED, ClientBounds, ClientState
from veen_core.consistency import MmrConsistency, verify_consistency
from veen_core.entry import Entry, verify_authorize
from veen_core.errors import (
    DivergenceError,
    InvariantError,
    ProofError,
    StateError,
    UnprovenError,
    VerificationError,
)
from veen_core.hub_identity import HubIdentity
from veen_core.ids import AuthRef, ClientId, ClientSeq, LeafHash, MmrRoot, StreamSeq, UnixTime
from veen_core.invariants import Before, verify_pair
from veen_core.limits import DEFAULT_LIMITS, Limits
from veen_core.mmr import Mmr
from veen_core.msg import Msg, verify_signature
from veen_core.profile import Profile
from veen_core.proof import MmrProof, peaks_of_proof
from veen_core.receipt import Receipt
from veen_core.stream import control_label, routing_key

MAX_WRITERS: Final = 4_096
"""Writers whose client_seq is followed in memory; the longest unseen is forgotten first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """What a client holds a hub to."""

    identity: HubIdentity
    profile: Profile
    limits: Limits = DEFAULT_LIMITS
    origin: LabelOrigin | None = None

    def __post_init__(self) -> None:
        hub_identity.verify_identity(self.identity)


@dataclass(frozen=True, slots=True)
class Gap:
    """A receipt lies ahead of the verified prefix: read the entries between, or ``catch_up``."""

    from_seq: StreamSeq
    to_seq: StreamSeq


class LabelClient:
    """One label's client. ``state`` is all that must survive a crash."""

    __slots__ = ("_from_first", "_log", "_messages", "_writers", "bounds", "state", "trust")

    def __init__(self, state: ClientState, trust: Trust, bounds: ClientBounds | None = None) -> None:
        if state.profile_id != trust.profile.profile_id:
            raise StateError("the state was made under another profile than the hub's")
        self.state = state
        self.trust = trust
        self.bounds = bounds or ClientBounds()
        self._log = Mmr(state.last_stream_seq, state.peaks)
        self._messages: dict[bytes, Msg] = {}
        self._check_loaded()
        self._writers: dict[ClientId, ClientSeq] = {}
        self._from_first = not state.last_stream_seq
        """Whether every entry was read and no writer forgotten: then a new writer's first number is 1."""

    def _check_loaded(self) -> None:
        """The parts of a state fit together, or it is not this client's."""
        state, pending = self.state, self.unanswered
        first = state.client_seq - len(pending) + 1
        for position, msg in enumerate(pending):
            if (msg.label, msg.client_id, msg.client_seq) != (state.label, state.client_id, first + position):
                raise StateError(f"the state's pending MSG {position + 1} is not one of its own, in order")
        head = state.head
        if head is not None and head.label != state.label:
            raise StateError("the state holds a receipt of another label")
        if head is not None and head.stream_seq == self._log.size and head.mmr_root != self._log.root:
            raise StateError("the state's peaks do not fold to the root of its last receipt")

    # --- sending

    def next_binding(self, now: UnixTime, auth_ref: AuthRef | None = None) -> Binding:
        """The fields of the next MSG: client_seq one up, prev_ack the verified head (§4.1, B16)."""
        if self.must_rotate(now):
            raise StateError("client_id has reached its bounds: rotate it before sending (KEX1+ 4.1)")
        if (furthest := self._furthest[0]) > self._log.size:
            raise StateError(f"read again up to {furthest} before sending, prev_ack must not fall (§7)")
        return Binding(
            profile_id=self.state.profile_id,
            label=self.state.label,
            client_id=self.state.client_id,
            client_seq=ClientSeq(self.state.client_seq + 1),
            prev_ack=self.state.last_stream_seq,
            auth_ref=auth_ref,
        )

    def submitted(self, msg: Msg) -> None:
        """Take a MSG into the state; persist it before it leaves."""
        state = self.state
        expected = (state.label, state.profile_id, state.client_id, state.client_seq + 1)
        if (msg.label, msg.profile_id, msg.client_id, msg.client_seq) != expected:
            raise StateError(f"a MSG with client_seq {msg.client_seq} is not the next one, {expected[3]}")
        if msg.prev_ack > state.last_stream_seq:
            raise StateError(f"prev_ack {msg.prev_ack} is ahead of what was verified (§7)")
        if state.pending and msg.prev_ack < (before := self.unanswered[-1].prev_ack):
            raise StateError(f"prev_ack {msg.prev_ack} is behind {before} of the MSG before it (§7)")
        if msg.client_seq > self.bounds.max_msgs_per_client_id_per_label:
            raise StateError("client_id has reached its bounds: rotate it before sending (KEX1+ 4.1)")
        wire = msg.encode()
        verify_signature(msg, wire)
        pending = (*self.state.pending, wire)
        self.state = dataclasses.replace(self.state, client_seq=msg.client_seq, pending=pending)

    @property
    def unanswered(self) -> tuple[Msg, ...]:
        """What to settle after a crash: ask the hub, then resend exactly these bytes or confirm.

        Decoded once a message instead of four times (40 of 480 µs in sending one).
        """
        wires, held = self.state.pending, self._messages
        messages = tuple(held.get(wire) or Msg.decode(wire) for wire in wires)
        self._messages = dict(zip(wires, messages, strict=True))
        return messages

    def accept_receipt(self, receipt: Receipt) -> Gap | None:
        """Verify the hub's answer to a pending MSG. ``None``: done. A ``Gap``: others wrote in between."""
        self._verify_answer(receipt)
        if receipt.stream_seq > self._log.size + 1:
            return Gap(self.state.last_stream_seq, receipt.stream_seq)
        self._refuse_within(receipt)
        after = self._log.copy()
        after.append(receipt.leaf_hash)
        if after.root != receipt.mmr_root:
            raise self._diverged(
                f"mmr_root at {receipt.stream_seq} does not follow from the verified prefix", receipt
            )
        self._advance(after, receipt, (receipt,))
        self._writers.pop(self.state.client_id, None)
        return None

    def catch_up(self, receipt: Receipt, proof: MmrProof, consistency: MmrConsistency | None) -> None:
        """Accept a pending MSG's receipt across a ``Gap``, without reading what lies between.

        ``proof`` includes the message in the receipt's tree; ``consistency`` shows that tree to be
        an extension of the verified prefix, and is None only if there is no such prefix yet.
        """
        self._verify_answer(receipt)
        self._refuse_within(receipt)
        after = peaks_of_proof(proof, receipt.mmr_root, receipt.stream_seq, receipt.leaf_hash)
        self._verify_extension(after, consistency, receipt.encode())
        self._advance(after, receipt, (receipt,))
        self._forget_writers()

    def confirm(self, receipt: Receipt, proof: MmrProof, consistency: MmrConsistency | None = None) -> None:
        """Settle a pending MSG that ``catch_up`` or ``resync`` jumped over.

        ``proof`` includes it in its own receipt's tree; ``consistency`` shows that tree to be a part
        of the verified prefix, and is None only if it is the whole of it.
        """
        self._verify_answer(receipt)
        if receipt.stream_seq > self._log.size:
            raise StateError(f"stream_seq {receipt.stream_seq} is beyond the verified prefix: accept_receipt")
        tree = peaks_of_proof(proof, receipt.mmr_root, receipt.stream_seq, receipt.leaf_hash)
        self._verify_part(tree, (self._log.size, self._log.root), consistency, receipt.encode())
        self.state = self._answered((receipt,))

    def refused(self) -> tuple[Msg, ...]:
        """The hub's refusal of the oldest pending MSG is final: its client_seq is free again.

        Whatever was pending after it goes too, since the hub takes no client_seq out of turn; what
        is returned is all of it, to be sealed anew.
        """
        if not self.state.pending:
            raise StateError("no MSG is pending")
        dropped = self.unanswered
        last = ClientSeq(dropped[0].client_seq - 1)
        self.state = dataclasses.replace(self.state, client_seq=last, pending=())
        return dropped

    def stalled(self) -> bool:
        """An attempt did not move ``prev_ack``; True from the third on: refresh keys (RESYNC0.3)."""
        self.state = dataclasses.replace(self.state, stalls=self.state.stalls + 1)
        return self.state.stalls >= MAX_STALLS

    # --- reading

    def accept_page(self, entries: Sequence[Entry]) -> None:
        """Verify entries that follow the verified prefix: signatures, invariants, roots (§9 Read)."""
        log, writers = self._log.copy(), dict(self._writers)
        head = self.state.head
        receipt = head if head is not None and head.stream_seq == log.size else None
        for entry in entries:
            receipt = self._verify_entry(entry, log, writers, after=receipt)
        if receipt is None or not entries:
            return
        own = {msg.leaf_hash for msg in self.unanswered}
        answered = [r for entry in entries if (r := entry.receipt).leaf_hash in own]
        while len(writers) > MAX_WRITERS:
            del writers[next(iter(writers))]
            self._from_first = False
        last_used = self._last_used(entries)
        self._advance(log, receipt, answered)
        self._writers = writers
        self.state = dataclasses.replace(self.state, client_seq=last_used)

    def _last_used(self, entries: Sequence[Entry]) -> ClientSeq:
        """What the log shows of this client_id counts, also if this state does not know of it."""
        pending = {msg.client_seq: msg.leaf_hash for msg in self.unanswered}
        used = self.state.client_seq
        for entry in entries:
            if entry.is_authorize or (msg := entry.msg).client_id != self.state.client_id:
                continue
            if pending.get(msg.client_seq, msg.leaf_hash) != msg.leaf_hash:
                raise StateError(f"client_seq {msg.client_seq} was used by another MSG: rotate client_id")
            used = max(used, msg.client_seq)
        return used

    def _verify_entry(
        self, entry: Entry, log: Mmr, writers: dict[ClientId, ClientSeq], *, after: Receipt | None
    ) -> Receipt:
        receipt = entry.receipt
        self._verify_receipt(receipt)
        if entry.label != self.state.label:
            raise StateError(f"an entry of label {entry.label.hex()}, want {self.state.label.hex()}")
        for seq in (entry.stream_seq, receipt.stream_seq):
            if seq != log.size + 1:
                raise StateError(f"page continues at {seq}, want {log.size + 1}: read again from there")
        if after is not None and receipt.hub_ts < after.hub_ts:
            raise DivergenceError(
                f"hub_ts goes back at stream_seq {receipt.stream_seq} (H3)",
                held=after.encode(),
                shown=receipt.encode(),
            )
        if entry.is_authorize:
            self._verify_control(entry)
        else:
            self._verify_msg(entry, log, writers)
        log.append(receipt.leaf_hash)
        if log.root != receipt.mmr_root:
            raise self._diverged(
                f"mmr_root at {receipt.stream_seq} does not follow from the verified prefix", receipt
            )
        return receipt

    def _verify_control(self, entry: Entry) -> None:
        """Tokens are on the hub's own control label and nowhere else (H5); each holds by itself (§6)."""
        if entry.label != control_label(routing_key(self.trust.identity.hub_id)):
            raise VerificationError(f"entry {entry.stream_seq}: a token outside the hub's control label (H5)")
        verify_token(verify_authorize(entry), self.trust.limits)

    def _last_number(self, msg: Msg, at: int, writers: dict[ClientId, ClientSeq]) -> ClientSeq:
        """The client_seq that came before this MSG, as far as it can be known (I8, I9, B16)."""
        if (known := writers.pop(msg.client_id, None)) is not None:
            return known
        own = msg.client_id == self.state.client_id and at > self._furthest[0]
        if own and msg.client_seq <= self._last_accepted:
            return self._last_accepted  # a MSG of our own, shown a second time
        if self._from_first and not own:
            return UNUSED
        return ClientSeq(msg.client_seq - 1)

    @property
    def _last_accepted(self) -> ClientSeq:
        """The last number of our own that the hub has confirmed."""
        return ClientSeq(self.state.client_seq - len(self.state.pending))

    def _verify_msg(self, entry: Entry, log: Mmr, writers: dict[ClientId, ClientSeq]) -> None:
        msg = entry.msg
        before = Before(
            log=log,
            last_client_seq=self._last_number(msg, entry.stream_seq, writers),
            profiles=(self.state.profile_id,),
            limits=self.trust.limits,
            origin=self.trust.origin,
        )
        try:
            verify_pair(entry.msg_bytes, entry.receipt_bytes, before)
        except InvariantError as exc:
            if exc.invariant == "I3":
                raise self._diverged(str(exc), entry.receipt) from None
            raise
        verify_signature(msg, entry.msg_bytes)
        writers[msg.client_id] = msg.client_seq

    # --- recovering

    def resync(
        self,
        checkpoint: Checkpoint,
        last_leaf: LeafHash,
        proof: MmrProof,
        consistency: MmrConsistency | None = None,
    ) -> None:
        """Rebuild the verified prefix from a checkpoint (RESYNC0.2).

        ``proof`` includes the checkpoint's last leaf, and so carries its peaks. A checkpoint beyond
        the verified prefix needs ``consistency`` from it; one before it rewinds to it, with
        ``consistency`` from it to what was verified, and entries are then read again.
        """
        hub_identity.verify_checkpoint(self.trust.identity, checkpoint, self.trust.profile.epoch_sec)
        if checkpoint.label_curr != self.state.label:
            raise StateError("the checkpoint is of another label")
        after = peaks_of_proof(proof, checkpoint.mmr_root, checkpoint.upto_seq, last_leaf)
        check_transition(checkpoint, after, last_upto_seq=self.state.checkpointed, origin=self.trust.origin)
        if after.size >= self._furthest[0]:
            self._verify_extension(after, consistency, checkpoint.encode())
        else:
            self._verify_part(after, self._furthest, consistency, checkpoint.encode())
        self._log = after
        self._forget_writers()
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
        return self.bounds.exhausted(self.state, now)

    def rotate(self, client_id: ClientId, now: UnixTime) -> None:
        """Go on under a fresh client_id; the link to the old one stays local (KEX0.2).

        Fresh means never used on this label: its numbers begin at 1 again, and the state does not know
        which ids came before the last.
        """
        if self.state.pending:
            raise StateError("settle what is pending before rotating client_id")
        if client_id == self.state.client_id:
            raise StateError("a client_id does not follow itself: its client_seqs are used up")
        self.state = dataclasses.replace(self.state, client_id=client_id, created_at=now, client_seq=UNUSED)

    # --- what every path shares

    def _verify_answer(self, receipt: Receipt) -> None:
        """The receipt answers the oldest pending MSG, and the pair holds to every invariant but I3."""
        pending = self.unanswered
        if all(msg.leaf_hash != receipt.leaf_hash for msg in pending):
            raise StateError("the receipt answers no pending MSG")
        oldest = pending[0]
        if oldest.leaf_hash != receipt.leaf_hash:
            raise StateError(
                f"the MSG with client_seq {oldest.client_seq} has no receipt yet: settle it first"
            )
        self._verify_receipt(receipt)
        before = Before(
            last_stream_seq=StreamSeq(receipt.stream_seq - 1),
            last_client_seq=ClientSeq(oldest.client_seq - 1),
            profiles=(self.state.profile_id,),
            limits=self.trust.limits,
            origin=self.trust.origin,
        )
        verify_pair(self.state.pending[0], receipt.encode(), before)

    def _answered(self, receipts: Sequence[Receipt]) -> ClientState:
        """The state without these MSGs pending; each of their receipts moves ``rk`` (spec-1 §9)."""
        leaves, rk = {receipt.leaf_hash for receipt in receipts}, self.state.rk
        for receipt in receipts:
            rk = rk.after(receipt.stream_seq)
        wires = zip(self.state.pending, self.unanswered, strict=True)
        pending = tuple(wire for wire, msg in wires if msg.leaf_hash not in leaves)
        return dataclasses.replace(self.state, pending=pending, rk=rk)

    def _verify_receipt(self, receipt: Receipt) -> None:
        """hub_sig under the key of its time; then against the furthest receipt held (§8.4)."""
        hub_identity.verify_receipt(self.trust.identity, receipt)
        if receipt.label != self.state.label:
            raise StateError(f"a receipt of label {receipt.label.hex()}, want {self.state.label.hex()}")
        head = self.state.head
        if head is None:
            return
        if (receipt.stream_seq - head.stream_seq) * (receipt.hub_ts - head.hub_ts) < 0:
            raise self._diverged(
                f"hub_ts goes back between {head.stream_seq} and {receipt.stream_seq} (H3)", receipt
            )
        if receipt.stream_seq != head.stream_seq:
            return
        if (receipt.leaf_hash, receipt.mmr_root) != (head.leaf_hash, head.mmr_root):
            raise self._diverged(f"the hub signed two receipts for stream_seq {receipt.stream_seq}", receipt)

    def _forget_writers(self) -> None:
        """Entries were jumped over: what writers did in them is not known."""
        self._writers = {}
        self._from_first = False

    @property
    def _furthest(self) -> tuple[int, MmrRoot]:
        """Size and root of the largest tree ever verified: ahead of the prefix after a rewind."""
        head = self.state.head
        if head is not None and head.stream_seq > self._log.size:
            return head.stream_seq, head.mmr_root
        return self._log.size, self._log.root

    def _refuse_within(self, receipt: Receipt) -> None:
        if receipt.stream_seq <= self._log.size:
            raise StateError(f"stream_seq {receipt.stream_seq} lies within the verified prefix: confirm it")

    def _verify_extension(self, after: Mmr, consistency: MmrConsistency | None, shown: bytes) -> None:
        """``after`` extends the largest verified tree, or the hub has diverged."""
        size, root = self._furthest
        if size == 0:
            return
        if after.size == size:
            if after.root != root:
                raise self._divergence(f"another tree of {size} entries than the verified one", shown)
            return
        if consistency is None or (consistency.from_seq, consistency.to_seq) != (size, after.size):
            raise StateError(f"wants a consistency proof from {size} to {after.size}")
        try:
            verify_consistency(consistency, root, after.root)
        except ProofError as exc:
            raise UnprovenError(str(exc), held=self._held, shown=shown) from None

    def _verify_part(
        self, tree: Mmr, whole: tuple[int, MmrRoot], consistency: MmrConsistency | None, shown: bytes
    ) -> None:
        """``tree``, whose root the hub signed, is a prefix of what was verified, or the hub has diverged."""
        size, root = whole
        if tree.size == size:
            if tree.root != root:
                raise self._divergence(f"another tree of {size} entries than the verified one", shown)
            return
        if consistency is None or (consistency.from_seq, consistency.to_seq) != (tree.size, size):
            raise StateError(f"wants a consistency proof from {tree.size} to {size}")
        try:
            verify_consistency(consistency, tree.root, root)
        except ProofError as exc:
            raise UnprovenError(str(exc), held=self._held, shown=shown) from None

    def _advance(self, log: Mmr, receipt: Receipt, answered: Sequence[Receipt]) -> None:
        """The only place where the verified prefix grows."""
        head = self.state.head
        furthest = receipt if head is None or receipt.stream_seq >= head.stream_seq else head
        self._log = log
        self.state = dataclasses.replace(
            self._answered(answered),
            last_stream_seq=log.stream_seq,
            peaks=log.peaks,
            head=furthest,
            stalls=0,
            checkpoint=None,
        )

    def _diverged(self, message: str, receipt: Receipt) -> DivergenceError:
        return self._divergence(message, receipt.encode())

    def _divergence(self, message: str, shown: bytes) -> DivergenceError:
        return DivergenceError(message, held=self._held, shown=shown)

    @property
    def _held(self) -> bytes:
        """What the hub signed of the largest tree that was verified."""
        evidence = self.state.checkpoint or self.state.head
        return evidence.encode() if evidence is not None else b""
