"""The client that ships, ``veen_hub.client``: it seals, signs, keeps a journal, and verifies every answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from veen_hub.client import Hub

BODY: Final = "x" * 200
"""The text of every message."""


class ShippedClient:
    """Work for a connected client; each method returns the seconds that it took."""

    def __init__(self, hub: Hub, body: str = BODY) -> None:
        self._hub = hub
        self._body = body

    async def one_by_one(self, stream: str, count: int) -> float:
        """Send each message after the receipt of the one before."""
        target = self._hub.stream(stream)
        started = time.perf_counter()
        for _ in range(count):
            await target.send(self._body)
        return time.perf_counter() - started

    async def in_flight(self, stream: str, senders: int, each: int) -> float:
        """Send on one stream from many tasks at once; each has one message in flight."""
        return await self.many_streams([stream] * senders, each)

    async def many_streams(self, streams: Sequence[str], each: int) -> float:
        """Send on many streams at once; each has one message in flight."""
        started = time.perf_counter()
        await asyncio.gather(*(self.one_by_one(stream, each) for stream in streams))
        return time.perf_counter() - started

    async def batches(self, stream: str, count: int) -> float:
        """Send with ``send_many``, which puts 256 messages into a request."""
        started = time.perf_counter()
        async for _receipt in self._hub.stream(stream).send_many(self._body for _ in range(count)):
            pass
        return time.perf_counter() - started

    async def reading(self, stream: str, count: int) -> float:
        """Read, verify and open ``count`` messages from the first on."""
        started, came = time.perf_counter(), 0
        async for message in self._hub.stream(stream).read(to_seq=count):
            assert message.text == self._body
            came += 1
        assert came == count
        return time.perf_counter() - started
