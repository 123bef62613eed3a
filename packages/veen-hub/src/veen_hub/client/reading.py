"""Reading entries of one label: to an end, or for ever across outages (§9 Read, H15, RESYNC0.2)."""

from __future__ import annotations

import time
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
        opened: float | None = None
        try:
            async with log.prefix:
                await log.check_head()
            async with aclosing(link.api.live(log.label, at, link.limits)) as live:
                async for entries in live:
                    if opened is None:
                        opened = time.monotonic()
                        attempts.heard()
                    if entries:
                        reader = await log.accept(entries, reader)
                        at = StreamSeq(at + len(entries))
                        attempts.renew()
                        yield entries
            why: Unreachable | Refused = Unreachable(f"{link.api.transport.url}: the live stream ended")
        except (Unreachable, Refused) as exc:
            why = exc
        if opened is not None and time.monotonic() - opened >= link.retry.longest:
            attempts.renew()  # it stood, only silent: to ask again soon hammers nobody
        await attempts.wait(why)
