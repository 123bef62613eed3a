"""The one verifier of a label's log: it takes entries and checkpoints in order and raises at the first fault.

Client, export, fsck and Spark verify logs with ``LogVerifier``. It keeps the tree, the last hub_ts, the last
client_seq of each writer and the authorized tokens; each ``accept`` checks in this order:

1. the rules that need no other entry (``log_rules.examine``);
2. its signatures, by the ``SignatureCheck`` that the verifier was given;
3. the rules between entries: I3, H3, I6, I8, I9, I12, H5;
4. the root with the new leaf (I3).

A step that raises leaves the verifier as it was. A verifier may start at any entry: with the peaks before it,
or without a tree, in which case roots are not checked and checkpoints are refused.
"""

from __future__ import annotations

from typing import Final, Protocol

from veen_core import checkpoint as checkpoints
from veen_core import hub_identity, stream
from veen_core import msg as msgs
from veen_core.cap import CapToken, verify_token
from veen_core.checkpoint import Checkpoint
from veen_core.chunk import PrunedEntry
from veen_core.entry import Entry
from veen_core.errors import CheckpointError, StateError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import (
    NO_ENTRIES,
    AuthRef,
    ClientId,
    ClientSeq,
    HubPk,
    MmrRoot,
    NodeHash,
    StreamSeq,
    UnixTime,
)
from veen_core.log_rules import (
    EPOCH,
    POSITION,
    LogStep,
    LogTerms,
    check_acknowledgement,
    check_position,
    check_token,
    check_writer,
    examine,
    examine_pruned,
)
from veen_core.lru import Lru
from veen_core.mmr import Mmr
from veen_core.msg import Msg
from veen_core.receipt import Receipt
from veen_core.signatures import SignatureClaim, verify_one

MAX_WRITERS: Final = 4_096
"""Writers whose last client_seq is held; beyond that, the writer unseen for longest is evicted."""
MAX_TOKENS: Final = 65_536
"""Authorized tokens that are held; beyond that, the one authorized first is evicted."""


class SignatureCheck(Protocol):
    """Verifies signatures, at once or later; each method raises ``VerificationError`` or returns."""

    def check_msg(self, msg: Msg, wire: bytes) -> None: ...
    def check_token(self, token: CapToken) -> None: ...
    def check_receipt(self, receipt: Receipt, wire: bytes) -> None: ...
    def check_checkpoint(self, checkpoint: Checkpoint) -> None: ...


