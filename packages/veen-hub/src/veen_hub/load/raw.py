"""The raw generator: HTTP on an open connection with minimal parsing, so that the client costs little CPU."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Final, cast

CBOR: Final = "application/cbor"
CBOR_SEQ: Final = "application/cbor-seq"
OK: Final = b"HTTP/1.1 200"
CONTENT_LENGTH: Final = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)
SHOWN_BYTES: Final = 200
"""Bytes of an unexpected answer that an error shows."""

RefusalFactory = Callable[[bytes, bytes], Exception]
"""Makes the error of an answer other than 200 from its first bytes and its body."""


def unexpected(head: bytes, body: bytes) -> Exception:
    return RuntimeError(f"refused under load: {head!r} {body[:SHOWN_BYTES]!r}")


def request_of(path: str, body: bytes, kind: str = CBOR) -> bytes:
    """Return a POST request as bytes."""
    head = f"POST {path} HTTP/1.1\r\nHost: hub\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class RawConnection(asyncio.Protocol):
    """One keep-alive connection with one request at a time."""

    def __init__(self, prefix: str = "", refused: RefusalFactory = unexpected) -> None:
        self._prefix = prefix
        self._refused = refused
        self._transport: asyncio.Transport | None = None
        self._got = b""
        self._answered: asyncio.Future[bytes] | None = None
        self._lost: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._got += data
        if (end := self._got.find(b"\r\n\r\n")) < 0 or self._answered is None:
            return
        length = CONTENT_LENGTH.search(self._got, 0, end)
        size = end + 4 + (int(length[1]) if length else 0)
        if len(self._got) < size:
            return
        answer, self._got = self._got[:size], self._got[size:]
        if answer.startswith(OK):
            self._answered.set_result(answer[end + 4 :])
        else:
            self._answered.set_exception(self._refused(answer[:40], answer[end + 4 :]))

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = exc or ConnectionError("the hub closed the connection under load")
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(self._lost)

    async def post(self, path: str, body: bytes, kind: str = CBOR) -> bytes:
        """Send a request and return the body of its answer."""
        return await self.send(path, body, kind)

    def send(self, path: str, body: bytes, kind: str = CBOR) -> asyncio.Future[bytes]:
        """Send a request; the future is the body of its answer."""
        assert self._transport is not None
        if self._lost is not None:
            raise self._lost
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(request_of(self._prefix + path, body, kind))
        return self._answered


@contextlib.asynccontextmanager
async def open_raw(
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    prefix: str = "",
    refused: RefusalFactory = unexpected,
) -> AsyncIterator[RawConnection]:
    """Open a connection to the hub at this address; ``prefix`` is the path below which a proxy serves it."""
    transport, made = await asyncio.get_running_loop().create_connection(
        lambda: RawConnection(prefix, refused), host, port, ssl=tls
    )
    try:
        yield made
    finally:
        transport.close()
