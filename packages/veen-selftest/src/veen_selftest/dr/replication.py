"""A replica has the primary's log and serves it under the primary's identity; it accepts no message (P9)."""

from __future__ import annotations

import asyncio
from typing import Final

from veen_core.rejection import NOT_PRIMARY
from veen_hub.client import Refused
from veen_selftest.dr.site import STREAM, Site, site
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.runner.check import Check, require, require_equal
from veen_selftest.runner.context import CheckContext


def _replica(context: CheckContext) -> None:
    """The replica serves every message, verified under the primary's hub_id, and refuses writes."""
    bodies = [f"message {n} {context.rng.random()}" for n in range(40)]
    with site(context) as made:
        made.send(bodies[:20])
        replica = made.start_replica()
        made.send(bodies[20:])
        require_equal(replica.known.identity.hub_id, made.old_hub, "hub_id that the replica shows")
        made.wait_until(
            lambda: len(made.read(replica.url, made.old_hub)) == 40, "the replica has not all 40 messages"
        )
        require_equal(made.read(replica.url, made.old_hub), bodies, "messages at the replica")
        require(_refuses(made, replica), "the replica accepts a message, or refuses it without NOT_PRIMARY")
        require_equal(made.read(made.primary.url, made.old_hub), bodies, "messages at the primary")


def _refuses(made: Site, replica: HttpHub) -> bool:
    async def work() -> bool:
        async with made.connect(replica.url, made.old_hub) as hub:
            try:
                await hub.stream(STREAM).send("to the replica")
            except Refused as exc:
                return exc.detail_enum == NOT_PRIMARY.detail
            return False

    return asyncio.run(work())


CHECKS: Final = (Check("dr.replica", "P9", _replica),)
