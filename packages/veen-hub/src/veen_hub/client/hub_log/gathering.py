"""Gathering the hub evidence of a message: every step from its receipt to the hub checkpoint (P1, P2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from veen_core import hub_log
from veen_core.errors import QuorumError, SignatureError, StateError
from veen_core.hub_evidence import HubEvidence, verify_evidence
from veen_core.hub_log import HubProofResponse
from veen_core.ids import StreamSeq
from veen_core.receipt import Receipt
from veen_hub.client.errors import NotFound
from veen_hub.client.hub_log.checkpoints import verify_head_inclusion
from veen_hub.client.hub_log.confirmations import NOT_COVERED, POLL_SECONDS, Confirmations
from veen_hub.client.label.label_log import LabelLog

T = TypeVar("T")


async def gather_evidence(
    log: LabelLog, stream_seq: StreamSeq, confirmations: Confirmations | None, timeout: float
) -> HubEvidence:
    """Gather and verify the evidence of one message; wait until the hub log covers it.

    With a policy, wait until a quorum has cosigned the hub checkpoint. After ``timeout`` seconds a
    ``QuorumError`` (with a policy) or a ``StateError`` says what is missing.
    """
    receipt = await log.receipt(stream_seq)
    what = f"message {stream_seq} of label {log.label.hex()[:16]}… has no evidence"
    return await _until_covered(what, confirmations, timeout, lambda: _gather(log, receipt, confirmations))


async def gather_head(
    log: LabelLog, stream_seq: StreamSeq | None, confirmations: Confirmations | None, timeout: float
) -> HubProofResponse:
    """Return the newest head of a label in the hub log, or wait for one that covers ``stream_seq`` (P1).

    Inclusion and signatures are verified. The caller compares the head's root with the label's own log.
    """
    what = f"label {log.label.hex()[:16]}… has no head in a hub checkpoint"
    return await _until_covered(
        what, confirmations, timeout, lambda: _head(log, stream_seq, confirmations), newest=stream_seq is None
    )


async def _until_covered(
    what: str,
    confirmations: Confirmations | None,
    timeout: float,
    gather: Callable[[], Awaitable[T]],
    *,
    newest: bool = False,
) -> T:
    """Repeat a request until the hub log covers its entry; ``newest``: accept what the hub log covers now."""
    why = NOT_COVERED
    try:
        async with asyncio.timeout(timeout):
            while True:
                try:
                    return await gather()
                except NotFound:
                    if newest:
                        raise
                    why = NOT_COVERED
                except QuorumError as exc:
                    why = exc.message
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        kind = QuorumError if confirmations is not None else StateError
        raise kind(
            f"{what} after {timeout:g} s: {why}",
            action="try again later; `veen hub status` and `veen witness status` show whether hub and "
            "witnesses run",
        ) from None


async def _head(
    log: LabelLog, stream_seq: StreamSeq | None, confirmations: Confirmations | None
) -> HubProofResponse:
    connection = log.connection
    if confirmations is not None:
        found = await confirmations.checkpoints.proof(log.label, stream_seq)
    else:
        found = await connection.ask(lambda: connection.api.hub_proof(log.label, stream_seq))
    signed = verify_head_inclusion(found)
    identity = connection.status.identity
    origin = signed.head.origin
    try:
        hub_log.verify_hub_checkpoint(identity, signed, origin=origin, since=found.head.hub_ts)
    except SignatureError:
        await connection.refresh()  # the hub may have gained a key (core §8.4)
        identity = connection.status.identity
        hub_log.verify_hub_checkpoint(identity, signed, origin=origin, since=found.head.hub_ts)
    if confirmations is not None:
        confirmations.checkpoints.policy.check(signed, log_keys=hub_log.note_keys(identity, origin))
    return found


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
