"""One HTTP/1.1 connection to a hub: one request at a time, and its response as it arrives (RFC 9112).

The parser is ``http_response``. This module adds what needs an event loop: waiting, timeouts, and
backpressure in both directions. A connection on which a request failed or was cancelled is never reused.

It replaces a general HTTP client, because it needs fewer turns of the event loop. Without cryptography and
state, a message that is sent alone takes 240 instead of 320 µs of processor time. ``veen send`` starts a
third faster without the import (ADR 0006).
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, cast

from veen_hub.client.wire.http_response import HttpError, ResponseHead, ResponseParser

WRITE_BYTES: Final = 256 * 1_024
"""Bytes of a request that are written at a time; the next ones wait until the network has taken these."""
MAX_BUFFERED_BYTES: Final = 1_048_576
"""Bytes of a response that wait for the reader before the connection stops receiving."""


class HttpConnection(asyncio.Protocol):
    """A connection. ``exchange`` sends a request and returns the head of its response."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._response = ResponseParser()
        self._busy = False
        self._whole = False
        """Whether the task that waits needs all of the response, so that it is not woken for parts of it."""
        self._sent_all = True
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writable: asyncio.Future[None] | None = None
        self._paused = False
        self.used_at = 0.0
        """When the last response was complete, on the monotonic clock."""

    # --- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self._busy:
            self._fail(HttpError("bytes without a request"))
            return
        try:
            self._response.feed(data)
        except HttpError as exc:
            self._fail(exc)
            return
        if self._response.size > MAX_BUFFERED_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        if self._ready or not self._whole:
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            if exc is None and self._busy:
                self._response.feed_eof()
        except HttpError as cut:
            exc = ConnectionResetError("Server disconnected") if self._response.head is None else cut
        self._fail(exc or ConnectionResetError("Server disconnected"))

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # --- requests

    @property
    def is_reusable(self) -> bool:
        """Whether another request may be sent: the last response was whole, and the server keeps it open."""
        return self._failure is None and not self._busy

    async def exchange(self, head: bytes, body: bytes, *, timeout: float | None, whole: bool) -> ResponseHead:
        """Send a request; returns once the head of its response is here, or with ``whole`` all of it.

        ``timeout`` seconds bound the whole exchange, up to the end of the body; then TimeoutError is raised.
        """
        if self._failure is not None:
            raise self._failure
        self._response, self._busy, self._whole = ResponseParser(), True, whole
        if timeout is not None:
            self._timer = self._loop.call_later(timeout, self._fail, TimeoutError())
        await self._write(head, body)
        while (found := self._response.head) is None or (whole and not self._ready):
            await self._wait(None)
        self._whole = False
        return found

    @property
    def _ready(self) -> bool:
        """Whether the reader need not wait: the response is complete, or enough of it is here."""
        return self._response.is_complete or self._paused

    async def _write(self, head: bytes, body: bytes) -> None:
        assert self._transport is not None
        if len(body) <= WRITE_BYTES:
            self._transport.write(head + body)
            return
        self._transport.write(head)
        view = memoryview(body)
        for at in range(0, len(body), WRITE_BYTES):
            if self._failure is not None or self._response.head is not None:  # refused before all was sent
                self._sent_all = False
                return
            self._transport.write(view[at : at + WRITE_BYTES])
            if self._writable is not None:
                await self._writable

    async def read(self, idle: float | None = None) -> bytes:
        """Return bytes of the body that have arrived, or wait for some; empty at its end.

        If ``idle`` seconds pass without a byte, TimeoutError is raised.
        """
        while not self._response.size and not self._response.is_complete:
            await self._wait(idle)
        part = self._response.take()
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return part

    def parts(self, idle: float | None = None) -> BodyParts:
        """Return an iterator over the bytes of the body, as they arrive."""
        return BodyParts(self, idle)

    def finish(self) -> None:
        """End the exchange; the connection is closed unless the response is complete and it is persistent."""
        self._stop_timer()
        response = self._response
        keep = response.is_complete and response.head is not None and response.head.is_persistent
        self._busy, self.used_at = False, time.monotonic()
        if not keep or response.size or not self._sent_all:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self._stop_timer()
        self._failure = self._failure or ConnectionResetError("this connection was closed")
        if self._transport is not None:
            self._transport.abort()

    # --- waiting

    async def _wait(self, idle: float | None) -> None:
        """Wait until something arrives; raises the failure of the connection, or TimeoutError."""
        if self._failure is not None:
            raise self._failure
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(idle, self._fail, TimeoutError()) if idle is not None else None
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, failure: Exception) -> None:
        """Note why the connection cannot be used any more, and tell the task that waits."""
        self._failure = self._failure or failure
        self._stop_timer()
        self.resume_writing()
        self._wake()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class BodyParts:
    """An async iterator over the body of a response; ``idle`` as for ``HttpConnection.read``."""

    __slots__ = ("_connection", "_idle")

    def __init__(self, connection: HttpConnection, idle: float | None) -> None:
        self._connection = connection
        self._idle = idle

    def __aiter__(self) -> BodyParts:
        return self

    async def __anext__(self) -> bytes:
        if part := await self._connection.read(self._idle):
            return part
        raise StopAsyncIteration
