"""The calls of a replica: a snapshot of the whole hub, and its journal as it grows (P9, ADR 0019).

Both contain only what the other read endpoints serve too: messages, receipts, checkpoints, the hub log.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from itertools import islice
from typing import Final

from veen_core.errors import ApiError
from veen_core.ids import Coid
from veen_core.rejection import Code
from veen_hub.api.content import CBOR_SEQ
from veen_hub.api.reading import number_of
from veen_hub.api.reply import StreamedReply
from veen_hub.api.request import ApiRequest
from veen_hub.hub import Hub
from veen_hub.pipeline.threads import in_own_thread
from veen_hub.replica.announcements import ReplicaConnection
from veen_hub.replica.items import (
    ALIVE_SEC,
    COIDS_PER_ITEM,
    Alive,
    AttachmentIds,
    Batches,
    HandoverItem,
    Hello,
    PublishedItem,
    ReplicaItem,
    encode_item,
)
from veen_storage import AbsentError, BatchesGoneError, JournalFeed

SNAPSHOT_PARTS: Final = 4
"""Parts of a snapshot, of up to 1 MiB each, that wait to be sent."""


NOT_BUFFERED: Final = {"X-Accel-Buffering": "no"}


async def journal(request: ApiRequest) -> StreamedReply:
    """``GET /v1/replica/journal?after=N&size=S&root=HEX``: send each batch as soon as it is durable."""
    hub = request.hub
    after = number_of(request, "after", 0)
    await hub.log.read(lambda: _check_common_history(hub, request, after))
    parts = _journal_parts(hub, after, request.peer.lost)
    return await StreamedReply.begin(CBOR_SEQ, parts, dict(NOT_BUFFERED))


async def _journal_parts(hub: Hub, after: int, gone: asyncio.Event) -> AsyncGenerator[bytes, None]:
    feed = hub.store.journal_feed(after)
    replica = hub.announcements.join()
    try:
        data, _count = await _read(hub, feed)
        yield encode_item(Hello(*hub.store.artifacts()))
        last = hub.store.last_batch
        yield encode_item(Batches(data, last) if data else Alive(last))
        async for item in _items(hub, feed, replica, gone):
            yield encode_item(item)
    finally:
        hub.announcements.leave(replica)
        feed.close()


def _check_common_history(hub: Hub, request: ApiRequest, after: int) -> None:
    """Raise E.CONFLICT if the replica has entries that this hub lacks: one of them was restored or forked."""
    last, hub_log = hub.store.last_batch, hub.store.hub_log
    if after > last:
        raise ApiError(
            Code.CONFLICT, f"this hub is behind: its last batch is {last}, and the replica has {after}"
        )
    size, root = number_of(request, "size", 0), request.query.get("root", "")
    if not size:
        return
    try:
        same = hub_log.root_at(size).hex() == root
    except AbsentError:
        same = False
    if not same:
        raise ApiError(
            Code.CONFLICT,
            f"the hub log has another history: this hub has {hub_log.size} entries, and another root than "
            f"the replica at {size}",
        )


async def _read(hub: Hub, feed: JournalFeed) -> tuple[bytes, int]:
    try:
        return await hub.log.read(feed.read)
    except BatchesGoneError as exc:
        raise ApiError(Code.NOT_FOUND, str(exc)) from None


async def _items(
    hub: Hub, feed: JournalFeed, replica: ReplicaConnection, gone: asyncio.Event
) -> AsyncIterator[ReplicaItem]:
    """Yield what the replica does not have yet, until it is gone or the hub stops."""
    async for coids in _all_attachments(hub):
        yield AttachmentIds(coids)
    published, handover = None, None
    while True:
        changed, drained = hub.announcements.changed, hub.log_ended.is_set()  # before reading
        data, _count = await _read(hub, feed)
        if data:
            yield Batches(data, hub.store.last_batch)
            continue
        if replica.coids:
            coids, replica.coids = tuple(replica.coids[:COIDS_PER_ITEM]), replica.coids[COIDS_PER_ITEM:]
            yield AttachmentIds(coids)
            continue
        newest, has_hub_log = hub.store.hub_log.published, hub.replica_source.has_hub_log
        if newest is not None and newest is not published and has_hub_log(newest.head.size):
            published = newest
            yield PublishedItem(newest)
            continue
        ended = hub.handover
        if ended is not None and handover is None and has_hub_log(ended.signed_head.head.size):
            handover = ended
            yield HandoverItem(handover)
            continue
        if drained or gone.is_set():
            return
        if not await _first(changed, hub.log_ended, gone):
            yield Alive(hub.store.last_batch)


async def _first(*events: asyncio.Event) -> bool:
    """Wait until one of the events is set; return False after ``ALIVE_SEC``."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waiting, timeout=ALIVE_SEC, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
    return bool(done)


async def _all_attachments(hub: Hub) -> AsyncIterator[tuple[Coid, ...]]:
    coids: Iterator[Coid] = hub.store.attachments.coids()
    while some := await hub.log.read(lambda: tuple(islice(coids, COIDS_PER_ITEM))):
        yield some


async def snapshot(request: ApiRequest) -> StreamedReply:
    """``GET /v1/replica/snapshot``: send everything that is applied, except attachments and keys."""
    hub = request.hub
    if hub.snapshot_running:
        raise ApiError(Code.UNAVAILABLE, "another replica is copying this hub already", retry_after=10)
    return await StreamedReply.begin(CBOR_SEQ, _snapshot_parts(hub), dict(NOT_BUFFERED))


async def _snapshot_parts(hub: Hub) -> AsyncGenerator[bytes, None]:
    """Run the copy in a thread of its own, which waits while the client does not read."""
    hub.snapshot_running = True
    loop = asyncio.get_running_loop()
    parts: asyncio.Queue[bytes | None] = asyncio.Queue(SNAPSHOT_PARTS)
    ended = asyncio.Event()

    async def put(part: bytes | None) -> None:
        if ended.is_set():
            raise ConnectionError("the replica has disconnected")
        await parts.put(part)

    def copy() -> None:
        def emit(part: bytes) -> None:
            asyncio.run_coroutine_threadsafe(put(part), loop).result()

        try:
            hub.replica_source.send_snapshot(emit)
        finally:
            with contextlib.suppress(ConnectionError):
                asyncio.run_coroutine_threadsafe(put(None), loop).result()

    copying: asyncio.Future[None] | None = None
    try:
        copying = in_own_thread(copy, "veen-snapshot")
        while (part := await parts.get()) is not None:
            yield part
        await copying  # raises the error that ended the copy early: the replica then lacks the last item
    finally:
        ended.set()
        while not parts.empty():
            parts.get_nowait()
        if copying is not None:
            with contextlib.suppress(BaseException):
                await asyncio.wait_for(asyncio.shield(copying), timeout=None)
        hub.snapshot_running = False
