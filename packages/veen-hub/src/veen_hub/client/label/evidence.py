"""Evidence against a hub that contradicts itself: receipts, and heads in its hub log (spec-1 §14, P1).

The client writes the evidence into its state store before it raises ``Diverged``: it may have the only copy
of the receipt that the hub signed first.
"""

from __future__ import annotations

import contextlib

from veen_core.equivocation import Equivocation, Statement, verify_evidence
from veen_core.errors import DecodeError, DivergenceError, StateError, VeenError, VerificationError
from veen_core.hub_fork import HubLogFork, LabelFork, LabelStatement, verify_label_fork
from veen_core.hub_identity import HubIdentity, verify_receipt
from veen_core.hub_log import HubProofResponse
from veen_core.ids import Label
from veen_core.receipt import Receipt
from veen_core.tlog.tree_head import parse_signed_head
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


def find_label_fork(identity: HubIdentity, receipt: Receipt, shown: HubProofResponse) -> LabelFork | None:
    """Return evidence that a receipt and a head in the hub log contradict each other, if they do."""
    with contextlib.suppress(VeenError):
        evidence = LabelFork(
            identity=identity,
            origin=parse_signed_head(shown.checkpoint).head.origin,
            earlier=LabelStatement(receipt=receipt),
            later=LabelStatement(
                head=shown.head, index=shown.index, proof=shown.proof, checkpoint=shown.checkpoint
            ),
        )
        verify_label_fork(evidence)
        return evidence
    return None


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
    equivocation: Equivocation | None = None,
    *,
    fork: HubLogFork | LabelFork | None = None,
    suffix: str = "cbor",
) -> Diverged:
    """Write the evidence into the state store; returns the error that names its folder.

    ``suffix`` of the two statements' files is ``note`` if they are hub checkpoints.
    """
    files = {
        f"held.{suffix}": found.held,
        f"shown.{suffix}": found.shown,
        "equivocation.cbor": equivocation.encode() if equivocation is not None else b"",
        "fork.cbor": fork.encode() if fork is not None else b"",
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
        equivocation=equivocation,
        fork=fork,
        folder=folder,
        unsaved=unsaved,
    )


def _receipt(wire: bytes) -> Receipt | None:
    """Decode a receipt; None for a checkpoint or an empty string."""
    try:
        return Receipt.decode(wire)
    except DecodeError:
        return None