class HubSignatures:
    """Verifies signatures, those of the hub under the keys active at their time (core §8.4).

    With ``later``, signatures of MSGs and RECEIPTs are added to that list instead. The caller must verify
    the list (``signatures.verifying``) before it relies on any entry.
    """

    __slots__ = ("_active", "_later", "terms")

    def __init__(self, terms: LogTerms, later: list[SignatureClaim] | None = None) -> None:
        self.terms = terms
        self._later = later
        self._active: tuple[int, tuple[HubPk, ...]] = (-1, ())
        """The last hub_ts and the keys active then: consecutive entries of one second reuse them."""

    def _check(self, claim: SignatureClaim) -> None:
        if self._later is None:
            verify_one(claim)
        else:
            self._later.append(claim)

    def check_msg(self, msg: Msg, wire: bytes) -> None:
        self._check(msgs.signature_claim(msg, wire))

    def check_token(self, token: CapToken) -> None:
        verify_token(token, self.terms.limits)

    def check_receipt(self, receipt: Receipt, wire: bytes) -> None:
        if self._active[0] != receipt.hub_ts:
            active = self._identity.active_at(receipt.hub_ts)
            self._active = (receipt.hub_ts, tuple(key.hub_pk for key in active))
        self._check(hub_identity.receipt_claim(self._active[1], receipt, wire))

    def check_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Verify hub_sig and the witness signatures under keys of the hub (core §8.4, RESOLUTIONS P2)."""
        profile = self.terms.profile
        epoch_sec = profile.epoch_sec if profile is not None else 0
        hub_identity.verify_checkpoint(self._identity, checkpoint, epoch_sec)
        checkpoints.verify_witnesses(checkpoint, (), [key.hub_pk for key in self._identity.hub_keys])

    @property
    def _identity(self) -> HubIdentity:
        return self.terms.identity


class LogVerifier:
    """The state of one label's log up to an entry; each ``accept…`` verifies the next item and advances."""

    __slots__ = (
        "_epoch_checked_at",
        "_from_first",
        "_signatures",
        "checkpointed",
        "hub_ts",
        "size",
        "terms",
        "tokens",
        "tree",
        "writers",
    )

    def __init__(
        self,
        terms: LogTerms,
        *,
        size: int = 0,
        peaks: tuple[NodeHash, ...] | list[bytes] | None = (),
        hub_ts: UnixTime | None = None,
        signatures: SignatureCheck | None = None,
        max_writers: int = MAX_WRITERS,
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        """Start after ``size`` entries whose tree has these peaks; None starts without a tree.

        ``hub_ts`` is that of the last of these entries, if it is known. ``signatures`` is
        ``HubSignatures(terms)`` unless another check is given.
        """
        self.terms = terms
        self.size = StreamSeq(size)
        self.tree = None if peaks is None else Mmr(size, peaks)
        self.hub_ts = hub_ts
        self.checkpointed: StreamSeq | None = NO_ENTRIES if size == 0 else None
        """upto_seq of the last checkpoint; None if an earlier one may exist that was not seen."""
        self.writers: Lru[ClientId, ClientSeq] = Lru(max_writers)
        self.tokens: Lru[AuthRef, StreamSeq] = Lru(max_tokens)
        """Where each token was authorized."""
        self._from_first = size == 0
        self._signatures = signatures if signatures is not None else HubSignatures(terms)
        self._epoch_checked_at: UnixTime | None = None

    @property
    def root(self) -> MmrRoot:
        """Root of the log so far; raises ``StateError`` without a tree."""
        return self._known_tree.root

    @property
    def _known_tree(self) -> Mmr:
        if self.tree is None:
            raise StateError("this LogVerifier was started without a tree")
        return self.tree

    @property
    def knows_all_writers(self) -> bool:
        """Whether ``writers`` has every writer so far, so that any other must start at client_seq 1."""
        return self._from_first and not self.writers.evicted

    @property
    def followed_all(self) -> bool:
        """Whether I8, I9 and H5 were checked for every entry; False once a writer or token was evicted."""
        return not (self.writers.evicted or self.tokens.evicted)

    # --- entries

    def accept(self, entry: Entry, signatures: SignatureCheck | None = None) -> LogStep:
        """Verify the next entry; ``signatures`` replaces the verifier's own check for this entry."""
        check = signatures or self._signatures
        step = examine(entry, self.terms)
        if entry.is_authorize:
            check.check_token(entry.token)
        else:
            check.check_msg(entry.msg, entry.msg_bytes)
        check.check_receipt(entry.receipt, entry.receipt_bytes)
        self.advance(step)
        return step

    def accept_pruned(self, kept: PrunedEntry, signatures: SignatureCheck | None = None) -> LogStep:
        """Verify the next entry, whose payload retention has pruned; ``signatures`` as in ``accept``."""
        step = examine_pruned(kept, self.terms)
        (signatures or self._signatures).check_receipt(kept.receipt, kept.receipt.encode())
        self.advance(step)
        return step

    def advance(self, step: LogStep) -> None:
        """Check the rules between entries and the root for a step that was examined elsewhere."""
        self.move(step, self.check(step))

    def check(self, step: LogStep) -> Mmr | None:
        """Check what ``advance`` checks, and return the tree after the step; nothing changes yet."""
        check_position(step, self.size, self.hub_ts)
        if step.client_id is not None:
            check_acknowledgement(step)
            check_writer(step, self._last_client_seq(step.client_id, step.client_seq))
            self._check_epoch(step)
        elif step.authorizes is not None:
            check_token(step, self.tokens.get(step.authorizes))
        if self.tree is None:
            return None
        tree = self.tree.copy()
        tree.add(step.leaf_hash)
        if tree.root != step.mmr_root:
            raise POSITION.broken("mmr_root does not follow from the log before it", step.stream_seq)
        return tree

    def move(self, step: LogStep, tree: Mmr | None) -> None:
        """Advance by a step that ``check`` has just checked, to the tree that it returned."""
        self.tree = tree
        self._note(step)

    def follow(self, step: LogStep) -> None:
        """Advance without checks, after the caller reported an error in this step; a gap drops the tree."""
        if step.stream_seq != self.size + 1:
            self.tree = None
        elif self.tree is not None:
            self.tree.add(step.leaf_hash)
        self._note(step)

    def _note(self, step: LogStep) -> None:
        self.size = step.stream_seq
        self.hub_ts = step.hub_ts
        if step.client_id is not None:
            self.writers.put(step.client_id, step.client_seq)
        elif step.authorizes is not None:
            self.tokens.put(step.authorizes, step.stream_seq)

    def _last_client_seq(self, client_id: ClientId, offered: ClientSeq) -> int:
        """Return the writer's last client_seq, or one that passes if the verifier may have missed it.

        The verifier misses it if it started after the first entry, or evicted the writer.
        """
        last = self.writers.get(client_id)
        if last is not None:
            return last
        return 0 if self.knows_all_writers else max(offered - 1, 0)

    def _check_epoch(self, step: LogStep) -> None:
        origin = self.terms.origin
        if origin is None or step.hub_ts == self._epoch_checked_at:
            return
        window = stream.epoch_window(step.hub_ts, origin.epoch_sec, origin.max_skew_sec)
        if all(origin.label_at(epoch) != self.terms.label for epoch in window):
            found = f"the label belongs to no epoch within the skew of hub_ts {step.hub_ts}"
            raise EPOCH.broken(found, step.stream_seq)
        self._epoch_checked_at = step.hub_ts

    # --- checkpoints

    def accept_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Verify a checkpoint of the log as it is now: core §4.4.1, RESOLUTIONS H9, signatures."""
        self._check_checkpoint(checkpoint)
        self._signatures.check_checkpoint(checkpoint)
        self.checkpointed = checkpoint.upto_seq

    def _check_checkpoint(self, checkpoint: Checkpoint) -> None:
        terms, upto = self.terms, checkpoint.upto_seq
        if checkpoint.label_curr != terms.label:
            raise CheckpointError(
                f"label_curr is {checkpoint.label_curr.hex()}, not {terms.label.hex()} (core §4.4.1)"
            )
        checkpoints.check_transition(
            checkpoint,
            self._known_tree,
            last_upto_seq=self.checkpointed or NO_ENTRIES,
            origin=terms.origin,
            hub_ts=self.hub_ts,
        )
        if upto == self.checkpointed:
            raise CheckpointError(f"upto_seq {upto} has a checkpoint already (core §4.4.1)")
        if terms.profile is None:
            return
        epoch_sec = terms.profile.epoch_sec
        checkpoints.check_epoch(checkpoint, epoch_sec, self.hub_ts)
        if checkpoint.rotates and (self.checkpointed or not epoch_sec):
            raise CheckpointError(
                "label_prev differs from label_curr after the label's first checkpoint (RESOLUTIONS H9)"
            )

    # --- copies

    def copy(self) -> LogVerifier:
        """Return an independent verifier in the same state, to try entries on."""
        return self.under(self.terms, self._signatures)

    def under(self, terms: LogTerms, signatures: SignatureCheck | None = None) -> LogVerifier:
        """Return a copy with other terms, for example after the hub has added a key to its identity."""
        twin = object.__new__(LogVerifier)
        twin.terms, twin.size, twin.hub_ts = terms, self.size, self.hub_ts
        twin.tree = self.tree.copy() if self.tree is not None else None
        twin.checkpointed, twin._from_first = self.checkpointed, self._from_first
        twin.writers, twin.tokens = self.writers.copy(), self.tokens.copy()
        twin._signatures = signatures if signatures is not None else HubSignatures(terms)
        twin._epoch_checked_at = self._epoch_checked_at if terms is self.terms else None
        return twin
