"""The mirror of one stream: settle, find the target's position, then copy new entries (P8, spec-4 6.4).

    1. settle messages that an earlier run left pending in the client's outbox: they are sent again byte for
       byte, or found in the log
    2. read the target's log from the cached position on, and compare it with the source's: the result is the
       position, whatever happened to this bridge before
    3. follow the source from there; every entry is verified before its copy is sent (spec-3 F1)

Each step may be interrupted anywhere. Nothing but the target's log says what was mirrored.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from veen_bridge.mirror.claims import check_claim
from veen_bridge.mirror.metrics import MirrorMetrics
from veen_bridge.mirror.progress import MirrorProgress, PositionCache
from veen_bridge.mirror.source import SourceStream
from veen_bridge.transfer import CopyMaker, Landing, Mode, OriginEntry, Sent, find_held, settle_pending
from veen_core.errors import StateError, VeenError
from veen_core.ids import ClientId, Epoch, Label
from veen_core.keys import DhKey
from veen_core.receipt import Receipt
from veen_hub.client import Hub, Message

MAX_QUEUED_ENTRIES: Final = 256
"""Most source entries that wait for the target; reading of the source pauses at this number."""
SAVE_SECONDS: Final = 1.0
"""Time between two writes of the cached position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPair:
    """A stream of the source and the stream of the target that gets its copies."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOptions:
    """Options that all streams of a mirror share."""

    mode: Mode
    bridge_id: ClientId
    source_hub_identifier: str = ""
    source_readers: tuple[DhKey, ...] = ()
    """Reader keys of the source, for mode reseal."""
    target_readers: tuple[DhKey, ...] = ()
    """Reader keys of the target's streams; copies are sealed to the first."""


class _End:
    """Marks the end of the queue."""


