"""The source of a mirror: the verified entries of one stream, over all its labels (core §12, spec-3 10.3).

Without epochs a stream is one label, which is followed. With epochs, labels whose window has passed are read
to their ends, one after the other; the labels of the window are followed at once. A label is closed when the
hub's own status says that its window has passed (H3): then it is read one last time and dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

from veen_bridge.mirror.progress import MirrorProgress
from veen_bridge.transfer import OriginCursor, OriginEntry
from veen_core.entry import Entry
from veen_core.errors import VeenError
from veen_core.ids import Epoch, Label, StreamSeq
from veen_hub.client import Hub, Stream

PAGE_ENTRIES: Final = 250
"""Entries per request when a label is read."""
MAX_QUEUED_ENTRIES: Final = 1_024
"""Entries of all labels of the window that wait for the target."""
MARGIN_EPOCHS: Final = 1
"""Epochs for which a label stays open after its window, as readers of the stream allow (``EpochView``)."""


class SourceStream:
    """One stream of the source hub."""

    def __init__(self, hub: Hub, stream: Stream) -> None:
        self._hub = hub
        self._stream = stream
        self._epochs = hub.epoch_labels(stream.id)
        self._reader = hub.log_reader()

    @property
    def since(self) -> int:
        """The first epoch; 0 without epochs."""
        return self._epochs.since if self._epochs is not None else 0

    def _label(self, epoch: int) -> Label:
        return self._stream.label(Epoch(epoch))

    def _origin(self, entry: Entry) -> OriginEntry:
        return OriginEntry(hub_id=self._hub.hub_id, entry=entry)

    async def _read(self, label: Label, after: int) -> AsyncGenerator[OriginEntry, None]:
        """Yield the entries of a label after ``after``, up to its present end."""
        while entries := await self._reader.page(label, StreamSeq(after + 1), PAGE_ENTRIES):
            for entry in entries:
                yield self._origin(entry)
            after += len(entries)
            if len(entries) < PAGE_ENTRIES:
                return

    async def cursors(self, progress: MirrorProgress) -> list[OriginCursor]:
        """Return a cursor for each label of which the target may lack entries; empty labels have none."""
        if self._epochs is None:
            epochs = range(1)
        else:
            epochs = range(progress.source_epoch, (await self._epochs.confirmed()).stop)
        found = []
        for epoch in epochs:
            label = self._label(epoch)
            cursor = OriginCursor(label, held := progress.held.get(label, 0), self._read(label, held))
            if await cursor.load() is not None or self._epochs is None:
                found.append(cursor)
        return found

    async def live(self, progress: MirrorProgress) -> AsyncGenerator[OriginEntry, None]:
        """Yield the entries that the target lacks, and wait for new ones; it does not end."""
        if self._epochs is None:
            label = self._label(0)
            follow = self._reader.follow(label, StreamSeq(progress.held.get(label, 0) + 1))
            async with aclosing(follow) as entries:
                async for entry in entries:
                    yield self._origin(entry)
            return
        async for origin in self._closed(progress):
            yield origin
        async with aclosing(_Window(self, progress).entries()) as window:
            async for origin in window:
                yield origin

    async def _closed(self, progress: MirrorProgress) -> AsyncIterator[OriginEntry]:
        """Yield the entries of labels whose window has passed, in the order of their epochs."""
        epoch = progress.source_epoch
        while epoch < await self.first_open():
            async for origin in self.close(epoch, progress, progress.held.get(self._label(epoch), 0)):
                yield origin
            epoch += 1

    async def first_open(self) -> int:
        """The oldest epoch whose label may still grow, by the hub's own status."""
        assert self._epochs is not None
        return (await self._epochs.confirmed()).start - MARGIN_EPOCHS

    async def close(self, epoch: int, progress: MirrorProgress, after: int) -> AsyncIterator[OriginEntry]:
        """Yield the rest of a label that takes no more messages, then note its end."""
        assert self._epochs is not None
        label, last = self._label(epoch), after
        async for origin in self._read(label, after):
            last = origin.seq
            yield origin
        progress.ends[epoch] = (label, last)
        await self._epochs.forget(label)

    # --- for the labels of the window

    @property
    def last_open(self) -> int:
        """The newest epoch whose label takes messages, by the local estimate of the hub's time."""
        assert self._epochs is not None
        return self._epochs.window().stop - 1

    @property
    def epoch_sec(self) -> int:
        return self._hub.connection.profile.epoch_sec

    async def follow(self, epoch: int, after: int) -> AsyncIterator[OriginEntry]:
        """Yield the entries of one label after ``after``, and wait for new ones."""
        async with aclosing(self._reader.follow(self._label(epoch), StreamSeq(after + 1))) as entries:
            async for entry in entries:
                yield self._origin(entry)

    def held(self, epoch: int, progress: MirrorProgress) -> int:
        return progress.held.get(self._label(epoch), 0)


class _Window:
    """The labels of the window: one task follows each of them, one opens and closes them."""

    def __init__(self, source: SourceStream, progress: MirrorProgress) -> None:
        self._source = source
        self._progress = progress
        self._arrived: asyncio.Queue[OriginEntry | VeenError] = asyncio.Queue(MAX_QUEUED_ENTRIES)
        self._following: dict[int, asyncio.Task[None]] = {}
        self._read_upto: dict[int, int] = {}

    async def entries(self) -> AsyncGenerator[OriginEntry, None]:
        first = self._progress.source_epoch + len(self._progress.ends)
        keeper = asyncio.create_task(self._guarded(self._open_and_close(first)))
        try:
            while True:
                item = await self._arrived.get()
                if isinstance(item, VeenError):
                    raise item
                yield item
        finally:
            tasks = [keeper, *self._following.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _guarded(self, work: AsyncIterator[OriginEntry]) -> None:
        """Queue the entries that ``work`` yields; if it fails, queue its error after them."""
        try:
            async for origin in work:
                await self._arrived.put(origin)
        except VeenError as exc:
            await self._arrived.put(exc)

    async def _follow(self, epoch: int) -> AsyncIterator[OriginEntry]:
        async for origin in self._source.follow(epoch, self._read_upto[epoch]):
            yield origin
            self._read_upto[epoch] = origin.seq  # not before: a cancelled put queues nothing

    async def _open_and_close(self, first: int) -> AsyncIterator[OriginEntry]:
        """Follow each epoch when its window opens; when it has passed, yield the rest of its label."""
        opened = first
        while True:
            while opened <= self._source.last_open:
                self._read_upto[opened] = self._source.held(opened, self._progress)
                self._following[opened] = asyncio.create_task(self._guarded(self._follow(opened)))
                opened += 1
            first_open = await self._source.first_open()
            for epoch in [epoch for epoch in sorted(self._following) if epoch < first_open]:
                task = self._following.pop(epoch)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                async for origin in self._source.close(epoch, self._progress, self._read_upto.pop(epoch)):
                    yield origin
            await asyncio.sleep(max(0.05, min(self._source.epoch_sec / 4, 5.0)))
