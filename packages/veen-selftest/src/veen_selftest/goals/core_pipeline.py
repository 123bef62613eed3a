"""``goals_core_pipeline``: from a token to a file that proves a message (products-spec-1 §7)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from veen_core.errors import VeenError
from veen_core.hub_evidence import HubEvidence, parse_evidence, verify_evidence
from veen_core.ids import HubId
from veen_core.receipt import Receipt
from veen_hub.client import Identity, Message
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.peers.overlay_reader import connected, writable_hub
from veen_selftest.runner.check import Check, ClauseViolation, require_equal
from veen_selftest.runner.context import CheckContext
from veen_selftest.trust.coverage import max_seconds

MESSAGES: Final = 20
PROVED: Final = (1, 10, MESSAGES)
"""The messages whose evidence is made: the first, one in the middle, and the last."""


def _pipeline(context: CheckContext) -> None:
    """Messages and an attachment are sent, read and proved offline; altered evidence proves nothing."""
    asyncio.run(_send_read_prove(context, writable_hub(context)))


async def _send_read_prove(context: CheckContext, hub: HttpHub) -> None:
    writer, reader = (Identity.generate(context.rng.randbytes) for _ in range(2))
    name, pinned = context.stream_name("pipeline"), hub.known.identity.hub_id
    bodies = [f"message {n} {context.rng.random()}" for n in range(MESSAGES)]
    attached = context.rng.randbytes(5_000)
    async with connected(hub, writer) as connection:
        stream = connection.stream(name, to=reader.recipient)
        receipts = [await stream.send(bodies[0], attachments=[attached])]
        receipts += [receipt async for receipt in stream.send_many(bodies[1:])]
    async with connected(hub, reader) as connection:
        source = connection.stream(name)
        messages = [message async for message in source.read()]
        require_equal([message.text for message in messages], bodies, "messages that the reader opens")
        require_equal(
            await source.attachment(messages[0], 0), attached, "the attachment of the first message"
        )
        for seq in PROVED:
            evidence = await source.evidence(seq, timeout=max_seconds(context))
            _judge(evidence, pinned, receipts[seq - 1], messages[seq - 1])


def _judge(evidence: HubEvidence, pinned: HubId, receipt: Receipt, message: Message) -> None:
    """Verify evidence against the pinned hub_id alone, and require that altered evidence is refused."""
    verdict = verify_evidence(parse_evidence(evidence.encode()), pinned=pinned)
    require_equal(
        verdict.receipt, receipt, f"the receipt that the evidence of message {message.stream_seq} proves"
    )
    other_root = replace(receipt, mmr_root=type(receipt.mmr_root)(bytes(32)))
    for what, altered, trusted in (
        ("of another root", replace(evidence, receipt=other_root), pinned),
        ("with another head", replace(evidence, index=evidence.index + 1), pinned),
        ("of another hub", evidence, HubId(bytes(32))),
    ):
        try:
            verify_evidence(parse_evidence(altered.encode()), pinned=trusted)
        except VeenError:
            continue
        raise ClauseViolation(f"evidence {what} is accepted for message {message.stream_seq}")


CHECKS: Final = (Check("goal.core-pipeline", "goals_core_pipeline", _pipeline),)