class StreamMirror:
    """The mirror of one stream over one connection to each hub."""

    def __init__(
        self, source: Hub, target: Hub, pair: StreamPair, options: MirrorOptions, metrics: MirrorMetrics
    ) -> None:
        self._pair, self._options, self._metrics = pair, options, metrics
        self._source_hub, self._target_hub = source, target
        self._target = target.stream(pair.target, readers=options.target_readers)
        source_stream = source.stream(pair.source, readers=options.source_readers)
        self._source = SourceStream(source, source_stream)
        self._cache = PositionCache.of(
            target.connection.store, source.hub_id, source_stream.id, target.hub_id, self._target.id
        )
        self._target_epochs = target.epoch_labels(self._target.id)
        self._arrivals: deque[float] = deque()
        self.progress = MirrorProgress()

    # --- steps 1 and 2

    async def resume(self) -> None:
        """Settle and find the position; afterwards ``progress`` has the entries that the target holds."""
        landing = self._landing()
        landing.check_readable()
        await settle_pending(self._target)
        target_since = self._target_epochs.since if self._target_epochs is not None else 0
        self.progress = await asyncio.to_thread(self._cache.load, (self._source.since, target_since))
        cursors = await self._source.cursors(self.progress)
        before = {cursor.label: cursor.held for cursor in cursors}

        async def check(message: Message) -> None:
            await check_claim(message, self._source_hub, {cursor.label: cursor.held for cursor in cursors})

        readers = self._source_hub.stream(self._pair.source, readers=self._options.source_readers).keys
        try:
            async with aclosing(self._target_messages()) as messages:
                await find_held(messages, cursors, readers=readers, unmatched=check)
        finally:
            for cursor in cursors:
                await cursor.aclose()
        for cursor in cursors:
            self.progress.held[cursor.label] = cursor.held
            self._metrics.found.labels(self._pair.source).inc(cursor.held - before[cursor.label])
        await self._save()

    async def _target_messages(self) -> AsyncGenerator[Message, None]:
        """Yield the target's messages after the position, over all its labels, and move the position."""
        progress = self.progress
        stop = (await self._target_epochs.confirmed()).stop if self._target_epochs is not None else 1
        for epoch in range(progress.target_epoch, stop):
            at = progress.target_seq + 1 if epoch == progress.target_epoch else 1
            async with aclosing(self._target.read(at, epoch=Epoch(epoch))) as messages:
                async for message in messages:
                    yield message
                    progress.reached(epoch, message.stream_seq)

    async def _save(self) -> None:
        await asyncio.to_thread(self._cache.save, self.progress)

    def _landing(self) -> Landing:
        options = self._options
        maker = CopyMaker(
            mode=options.mode,
            bridge_id=options.bridge_id,
            limits=self._target_hub.connection.limits,
            source_hub_identifier=options.source_hub_identifier,
            readers=self._source_hub.stream(self._pair.source, readers=options.source_readers).keys,
        )
        return Landing(self._target, maker)

    # --- step 3

    async def run(self, stopping: asyncio.Event) -> None:
        """Resume, then copy until ``stopping``; entries that were read before are still sent."""
        self._metrics.set_waiting(self._pair.source, "resuming")
        await self.resume()
        self._metrics.set_following(self._pair.source)
        saved = time.monotonic()
        try:
            async with aclosing(self._landing().send(self._until(stopping))) as sent:
                async for each in sent:
                    self._note(each)
                    if time.monotonic() - saved >= SAVE_SECONDS:
                        await self._save()
                        saved = time.monotonic()
        finally:
            self._arrivals.clear()
            self._metrics.lag_entries.labels(self._pair.source).set(0)
            await self._save()

    def _note(self, sent: Sent) -> None:
        origin, stream = sent.copy.origin, self._pair.source
        self.progress.held[origin.label] = origin.seq
        self.progress.reached(self._epoch_of(sent.receipt), sent.receipt.stream_seq)
        self._metrics.mirrored.labels(stream, sent.copy.mode.value).inc()
        self._metrics.latency.labels(stream).observe(time.monotonic() - self._arrivals.popleft())
        self._metrics.lag_entries.labels(stream).set(len(self._arrivals))
        self._metrics.source_ts.labels(stream).set(origin.entry.receipt.hub_ts)

    def _epoch_of(self, receipt: Receipt) -> int:
        """The epoch of the target's label in a receipt."""
        last = self.progress.target_epoch
        if self._target_epochs is None or self._target.label(Epoch(last)) == receipt.label:
            return last
        window = self._target_epochs.window()
        for epoch in range(window.start - 2, window.stop + 2):
            if self._target.label(Epoch(epoch)) == receipt.label:
                return epoch
        raise StateError(f"label {receipt.label.hex()} of a receipt is in no epoch near the present one")

    async def _until(self, stopping: asyncio.Event) -> AsyncGenerator[OriginEntry, None]:
        """Yield the source's entries until ``stopping``; raise a failure after the entries read before it."""
        arrived: asyncio.Queue[OriginEntry | VeenError | _End] = asyncio.Queue(MAX_QUEUED_ENTRIES)
        expected = dict(self.progress.held)

        async def read() -> None:
            async with aclosing(self._source.live(self.progress)) as entries:
                async for origin in entries:
                    _check_next(expected, origin)
                    self._arrivals.append(time.monotonic())
                    self._metrics.lag_entries.labels(self._pair.source).set(len(self._arrivals))
                    await arrived.put(origin)

        async def read_until_stopping() -> None:
            reading, waiting = asyncio.create_task(read()), asyncio.create_task(stopping.wait())
            try:
                await asyncio.wait([reading, waiting], return_when=asyncio.FIRST_COMPLETED)
                failed = reading.exception() if reading.done() else None
            finally:
                for task in (reading, waiting):
                    task.cancel()
                await asyncio.gather(reading, waiting, return_exceptions=True)
            await arrived.put(failed if isinstance(failed, VeenError) else _End())
            if failed is not None and not isinstance(failed, VeenError):
                raise failed

        reader = asyncio.create_task(read_until_stopping())
        try:
            while not isinstance(item := await arrived.get(), _End):
                if isinstance(item, VeenError):
                    raise item
                yield item
            await reader
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)


def _check_next(expected: dict[Label, int], origin: OriginEntry) -> None:
    """Raise unless the entry follows the last one of its label: copies are one-to-one (J1)."""
    if origin.seq != expected.get(origin.label, 0) + 1:
        raise StateError(
            f"entry {origin.seq} of label {origin.label.hex()} came after entry "
            f"{expected.get(origin.label, 0)}: the mirror would lose or repeat events",
            action="report this error; a restart resumes from the target's log",
        )
    expected[origin.label] = origin.seq
