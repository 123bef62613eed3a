"""Evidence that a hub signed two histories, which verifies on its own (spec-1 §14, §16; AUTH1 3.4)."""

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
    """A receipt and the hub key under which it verifies."""

    hub_pk: HubPk
    receipt: Receipt


@int_map("equivocation", section="spec-1 §16")
@dataclass(frozen=True, slots=True, kw_only=True)
class Equivocation(Wire):
    """Two receipts for one (label, stream_seq) that differ in leaf_hash or mmr_root.

    The statements are in ascending order of their bytes, so that one pair gives one object.
    """

    ver: Literal[1] = 1
    first: Statement
    second: Statement


def evidence_of(a: Statement, b: Statement) -> Equivocation:
    """Put two contradicting statements into evidence; raises if they prove nothing."""
    first, second = sorted((a, b), key=Statement.encode)
    evidence = Equivocation(first=first, second=second)
    verify_evidence(evidence)
    return evidence


def verify_evidence(evidence: Equivocation, identity: HubIdentity | None = None) -> None:
    """Raise ``EvidenceError`` unless both were signed and contradict each other.

    With an ``identity``, both keys must also have been that hub's at the time: without one, the
    evidence convicts whoever holds the key it names.
    """
    first, second = evidence.first, evidence.second
    if first.encode() >= second.encode():
        raise EvidenceError("statements are not in ascending order")
    a, b = first.receipt, second.receipt
    if (a.label, a.stream_seq) != (b.label, b.stream_seq):
        raise EvidenceError("the receipts are not for one label and stream_seq")
    if (a.leaf_hash, a.mmr_root) == (b.leaf_hash, b.mmr_root):
        raise EvidenceError("the receipts agree on leaf_hash and mmr_root")
    if identity is None and first.hub_pk != second.hub_pk:
        raise EvidenceError("two keys: only the hub's identity shows that both are one hub's")
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
    """A key that was not the hub's at that time convicts its thief, not the hub (§8.4)."""
    active = identity.active_at(statement.receipt.hub_ts)
    if all(key.hub_pk != statement.hub_pk for key in active):
        when = statement.receipt.hub_ts
        raise EvidenceError(
            f"key {statement.hub_pk.hex()} was not one of hub {identity.hub_id.hex()} at {when}"
        )
