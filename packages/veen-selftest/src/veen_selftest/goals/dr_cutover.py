"""``goals_dr_cutover``: a hub is replaced as planned, and what was proved before stays proved (P9)."""

from __future__ import annotations

import asyncio
from typing import Final

from veen_selftest.dr.site import STREAM, Site, site
from veen_selftest.runner.check import Check, require_equal
from veen_selftest.runner.context import CheckContext
from veen_selftest.trust.proofs import judge_offline, make_evidence

MESSAGES_EACH: Final = 10
"""Messages before the cutover, and after it."""


def _cutover(context: CheckContext) -> None:
    """The successor keeps every receipt of the old hub, old evidence still verifies, and writers go on."""
    with site(context) as made:
        before = made.send([f"before {n}" for n in range(MESSAGES_EACH // 2)])
        made.start_replica()
        before += made.send([f"before {n}" for n in range(MESSAGES_EACH // 2, MESSAGES_EACH)])
        evidence = [make_evidence(made.primary, receipt) for receipt in before]
        made.hand_over()
        require_equal(made.promote()["planned"], True, "whether the promotion was planned")
        made.start_successor()
        bodies = [f"after {n}" for n in range(MESSAGES_EACH)]
        asyncio.run(_send(made, bodies))
        made.lose_primary()
        require_equal(made.read(made.successor_url, made.new_hub), bodies, "messages at the successor")
        code, found = made.lost(before)
        require_equal(
            (code, found["kept"], found["missing"]), (0, MESSAGES_EACH, []), "receipts of the old hub"
        )
        for receipt, file in zip(before, evidence, strict=True):
            verdict = judge_offline(made.primary, file)  # offline: the pinned hub_id is known
            require_equal(verdict.receipt, receipt, "the receipt that evidence of the old hub proves")


async def _send(made: Site, bodies: list[str]) -> None:
    """Send with a new client that knows the addresses of both hubs."""
    async with made.connect(made.primary.url, made.old_hub, successor=made.successor_url) as hub:
        for body in bodies:
            await hub.stream(STREAM).send(body)


CHECKS: Final = (Check("goal.dr-cutover", "goals_dr_cutover", _cutover),)
