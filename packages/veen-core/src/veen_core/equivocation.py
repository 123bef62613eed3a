"""Evidence that a hub signed two different histories of a label (spec-1 §14, §16; AUTH1 3.4).

The evidence verifies by itself: a reader needs nothing but the hub's identity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from veen_core import hub_identity
from veen_core.errors import EvidenceError, IdentityError, SignatureError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubPk
from veen_core.receipt import Receipt, verify_receipt
from veen_core.wire import Wire, int_map


@int_map("statement", section="spec-1 §16")
@dataclass(frozen=True, slots=True, kw_only=True)
class Statement(Wire):
    """A receipt, and the hub key under which it verifies."""

    hub_pk: HubPk
    receipt: Receipt


@int_map("equivocation", section="spec-1 §16")
@dataclass(frozen=True, slots=True, kw_only=True)
class Equivocation(Wire):
    """Two receipts for the same (label, stream_seq) that differ in leaf_hash or mmr_root.

    The statements are in ascending order of their bytes, so that the same two always give the same object.
    """

    ver: Literal[1] = 1
    first: Statement
    second: Statement


def evidence_of(a: Statement, b: Statement) -> Equivocation:
    """Build evidence from two statements; raise ``EvidenceError`` if they do not contradict each other."""
    first, second = sorted((a, b), key=Statement.encode)
    evidence = Equivocation(first=first, second=second)
    verify_evidence(evidence)
    return evidence


def verify_evidence(evidence: Equivocation, identity: HubIdentity | None = None) -> None:
    """Raise ``EvidenceError`` unless both receipts are signed and contradict each other.

    With an ``identity``, both keys must also have been active keys of that hub. Without it, the
    evidence convicts the holder of the key that it names.
    """
    first, second = evidence.first, evidence.second
    if first.encode() >= second.encode():
        raise EvidenceError("the statements are not in ascending order (spec-1 §16)")
    a, b = first.receipt, second.receipt
    if (a.label, a.stream_seq) != (b.label, b.stream_seq):
        raise EvidenceError("the receipts are for different labels or stream_seqs (spec-1 §14)")
    if (a.leaf_hash, a.mmr_root) == (b.leaf_hash, b.mmr_root):
        raise EvidenceError("the receipts agree on leaf_hash and mmr_root (spec-1 §14)")
    if identity is None and first.hub_pk != second.hub_pk:
        raise EvidenceError(
            "the statements name two keys; pass the hub's identity, which shows whether both are its keys"
        )
    try:
        if identity is not None:
            hub_identity.verify_identity(identity)
        for statement in (first, second):
            verify_receipt(statement.receipt, statement.hub_pk)
            if identity is not None:
                _check_active(statement, identity)
    except (SignatureError, IdentityError) as exc:
        raise EvidenceError(str(exc)) from None


def _check_active(statement: Statement, identity: HubIdentity) -> None:
    """Check that the key was active at hub_ts; a key used outside its period may be stolen (§8.4)."""
    active = identity.active_at(statement.receipt.hub_ts)
    if all(key.hub_pk != statement.hub_pk for key in active):
        when = statement.receipt.hub_ts
        raise EvidenceError(
            f"key {statement.hub_pk.hex()} was not an active key of hub {identity.hub_id.hex()} at {when}"
        )
