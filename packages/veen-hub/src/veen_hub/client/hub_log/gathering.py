"""Gathering the hub evidence of a message: every step from its receipt to the hub checkpoint (P1, P2)."""

from __future__ import annotations

import asyncio

from veen_core import hub_log
from veen_core.errors import QuorumError, StateError
from veen_core.hub_evidence import HubEvidence, verify_evidence
from veen_core.ids import StreamSeq
from veen_core.receipt import Receipt
from veen_hub.client.errors import NotFound
from veen_hub.client.hub_log.checkpoints import verify_head_inclusion
from veen_hub.client.hub_log.confirmations import NOT_COVERED, POLL_SECONDS, Confirmations
from veen_hub.client.label.label_log import LabelLog


async def gather_evidence(
    log: LabelLog, stream_seq: StreamSeq, confirmations: Confirmations | None, timeout: float
) -> HubEvidence:
    """Gather and verify the evidence of one message; wait until the hub log covers it.

    With a policy, wait until a quorum has cosigned the hub checkpoint. After ``timeout`` seconds a
    ``QuorumError`` (with a policy) or a ``StateError`` says what is missing.
    """
    receipt = await log.receipt(stream_seq)
    why = NOT_COVERED
    try:
        async with asyncio.timeout(timeout):
            while True:
                try:
                    return await _gather(log, receipt, confirmations)
                except NotFound:
                    why = NOT_COVERED
                except QuorumError as exc:
                    why = exc.message
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        kind = QuorumError if confirmations is not None else StateError
        raise kind(
            f"message {stream_seq} of label {log.label.hex()[:16]}… has no evidence after {timeout:g} s: "
            f"{why}",
            action="try again later; `veen hub status` and `veen witness status` show whether hub and "
            "witnesses run",
        ) from None


async def _gather(log: LabelLog, receipt: Receipt, confirmations: Confirmations | None) -> HubEvidence:
    connection, stream_seq = log.connection, receipt.stream_seq
    if confirmations is not None:
        found = await confirmations.checkpoints.proof(log.label, stream_seq)
    else:
        found = await connection.ask(lambda: connection.api.hub_proof(log.label, stream_seq))
    signed = verify_head_inclusion(found)
    await log.verify_label_head(found)
    identity = connection.status.identity
    is_default = signed.head.origin == hub_log.origin_of(identity.hub_id)
    evidence = HubEvidence(
        identity=identity,
        receipt=receipt,
        proof=await log.proof(stream_seq, found.head.upto_seq),
        head=found.head,
        index=found.index,
        head_proof=found.proof,
        checkpoint=found.checkpoint,
        origin=None if is_default else signed.head.origin,
    )
    policy = confirmations.checkpoints.policy if confirmations is not None else None
    await connection.workers.run(verify_evidence, evidence, pinned=connection.hub_id, policy=policy)
    return evidence
