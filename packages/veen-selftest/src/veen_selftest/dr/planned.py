"""A planned cutover: no acknowledged message is lost, and a client that names both hubs continues (P9)."""

from __future__ import annotations

import asyncio
from typing import Final

from veen_core.receipt import Receipt
from veen_selftest.dr.site import STREAM, Site, site
from veen_selftest.runner.check import Check, require, require_equal
from veen_selftest.runner.context import CheckContext

MESSAGES_AFTER: Final = 20
"""Messages that the client sends after the successor runs."""


def _planned(context: CheckContext) -> None:
    """A client sends through a handover and a promotion: each message is there once, at one of the hubs."""
    with site(context) as made:
        made.send(["first"])
        made.start_replica()
        sent, receipts = asyncio.run(_send_through(made))
        old = made.read(made.primary.url, made.old_hub)
        new = made.read(made.successor_url, made.new_hub)
        require(len(old) > 1 and len(new) >= MESSAGES_AFTER, "the client did not send at both hubs")
        require_equal(sorted(old + new), sorted(["first", *sent]), "messages under the old and the new label")
        before = [receipt for receipt in receipts if receipt.label == receipts[0].label]
        code, found = made.lost(before)
        require_equal(
            (code, found["kept"], found["missing"]), (0, len(before), []), "receipts of the old hub"
        )


async def _send_through(made: Site) -> tuple[list[str], list[Receipt]]:
    """Replace the hub while a client sends; return the bodies and the receipts of the client."""
    cutover = asyncio.create_task(asyncio.to_thread(_replace_the_hub, made))
    sending = asyncio.create_task(_send_until(made, cutover))
    await asyncio.wait((cutover, sending), return_when=asyncio.FIRST_EXCEPTION)
    await cutover  # first, so that a failed cutover is reported and not the client's failure after it
    return await sending


def _replace_the_hub(made: Site) -> None:
    made.hand_over()
    require_equal(made.promote()["planned"], True, "whether the promotion was planned")
    made.start_successor()


async def _send_until(made: Site, cutover: asyncio.Task[None]) -> tuple[list[str], list[Receipt]]:
    """Send one message after the other until ``MESSAGES_AFTER`` were sent after the cutover."""
    sent: list[str] = []
    receipts: list[Receipt] = []
    after = 0
    async with made.connect(made.primary.url, made.old_hub, successor=made.successor_url) as hub:
        stream = hub.stream(STREAM)
        while after < MESSAGES_AFTER:
            body = f"message {len(sent)}"
            receipts.append(await stream.send(body))
            sent.append(body)
            if cutover.done():
                after += 1
    return sent, receipts


CHECKS: Final = (Check("dr.planned-cutover", "P9, goals_dr_cutover", _planned),)
