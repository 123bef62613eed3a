"""Follow a stream for an RPC server or client: entries in order, and waiters for a position."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from veen_core.entry import Entry
from veen_core.ids import StreamSeq
from veen_overlays.live.label import PAGE_ENTRIES
from veen_overlays.live.rpc.call_stream import StreamAccess


class FollowedStream:
    """Reads one stream from a position on and hands each entry to ``apply``, once and in order."""

    def __init__(self, access: StreamAccess, apply: Callable[[Entry], None], after: int = 0) -> None:
        self.access = access
        self.size = after
        """The position of the last entry that was applied."""
        self._apply = apply
        self._waiting: dict[asyncio.Future[None], int] = {}

    async def catch_up(self) -> None:
        """Apply all entries up to the stream's present end."""
        reader, label = self.access.reader, self.access.label
        head = await reader.head(label)
        while head is not None and self.size < head.stream_seq:
            for entry in await reader.page(label, StreamSeq(self.size + 1), PAGE_ENTRIES):
                self._advance(entry)

    async def follow(self, ready: Callable[[], Awaitable[None]] | None = None) -> None:
        """Apply every entry as soon as the hub shows it; before each, wait until ``ready``."""
        entries = self.access.reader.follow(self.access.label, StreamSeq(self.size + 1))
        async for entry in entries:
            if ready is not None:
                await ready()
            self._advance(entry)

    async def reached(self, seq: int) -> None:
        """Wait until an entry is applied, while another task follows the stream."""
        if self.size < seq:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting[waiter] = seq
            try:
                await waiter
            finally:
                del self._waiting[waiter]

    def _advance(self, entry: Entry) -> None:
        self._apply(entry)
        self.size = entry.stream_seq
        for waiter, seq in self._waiting.items():
            if seq <= self.size and not waiter.done():
                waiter.set_result(None)
