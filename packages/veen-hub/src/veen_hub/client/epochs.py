"""A stream whose label changes with every epoch (§12): following it, and remembering where it was written.

Whoever follows reads all labels of the window at once. Within a label the order is the hub's; between two
labels there is none, so their entries are given as they come. A label is left when its window has passed:
the hub accepts nothing for it any more.

Labels do not tell their epochs, and their records do not tell their streams. So the epochs that were written
in are noted by stream, before a message leaves, until all that was sent under their labels is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Final

from veen_core import stream
from veen_core.entry import Entry
from veen_core.errors import VeenError
from veen_core.ids import Epoch, Label, StreamId, StreamSeq
from veen_hub.client.label import LabelLog
from veen_hub.client.link import Link
from veen_hub.client.reading import follow, read
from veen_hub.client.records import EpochsRecord
from veen_hub.client.store import update

OpenLabel = Callable[[Epoch], Awaitable[LabelLog]]
LeaveLabel = Callable[[Label], Awaitable[None]]
GRACE: Final = 2.0
"""Seconds after a window's end until its label is read one last time and left."""
_WAITING: Final = 64


def window(link: Link) -> range:
    """The epochs whose labels take messages now."""
    return stream.epoch_window(link.time.now(), link.profile.epoch_sec, link.limits.max_epoch_skew_sec)


class OpenEpochs:
    """The epochs of one stream under whose labels a message may be unanswered; kept across processes."""

    def __init__(self, link: Link, stream_id: StreamId) -> None:
        self._link = link
        self._name = f"epochs-{stream_id.hex()}"
        self._known: tuple[Epoch, ...] | None = None
        self._noted: set[Epoch] = set()

    async def before(self, epoch: Epoch) -> list[Epoch]:
        """Those that are past, oldest first."""
        link = self._link
        if self._known is None:
            self._known = _decode(await link.workers.run(link.store.load, link.hub_id, self._name))
        return [one for one in self._known if one < epoch]

    async def note(self, epoch: Epoch) -> None:
        """Before anything is sent under the epoch's label, which must be owned."""
        if epoch not in self._noted:
            await self._change(lambda epochs: epochs | {epoch})
            self._noted.add(epoch)

    async def settled(self, epoch: Epoch) -> None:
        """Nothing is open there, and nothing will be."""
        await self._change(lambda epochs: epochs - {epoch})

    async def _change(self, change: Callable[[set[Epoch]], set[Epoch]]) -> None:
        def changed(content: bytes | None) -> bytes:
            self._known = tuple(sorted(change(set(_decode(content)))))
            return EpochsRecord(epochs=self._known).encode()

        link = self._link
        await link.workers.run(
            update, link.store, link.hub_id, self._name, changed, patience=link.lock_timeout
        )


def _decode(content: bytes | None) -> tuple[Epoch, ...]:
    return EpochsRecord.decode(content).epochs if content is not None else ()


async def follow_epochs(
    link: Link, open_label: OpenLabel, leave_label: LeaveLabel
) -> AsyncGenerator[Sequence[Entry], None]:
    """Entries of every label from the oldest in the window on."""
    arrived: asyncio.Queue[Sequence[Entry] | VeenError] = asyncio.Queue(_WAITING)
    tasks: dict[int, asyncio.Task[None]] = {}

    async def follow_one(epoch: Epoch) -> None:
        try:
            log = await open_label(epoch)
            await _one(log, epoch, arrived)
            await leave_label(log.label)
        except VeenError as exc:
            await arrived.put(exc)

    turning = asyncio.create_task(_turn(link, follow_one, tasks))
    try:
        while True:
            item = await arrived.get()
            if isinstance(item, VeenError):
                raise item
            yield item
    finally:
        everything = [turning, *tasks.values()]
        for task in everything:
            task.cancel()
        await asyncio.gather(*everything, return_exceptions=True)


async def _turn(
    link: Link,
    follow_one: Callable[[Epoch], Coroutine[None, None, None]],
    tasks: dict[int, asyncio.Task[None]],
) -> None:
    """Start following each epoch as it comes near, and end those that have passed."""
    while True:
        current = window(link)
        for epoch in current:
            if epoch not in tasks:
                tasks[epoch] = asyncio.create_task(follow_one(Epoch(epoch)))
        for epoch in [epoch for epoch, task in tasks.items() if task.done() and epoch < current.start]:
            del tasks[epoch]
        seconds = link.profile.epoch_sec
        await asyncio.sleep(max(0.05, seconds - link.time.exact() % seconds))


async def _one(log: LabelLog, epoch: Epoch, arrived: asyncio.Queue[Sequence[Entry] | VeenError]) -> None:
    """One label, until its window has passed."""
    link, at = log.link, StreamSeq(1)
    skew = link.limits.max_epoch_skew_sec // link.profile.epoch_sec
    end = (epoch + skew + 1) * link.profile.epoch_sec + GRACE
    try:
        async with asyncio.timeout(max(0.0, end - link.time.exact())), aclosing(follow(log, at)) as live:
            async for entries in live:
                await arrived.put(entries)
                at = StreamSeq(entries[-1].stream_seq + 1)
    except TimeoutError:
        async for entries in read(log, at):
            await arrived.put(entries)
