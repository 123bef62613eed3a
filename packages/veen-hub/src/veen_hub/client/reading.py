"""Reading entries of one label: to an end, or for ever across outages (§9 Read, H15, RESYNC0.2)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from veen_core.entry import Entry
from veen_core.ids import StreamSeq
from veen_hub.client.errors import Refused, Unreachable
from veen_hub.client.label import LabelLog
from veen_hub.client.label_client import PipelinedClient

PAGE: Final = 250
"""Entries verified at a time: their crypto keeps a thread busy for a tenth of a second."""


async def read(
    log: LabelLog, from_seq: StreamSeq, to_seq: StreamSeq | None = None, page: int = PAGE
) -> AsyncGenerator[Sequence[Entry], None]:
    """Verified pages up to ``to_seq``, or to the end as the hub shows it."""
    await log.greet()
    reader: PipelinedClient | None = None
    at, more = StreamSeq(max(1, from_seq)), True
    while more and (to_seq is None or at <= to_seq):
        entries, more = await log.page(at, page, to_seq)
        if not entries:
            return
        reader = await log.accept(entries, reader)
        yield entries
        at = StreamSeq(at + len(entries))


async def follow(log: LabelLog, from_seq: StreamSeq) -> AsyncGenerator[Sequence[Entry], None]:
    """Verified entries as they become durable; reconnects and goes on at the next one.

    Raises when the hub stays away for longer than ``Retry.outage``, refuses for good, or lies.
    """
    link, at = log.link, StreamSeq(max(1, from_seq))
    attempts = link.retry.begin_following()
    reader: PipelinedClient | None = None
    while True:
        try:
            async with log.prefix:
                await log.check_head()
            attempts.renew()
            async with aclosing(link.api.live(log.label, at, link.limits)) as live:
                async for entries in live:
                    reader = await log.accept(entries, reader)
                    at = StreamSeq(at + len(entries))
                    yield entries
        except (Unreachable, Refused) as exc:
            await attempts.wait(exc)
