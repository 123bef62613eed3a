"""From a contradiction to something that convicts: two receipts of one hub for one place (spec-1 §14)."""

from __future__ import annotations

import contextlib

from veen_core.equivocation import Equivocation, Statement, verify_evidence
from veen_core.errors import DecodeError, DivergenceError, VeenError, VerificationError
from veen_core.hub_identity import HubIdentity, verify_receipt
from veen_core.ids import Label
from veen_core.receipt import Receipt
from veen_hub.client.errors import Diverged
from veen_hub.client.wire.connection import HubConnection


def find_equivocation(identity: HubIdentity, a: Receipt, b: Receipt) -> Equivocation | None:
    """Evidence that stands on its own, or None if these two prove nothing."""
    try:
        statements = [Statement(hub_pk=verify_receipt(identity, r).hub_pk, receipt=r) for r in (a, b)]
        first, second = sorted(statements, key=Statement.encode)
        evidence = Equivocation(first=first, second=second)
        verify_evidence(evidence, identity)
    except VerificationError:
        return None
    return evidence


def _receipt(wire: bytes) -> Receipt | None:
    try:
        return Receipt.decode(wire)
    except DecodeError:
        return None  # a checkpoint, or nothing


async def convict(connection: HubConnection, label: Label, found: DivergenceError) -> Diverged:
    """``found`` with an ``Equivocation``, if two receipts of one place can be had.

    They are the two at hand, or the one held and what the hub now shows in its place.
    """
    held, shown = _receipt(found.held), _receipt(found.shown)
    evidence = None
    if held is not None:
        others = [shown] if shown is not None else []
        with contextlib.suppress(VeenError):  # it has none, or does not answer: then there is no second one
            others.append(await connection.api.receipt(label, held.stream_seq))
        for other in others:
            evidence = evidence or find_equivocation(connection.status.identity, held, other)
    return Diverged(str(found), held=found.held, shown=found.shown, equivocation=evidence)
