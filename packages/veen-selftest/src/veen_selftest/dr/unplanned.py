"""An unplanned cutover: `veen hub lost` names every acknowledged message that the replica lacked (P9)."""

from __future__ import annotations

import asyncio
from typing import Final

from veen_selftest.dr.site import STREAM, Site, site
from veen_selftest.runner.check import Check, require_equal
from veen_selftest.runner.context import CheckContext

PROTOCOL_EXIT_CODE: Final = 3
"""Exit code of `veen hub lost` if a receipt is not kept."""


def _unplanned(context: CheckContext) -> None:
    """The primary is lost with messages that its replica lacks: `lost` names exactly their receipts."""
    with site(context) as made:
        kept = made.send([f"kept {n}" for n in range(15)])
        replica = made.start_replica()
        made.wait_until(
            lambda: len(made.read(replica.url, made.old_hub)) == 15, "the replica has not all 15 messages"
        )
        made.stop_replica()
        lost = made.send([f"lost {n}" for n in range(6)])
        made.lose_primary()
        made.require_no_promotion("no handover record")
        require_equal(made.promote("--unplanned")["planned"], False, "whether the promotion was planned")
        code, found = made.lost([*kept, *lost])
        require_equal((code, found["kept"]), (PROTOCOL_EXIT_CODE, 15), "exit code of lost, and receipts kept")
        named = [(each["stream_seq"], each["fate"]) for each in found["missing"]]
        require_equal(named, [(receipt.stream_seq, "lost") for receipt in lost], "receipts named as lost")
        made.start_successor()
        require_equal(_first_seq(made), 1, "stream_seq of the first message at the successor")


def _first_seq(made: Site) -> int:
    async def work() -> int:
        async with made.connect(made.successor_url, made.new_hub) as hub:
            return (await hub.stream(STREAM).send("after")).stream_seq

    return asyncio.run(work())


CHECKS: Final = (Check("dr.unplanned-cutover", "P9, goals_dr_cutover", _unplanned),)
