"""Reading a label's entries to the end, and following a label or a stream across outages (§9, H15).

Under a profile with epochs (§12) all labels that take messages now are followed at once. Within a label the
order is the hub's. Between labels there is no order: their entries are yielded as they arrive. A label is
dropped when its window has passed, since the hub accepts no more messages for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Final

from veen_core.entry import Entry
from veen_core.errors import VeenError
from veen_core.ids import Epoch, Label, StreamSeq
from veen_core.pipelined_client import PipelinedClient
from veen_hub.client.errors import Refused, Unreachable
from veen_hub.client.label.label_log import LabelLog
from veen_hub.client.reading.one_ahead import one_ahead
from veen_hub.client.sending.epochs import current_window
from veen_hub.client.wire.connection import HubConnection

PAGE_ENTRIES: Final = 250
"""Entries fetched, verified and opened at a time: about 0.1 s of cryptography in threads."""
GRACE_SECONDS: Final = 2.0
"""Time after the end of a label's window until the label is read one last time and dropped."""
BULK_PAGE_ENTRIES: Final = 1_000
"""Entries that a reader of long logs fetches and verifies at a time; a page has at most 8 MiB."""
MAX_QUEUED_PAGES: Final = 64
"""Pages of all labels that wait for the consumer."""

OpenLabel = Callable[[Epoch], Awaitable[LabelLog]]
LeaveLabel = Callable[[Label], Awaitable[None]]


async def read(
    log: LabelLog, from_seq: StreamSeq, to_seq: StreamSeq | None = None, page: int | None = None
) -> AsyncGenerator[Sequence[Entry], None]:
    """Yield verified pages up to ``to_seq``, or to the end of the log; one page is fetched ahead."""
    await log.check_head_once()
    reader: PipelinedClient | None = None
    async with aclosing(one_ahead(_fetch(log, from_seq, to_seq, page or PAGE_ENTRIES))) as pages:
        async for entries in pages:
            reader = await log.accept(entries, reader)
            yield entries


async def _fetch(
    log: LabelLog, from_seq: StreamSeq, to_seq: StreamSeq | None, page: int
) -> AsyncGenerator[Sequence[Entry], None]:
    """Yield pages that are not yet verified."""
    at, more = StreamSeq(max(1, from_seq)), True
    while more and (to_seq is None or at <= to_seq):
        entries, more = await log.page(at, page, to_seq)
        if not entries:
            return
        yield entries
        at = StreamSeq(at + len(entries))


async def follow(log: LabelLog, from_seq: StreamSeq) -> AsyncGenerator[Sequence[Entry], None]:
    """Yield verified entries as they become durable; after an outage, reconnect and continue.

    Raises if an outage exceeds ``Retry.max_outage``, if the hub refuses for good, or if an answer does not
    verify.
    """
    connection, at = log.connection, StreamSeq(max(1, from_seq))
    attempts = connection.retry.begin_following()
    reader: PipelinedClient | None = None
    while True:
        opened: float | None = None
        try:
            async with log.prefix:
                await log.check_head(once=True)
            async with aclosing(connection.api.live(log.label, at, connection.limits)) as live:
                with log.followers.follower() as follower:
                    async for entries in live:
                        if opened is None:
                            opened = time.monotonic()
                            attempts.extend()
                        if entries:
                            reader = await log.accept(entries, reader)
                            at = StreamSeq(at + len(entries))
                            log.followers.advance(follower, at - 1)
                            attempts.renew()
                            log.followers.pause(follower)
                            yield entries
                            log.followers.advance(follower, at - 1)
            why: Unreachable | Refused = Unreachable(f"{connection.api.transport.url}: the live stream ended")
        except (Unreachable, Refused) as exc:
            why = exc
        if opened is not None and time.monotonic() - opened >= connection.retry.max_delay:
            attempts.renew()  # the stream was open for long: restart the backoff
        await attempts.wait(why)


# --- all labels of a stream


async def follow_epochs(
    connection: HubConnection, open_label: OpenLabel, leave_label: LeaveLabel
) -> AsyncGenerator[Sequence[Entry], None]:
    """Yield entries of every label, from the oldest that takes messages now on."""
    arrived: asyncio.Queue[Sequence[Entry] | VeenError] = asyncio.Queue(MAX_QUEUED_PAGES)
    tasks: dict[int, asyncio.Task[None]] = {}

    async def follow_one(epoch: Epoch) -> None:
        try:
            log = await open_label(epoch)
            await _follow_label(log, epoch, arrived)
            await leave_label(log.label)
        except VeenError as exc:
            await arrived.put(exc)

    starting = asyncio.create_task(_start_epochs(connection, follow_one, tasks))
    try:
        while True:
            item = await arrived.get()
            if isinstance(item, VeenError):
                raise item
            yield item
    finally:
        everything = [starting, *tasks.values()]
        for task in everything:
            task.cancel()
        await asyncio.gather(*everything, return_exceptions=True)


async def _start_epochs(
    connection: HubConnection,
    follow_one: Callable[[Epoch], Coroutine[None, None, None]],
    tasks: dict[int, asyncio.Task[None]],
) -> None:
    """Start following each epoch when its window opens, and drop the tasks of epochs that have ended."""
    while True:
        current = current_window(connection)
        for epoch in current:
            if epoch not in tasks:
                tasks[epoch] = asyncio.create_task(follow_one(Epoch(epoch)))
        for epoch in [epoch for epoch, task in tasks.items() if task.done() and epoch < current.start]:
            del tasks[epoch]
        seconds = connection.profile.epoch_sec
        await asyncio.sleep(max(0.05, seconds - connection.time.exact() % seconds))


async def _follow_label(
    log: LabelLog, epoch: Epoch, arrived: asyncio.Queue[Sequence[Entry] | VeenError]
) -> None:
    """Follow one label until its window has passed."""
    connection, at = log.connection, StreamSeq(1)
    skew = connection.limits.max_epoch_skew_sec // connection.profile.epoch_sec
    end = (epoch + skew + 1) * connection.profile.epoch_sec + GRACE_SECONDS
    try:
        async with (
            asyncio.timeout(max(0.0, end - connection.time.exact())),
            aclosing(follow(log, at)) as live,
        ):
            async for entries in live:
                await arrived.put(entries)
                at = StreamSeq(entries[-1].stream_seq + 1)
    except TimeoutError:
        async with aclosing(read(log, at)) as rest:
            async for entries in rest:
                await arrived.put(entries)
