"""The verified prefix of one label: how far a client has verified the log, and the newest receipt for it.

``VerifiedPrefix`` grows entry by entry (``LogVerifier``) or jumps by proofs (core §5, RESOLUTIONS B10, B11).
It keeps the furthest receipt that it ever verified. Everything that the hub signs later must agree with that
receipt; otherwise the hub has diverged, and the ``DivergenceError`` carries both statements as evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from veen_core import hub_identity
from veen_core.checkpoint import LabelOrigin
from veen_core.client_state import ClientState
from veen_core.consistency import MmrConsistency, verify_consistency
from veen_core.errors import DivergenceError, InvariantError, ProofError, StateError, UnprovenError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import MmrRoot, UnixTime
from veen_core.limits import DEFAULT_LIMITS, Limits
from veen_core.log_rules import LogTerms
from veen_core.log_verifier import MAX_WRITERS, HubSignatures, LogVerifier, SignatureCheck
from veen_core.mmr import Mmr
from veen_core.msg import Msg
from veen_core.profile import Profile
from veen_core.receipt import Receipt
from veen_core.signatures import SignatureClaim

CONTRADICTIONS: Final = frozenset({"I3", "H3"})
"""Rules whose breach in a signed receipt contradicts what the hub signed before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Facts about a hub that a client has before it reads: identity, profile, limits, origin of the label."""

    identity: HubIdentity
    profile: Profile
    limits: Limits = DEFAULT_LIMITS
    origin: LabelOrigin | None = None

    def __post_init__(self) -> None:
        hub_identity.verify_identity(self.identity)


class VerifiedPrefix:
    """The prefix of one label that a client has verified. ``state`` is all that must survive a crash."""

    __slots__ = ("_log", "_trust", "state")

    def __init__(self, state: ClientState, trust: Trust) -> None:
        if state.profile_id != trust.profile.profile_id:
            raise StateError("the client state was made under a different profile than the hub's")
        self.state = state
        self._trust = trust
        head = state.head
        known = head is not None and head.stream_seq == state.last_stream_seq
        hub_ts = head.hub_ts if head is not None and known else None
        self._log = self._log_at(Mmr(state.last_stream_seq, state.peaks), hub_ts)
        if head is not None and head.label != state.label:
            raise StateError("the receipt in the client state is for a different label")
        if head is not None and known and head.mmr_root != self._log.root:
            raise StateError("the peaks in the client state do not fold to the root of its last receipt")

    @property
    def trust(self) -> Trust:
        return self._trust

    @trust.setter
    def trust(self, trust: Trust) -> None:
        self._trust = trust
        self._log = self._log.under(self._terms, _AgainstHead(self._terms, self))

    @property
    def _terms(self) -> LogTerms:
        trust = self._trust
        return LogTerms(
            label=self.state.label,
            identity=trust.identity,
            profile=trust.profile,
            limits=trust.limits,
            origin=trust.origin,
        )

    def _log_at(self, tree: Mmr, hub_ts: UnixTime | None) -> LogVerifier:
        """Return a verifier that continues after ``tree`` and does not know the writers of its entries."""
        terms = self._terms
        return LogVerifier(
            terms,
            size=tree.size,
            peaks=tree.peaks,
            hub_ts=hub_ts,
            signatures=_AgainstHead(terms, self),
            max_writers=MAX_WRITERS,
        )

    @property
    def _tree(self) -> Mmr:
        assert self._log.tree is not None  # always started with peaks
        return self._log.tree

    @property
    def _furthest(self) -> tuple[int, MmrRoot]:
        """Size and root of the largest tree ever verified; after a rewind it is larger than the prefix."""
        head = self.state.head
        if head is not None and head.stream_seq > self._log.size:
            return head.stream_seq, head.mmr_root
        return self._log.size, self._log.root

    def has_verified(self, wire: bytes) -> bool:  # noqa: ARG002 - a prefix alone keeps no messages
        """Return whether this client made or verified the signature of exactly this MSG or RECEIPT before."""
        return False

    # --- receipts

    def _collect_signatures(self, claims: list[SignatureClaim] | None) -> SignatureCheck:
        """Return a check that compares receipts with the furthest one, and adds signatures to ``claims``.

        None: signatures are verified at once.
        """
        return _AgainstHead(self._log.terms, self, claims)

    def _verify_receipt(self, receipt: Receipt) -> None:
        """Verify hub_sig under the keys active at hub_ts, then compare with the furthest receipt."""
        hub_identity.verify_receipt(self._trust.identity, receipt)
        self.check_against_head(receipt)

    def check_against_head(self, receipt: Receipt) -> None:
        """Raise ``DivergenceError`` if a signed receipt contradicts the furthest receipt (core §9)."""
        if receipt.label != self.state.label:
            raise StateError(f"the receipt has label {receipt.label.hex()}, not {self.state.label.hex()}")
        head = self.state.head
        if head is None:
            return
        seq = receipt.stream_seq
        if (seq - head.stream_seq) * (receipt.hub_ts - head.hub_ts) < 0:
            message = f"hub_ts goes back between stream_seq {head.stream_seq} and {seq} (RESOLUTIONS H3)"
            raise self._divergence(message, receipt.encode())
        if seq != head.stream_seq:
            return
        if (receipt.leaf_hash, receipt.mmr_root) != (head.leaf_hash, head.mmr_root):
            raise self._divergence(f"the hub signed two receipts for stream_seq {seq}", receipt.encode())

    # --- proofs

    def _verify_extension(self, after: Mmr, consistency: MmrConsistency | None, shown: bytes) -> None:
        """Verify that ``after``, whose root ``shown`` signs, extends the largest verified tree."""
        size, root = self._furthest
        if size:
            self._verify_order((size, root), (after.size, after.root), consistency, shown)

    def _verify_part(
        self, tree: Mmr, whole: tuple[int, MmrRoot], consistency: MmrConsistency | None, shown: bytes
    ) -> None:
        """Verify that ``tree``, whose root the hub signed, is a prefix of the verified tree ``whole``."""
        self._verify_order((tree.size, tree.root), whole, consistency, shown)

    def _verify_order(
        self,
        smaller: tuple[int, MmrRoot],
        larger: tuple[int, MmrRoot],
        consistency: MmrConsistency | None,
        shown: bytes,
    ) -> None:
        sizes = (smaller[0], larger[0])
        if sizes[0] == sizes[1]:
            if smaller[1] != larger[1]:
                raise self._divergence(
                    f"the hub signed a tree of {sizes[0]} entries that differs from the verified one", shown
                )
            return
        if consistency is None or (consistency.from_seq, consistency.to_seq) != sizes:
            raise StateError(f"this step needs a consistency proof from {sizes[0]} to {sizes[1]}")
        try:
            verify_consistency(consistency, smaller[1], larger[1])
        except ProofError as exc:
            raise UnprovenError(str(exc), held=self._evidence, shown=shown) from None

    # --- evidence

    @property
    def _evidence(self) -> bytes:
        """The encoded CHECKPOINT or RECEIPT that the hub signed for the largest verified tree."""
        evidence = self.state.checkpoint or self.state.head
        return evidence.encode() if evidence is not None else b""

    def _divergence(self, message: str, shown: bytes, held: bytes | None = None) -> DivergenceError:
        return DivergenceError(message, held=self._evidence if held is None else held, shown=shown)

    def _as_divergence(self, error: InvariantError, receipt: Receipt, last: Receipt | None) -> Exception:
        """Return ``error``, as a ``DivergenceError`` if the hub contradicts what it signed earlier.

        ``last`` is the receipt of the previous entry, if it is known.
        """
        if error.invariant not in CONTRADICTIONS:
            return error
        held = last.encode() if error.invariant == "H3" and last is not None else None
        return self._divergence(str(error), receipt.encode(), held)


class _AgainstHead(HubSignatures):
    """Verifies signatures that the client has not verified yet; compares receipts with the furthest one."""

    __slots__ = ("_prefix",)

    def __init__(
        self, terms: LogTerms, prefix: VerifiedPrefix, later: list[SignatureClaim] | None = None
    ) -> None:
        super().__init__(terms, later)
        self._prefix = prefix

    def check_msg(self, msg: Msg, wire: bytes) -> None:
        if not self._prefix.has_verified(wire):
            super().check_msg(msg, wire)

    def check_receipt(self, receipt: Receipt, wire: bytes) -> None:
        if not self._prefix.has_verified(wire):
            super().check_receipt(receipt, wire)
        self._prefix.check_against_head(receipt)
