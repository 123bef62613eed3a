"""Evidence against a hub that contradicts itself: two of its receipts for one stream_seq (spec-1 §14).

The client writes the evidence into its state store before it raises ``Diverged``: it may have the only copy
of the receipt that the hub signed first.
"""

from __future__ import annotations

import contextlib

from veen_core.equivocation import Equivocation, Statement, verify_evidence
from veen_core.errors import DecodeError, DivergenceError, StateError, VeenError, VerificationError
from veen_core.hub_identity import HubIdentity, verify_receipt
from veen_core.ids import Label
from veen_core.receipt import Receipt
from veen_hub.client.errors import Diverged
from veen_hub.client.wire.connection import HubConnection


def find_equivocation(identity: HubIdentity, a: Receipt, b: Receipt) -> Equivocation | None:
    """Build evidence from two receipts; None if the two do not prove equivocation."""
    try:
        statements = [Statement(hub_pk=verify_receipt(identity, r).hub_pk, receipt=r) for r in (a, b)]
        first, second = sorted(statements, key=Statement.encode)
        evidence = Equivocation(first=first, second=second)
        verify_evidence(evidence, identity)
    except VerificationError:
        return None
    return evidence


async def with_evidence(connection: HubConnection, label: Label, found: DivergenceError) -> Diverged:
    """Save the evidence of a contradiction and return ``Diverged``, with an ``Equivocation`` if possible.

    The second receipt is the one that the hub has just shown, or the one that it now returns for the
    stream_seq of the receipt held.
    """
    held, shown = _receipt(found.held), _receipt(found.shown)
    evidence = None
    if held is not None:
        others = [shown] if shown is not None else []
        with contextlib.suppress(VeenError):  # the hub does not answer or denies the entry
            others.append(await connection.api.receipt(label, held.stream_seq))
        for other in others:
            evidence = evidence or find_equivocation(connection.status.identity, held, other)
    return await save_evidence(connection, found, evidence)


async def save_evidence(
    connection: HubConnection,
    found: DivergenceError,
    evidence: Equivocation | None = None,
    *,
    suffix: str = "cbor",
) -> Diverged:
    """Write the evidence into the state store; returns the error that names its folder.

    ``suffix`` of the files is ``note`` if the two statements are hub checkpoints.
    """
    files = {
        f"held.{suffix}": found.held,
        f"shown.{suffix}": found.shown,
        "equivocation.cbor": evidence.encode() if evidence is not None else b"",
    }
    files = {name: content for name, content in files.items() if content}
    folder, unsaved = None, None
    try:
        folder = await connection.workers.run(connection.store.save_evidence, connection.hub_id, files)
    except StateError as exc:  # report the divergence even if the disk is full
        unsaved = exc.message
    return Diverged(
        found.message,
        held=found.held,
        shown=found.shown,
        equivocation=evidence,
        folder=folder,
        unsaved=unsaved,
    )


def _receipt(wire: bytes) -> Receipt | None:
    """Decode a receipt; None for a checkpoint or an empty string."""
    try:
        return Receipt.decode(wire)
    except DecodeError:
        return None
