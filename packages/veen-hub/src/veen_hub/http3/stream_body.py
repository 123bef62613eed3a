"""A body that arrives on a QUIC stream, for one reader: the hub's endpoint, or the client."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable


class StreamBody:
    """Bytes in the order of their arrival; a ``Body`` of the API."""

    def __init__(self, on_read: Callable[[], None]) -> None:
        """``on_read`` is called when bytes were read, so that the peer may send more."""
        self._parts: deque[bytes] = deque()
        self._ended = False
        self._failure: Exception | None = None
        self._changed = asyncio.Event()
        self._on_read = on_read
        self.size = 0
        """Bytes that wait to be read."""

    def feed(self, data: bytes, *, ended: bool) -> None:
        """Take bytes that have arrived; after a failure they are dropped."""
        if data and self._failure is None:
            self._parts.append(data)
            self.size += len(data)
        self._ended = self._ended or ended
        self._changed.set()

    def fail(self, failure: Exception) -> None:
        """End the body early; what waits is dropped."""
        if not self._ended:
            self._failure = self._failure or failure
            self._parts.clear()
            self.size = 0
            self._changed.set()

    def is_eof(self) -> bool:
        return self._ended and self._failure is None

    def read_nowait(self) -> bytes:
        if self._failure is not None:
            raise self._failure
        data = b"".join(self._parts)
        self._parts.clear()
        self.size = 0
        self._on_read()
        return data

    async def read(self) -> bytes:
        """Return bytes that have arrived, or wait for some; empty at the end."""
        while not self._parts and not self._ended and self._failure is None:
            self._changed.clear()
            await self._changed.wait()
        return self.read_nowait()

    async def iter_any(self) -> AsyncIterator[bytes]:
        while data := await self.read():
            yield data

    async def iter_chunked(self, n: int) -> AsyncIterator[bytes]:
        async for data in self.iter_any():
            for start in range(0, len(data), n):
                yield data[start : start + n]
