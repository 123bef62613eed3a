"""A planned cutover: nothing acknowledged is lost, and clients that name both hubs go on."""

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
    sent: list[str] = []
    receipts: list[Receipt] = []

    def replace_the_hub() -> None:
        made.hand_over()
        done = made.promote()
        require('"planned": true' in done.stdout, f"no planned promotion: {done.stderr or done.stdout}")
        made.start_successor()

    async with made.connect(made.primary.url, made.old_hub, successor=made.successor_url) as hub:
        stream = hub.stream(STREAM)
        cutover = asyncio.create_task(asyncio.to_thread(replace_the_hub))
        left = MESSAGES_AFTER
        try:
            while left:
                body = f"message {len(sent)}"
                receipts.append(await stream.send(body))
                sent.append(body)
                left -= cutover.done()
        finally:
            await cutover  # why there is no successor comes before the client's complaint
    return sent, receipts


CHECKS: Final = (Check("dr.planned-cutover", "P9, goals_dr_cutover", _planned),)
