"""The merged journal of all parts, and the first copy of all parts, for replicas (RESOLUTIONS P9, ADR 0033).

Both are made between two rounds of the joined hub log. No round is running then. So every batch that is
durable now is after the last round's place in its part, and before the next one's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final

from veen_core.errors import ApiError
from veen_core.rejection import Code
from veen_hub.pipeline.log_access import LogAccess
from veen_hub.replica.announcements import Announcements
from veen_hub.shards.joining import Joining, RemotePart
from veen_storage import Source
from veen_storage.shards.control_store import ControlStore
from veen_storage.shards.merged_snapshot import MergedCut, PartObserver, cut_parts, send_merged_snapshot
from veen_storage.shards.sharded_layout import CONTROL, ShardedLayout

APPLY_SEC: Final = 10.0
"""How long a copy waits for a part to apply what is durable; no hub checkpoint is made meanwhile."""


class Merging:
    """Serves the replicas of one sharded hub; used from the event loop, except ``send_snapshot``."""

    def __init__(
        self,
        store: ControlStore,
        layout: ShardedLayout,
        access: LogAccess,
        joining: Joining,
        *,
        shards: Mapping[int, RemotePart],
        announcements: Announcements,
    ) -> None:
        self._store = store
        self._layout = layout
        self._access = access
        self._joining = joining
        self._shards = shards
        self._announcements = announcements
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop, once it runs."""

    async def order(self) -> None:
        """Continue the merged journal by everything that is durable now."""
        async with self._joining.order:
            ends = await asyncio.gather(*(shard.last_batch() for shard in self._shards.values()))
            upto = dict(zip(self._shards, ends, strict=True))
            upto[CONTROL] = self._store.own_last_batch  # last: a token is there before its copies
            grown = await self._access.read(lambda: self._store.order_upto(upto))
        if grown:
            self._announcements.wake()

    def has_hub_log(self, size: int) -> bool:
        """Return whether the merged journal has the joined hub log up to a size."""
        return size <= self._store.merged_hub_log_size

    def send_snapshot(self, emit: Callable[[bytes], None]) -> None:
        """Send the first copy of all parts, in a thread of its own."""
        loop = self.loop
        assert loop is not None
        with ExitStack() as opened:
            observers = {
                number: opened.enter_context(PartObserver(self._layout.part(number).root, part=True))
                for number in self._shards
            }
            sources: dict[int, Source] = {**observers, CONTROL: self._store}

            def take_cut() -> MergedCut:
                return asyncio.run_coroutine_threadsafe(self._cut(observers, sources), loop).result()

            send_merged_snapshot(sources, take_cut, emit)

    async def _cut(self, observers: Mapping[int, PartObserver], sources: Mapping[int, Source]) -> MergedCut:
        async with self._joining.order:
            settled = [asyncio.to_thread(each.settle, APPLY_SEC) for each in observers.values()]
            settled.append(asyncio.to_thread(self._store.settle, APPLY_SEC))
            if not all(await asyncio.gather(*settled)):
                raise ApiError(Code.UNAVAILABLE, "a part has not applied its batches", retry_after=10)
            return await self._access.read(lambda: cut_parts(self._store, sources))
