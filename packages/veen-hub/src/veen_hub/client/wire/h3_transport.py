"""HTTP/3 to one hub (RFC 9114): many requests on one QUIC connection, TLS 1.3, no 0-RTT.

The address is ``h3://host[:port]``. The connection survives a change of the client's address (RFC 9000 §9).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Final
from urllib.parse import urlsplit

from aioquic.h3.connection import ErrorCode, H3Connection
from aioquic.h3.events import DataReceived, H3Event, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, QuicEvent, StreamReset
from aioquic.quic.packet import QuicErrorCode
from aioquic.tls import AlertDescription

from veen_core.errors import ConfigError, StateError
from veen_hub.client.errors import IF_SILENT, Misbehaved, Unreachable
from veen_hub.client.wire.transport import (
    CBOR,
    CBOR_SEQ,
    MAX_CONCURRENT_REQUESTS,
    MAX_ERROR_BYTES,
    MAX_RESPONSE_BYTES,
    HubResponse,
    HubTransport,
    Timeouts,
    Tls,
    no_answer,
    parse_address,
    read_whole,
    refused,
)
from veen_hub.http3.quic_peer import QuicPeer, pieces
from veen_hub.http3.stream_body import StreamBody
from veen_hub.http3.windows import MAX_UNSENT_BYTES, bounded

IDLE_SEC: Final = 60.0
PING_SEC: Final = 20.0
"""Time between two pings, which keep the connection open while a live stream has no entries."""


class _Exchange:
    """One request: the head of its response, and its body as it arrives."""

    def __init__(self, connection: _Connection, stream_id: int) -> None:
        self.stream_id = stream_id
        self.head: asyncio.Future[tuple[int, dict[str, str]]] = asyncio.get_running_loop().create_future()
        self.body = StreamBody(connection.transmit_soon)

    def fail(self, failure: Exception) -> None:
        if not self.head.done():
            self.head.set_exception(failure)
            self.head.exception()  # retrieved, in case no task waits any more
        self.body.fail(failure)


class _Connection(QuicPeer):
    """A connection to the hub."""

    def __init__(self, quic: QuicConnection) -> None:
        super().__init__(quic)
        self._http = H3Connection(quic)
        self._exchanges: dict[int, _Exchange] = {}
        self.failure: Exception | None = None

    def body_of(self, stream_id: int) -> StreamBody | None:
        exchange = self._exchanges.get(stream_id)
        return exchange.body if exchange is not None else None

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, ConnectionTerminated):
            self.fail(_failure(event))
        elif isinstance(event, StreamReset) and (found := self._exchanges.get(event.stream_id)) is not None:
            found.fail(ConnectionResetError("the hub has cut the answer"))
        for http in self._http.handle_event(event):
            self._receive(http)

    def _receive(self, event: H3Event) -> None:
        if isinstance(event, HeadersReceived | DataReceived):
            exchange = self._exchanges.get(event.stream_id)
            if exchange is None:
                return
            if isinstance(event, DataReceived):
                exchange.body.feed(event.data, ended=event.stream_ended)
                return
            if not exchange.head.done():
                fields = {k.decode("latin-1"): v.decode("latin-1") for k, v in event.headers}
                status = fields.pop(":status", "")
                if not (status.isascii() and status.isdigit() and len(status) == 3):
                    exchange.fail(Misbehaved("the answer over HTTP/3 has no status"))
                    return
                exchange.head.set_result((int(status), fields))
            exchange.body.feed(b"", ended=event.stream_ended)

    def fail(self, failure: Exception) -> None:
        """Note why the connection cannot be used, and fail everything under way."""
        self.failure = self.failure or failure
        for exchange in self._exchanges.values():
            exchange.fail(self.failure)
        self._progress.set()

    @asynccontextmanager
    async def exchange(self, fields: list[tuple[bytes, bytes]], body: bytes) -> AsyncIterator[_Exchange]:
        """Send a request; the response arrives meanwhile."""
        if self.failure is not None:
            raise self.failure
        stream_id = self._quic.get_next_available_stream_id()
        made = self._exchanges[stream_id] = _Exchange(self, stream_id)
        try:
            self._http.send_headers(stream_id, fields, end_stream=not body)
            for piece, is_last in pieces(body):
                self._http.send_data(stream_id, piece, end_stream=is_last)
                self.transmit_soon()
                await self.until_sent(stream_id, MAX_UNSENT_BYTES, lambda: self._waits_for(made))
            self.transmit_soon()
            yield made
        finally:
            del self._exchanges[stream_id]
            if not made.body.is_eof() and self.failure is None:
                self._quic.stop_stream(stream_id, ErrorCode.H3_REQUEST_CANCELLED)
                with contextlib.suppress(AssertionError, ValueError):  # the request was sent whole
                    self._quic.reset_stream(stream_id, ErrorCode.H3_REQUEST_CANCELLED)
                self.transmit_soon()

    def _waits_for(self, exchange: _Exchange) -> bool:
        """Return whether the hub has not answered yet; raise if no answer can arrive any more."""
        if self.failure is not None:
            raise self.failure
        return not exchange.head.done()


def _failure(event: ConnectionTerminated) -> OSError:
    """Say why a connection ended; only this side sends the alerts about certificates."""
    reason = event.reason_phrase or "closed"
    alert = event.error_code - QuicErrorCode.CRYPTO_ERROR
    if alert in (AlertDescription.bad_certificate, AlertDescription.certificate_expired):
        return ssl.SSLCertVerificationError(event.error_code, reason)
    return ConnectionResetError(f"QUIC {event.error_code:#x}: {reason}")


class H3Transport(HubTransport):
    """Requests to the hub at ``url``. Create it inside a running event loop."""

    def __init__(self, url: str, *, tls: Tls | None, timeouts: Timeouts) -> None:
        self.url = url.rstrip("/")
        self._host, self._port, self._path = parse_address(self.url, {"h3": 443})
        self.timeouts = timeouts
        self._authority = urlsplit(url).netloc.encode()
        if tls is not None and tls.cert is not None:
            raise ConfigError(f"{url}: client certificates are not sent over HTTP/3", action="use https://")
        self._configuration = bounded(
            QuicConfiguration(
                is_client=True, alpn_protocols=["h3"], idle_timeout=IDLE_SEC, server_name=self._host
            )
        )
        if tls is not None and tls.ca is not None:
            tls.context()  # raises if the file cannot be used
            self._configuration.load_verify_locations(str(tls.ca))
        else:
            self._configuration.load_verify_locations(ssl.get_default_verify_paths().cafile)
        self._connection: _Connection | None = None
        self._datagrams: asyncio.DatagramTransport | None = None
        self._connecting = asyncio.Lock()
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        self._drop()
        await asyncio.sleep(0)  # the socket is closed in the next turn of the event loop

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        datagrams, self._datagrams = self._datagrams, None
        if connection is not None:
            connection.close(ErrorCode.H3_NO_ERROR)
            connection.fail(ConnectionResetError("this connection was closed"))
        if datagrams is not None:
            datagrams.close()

    async def exchange(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str | Sequence[str]] | None = None,
        *,
        max_bytes: int = MAX_RESPONSE_BYTES,
        timeout: float | None = None,
    ) -> HubResponse:
        limit = self.timeouts.request if timeout is None else timeout
        try:
            async with self._slots:
                connection = await self._connected()
                async with (
                    asyncio.timeout(limit),
                    connection.exchange(self._fields(method, path, body, headers), body or b"") as made,
                ):
                    status, fields = await made.head
                    content = await read_whole(
                        made.body.read, max_bytes if status == 200 else MAX_ERROR_BYTES
                    )
        except OSError as exc:
            raise self._no_answer(exc, method, path) from exc
        return HubResponse(status, fields, content)

    @asynccontextmanager
    async def open(
        self, method: str, path: str, *, timeout: float | None = None, idle: float | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        try:
            async with self._slots if timeout is not None else nullcontext():
                connection = await self._connected()
                pinging = asyncio.create_task(_keep_open(connection))
                try:
                    async with (
                        asyncio.timeout(timeout),
                        connection.exchange(self._fields(method, path, None, None), b"") as made,
                    ):
                        status, fields = await made.head
                        if status != 200:
                            content = await read_whole(made.body.read, MAX_ERROR_BYTES)
                            raise refused(HubResponse(status, fields, content))
                        yield _parts(made.body, idle)
                finally:
                    pinging.cancel()
        except OSError as exc:
            raise self._no_answer(exc, method, path) from exc

    async def _connected(self) -> _Connection:
        async with self._connecting:
            if self._closed:
                raise StateError(f"{self.url}: this connection is closed", action="connect again")
            if self._connection is not None and self._connection.failure is None:
                return self._connection
            self._drop()
            async with asyncio.timeout(self.timeouts.connect):
                self._connection, self._datagrams = await self._connect()
            return self._connection

    async def _connect(self) -> tuple[_Connection, asyncio.DatagramTransport]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_DGRAM)
        family, _, _, _, address = found[0]
        quic = QuicConnection(configuration=self._configuration)
        datagrams, connection = await loop.create_datagram_endpoint(
            lambda: _Connection(quic),
            family=family,
            local_addr=("::" if family == socket.AF_INET6 else "0.0.0.0", 0),  # noqa: S104
        )
        try:
            connection.connect(address)
            await connection.wait_connected()
        except BaseException as exc:
            datagrams.close()
            if isinstance(exc, ConnectionError) and connection.failure is not None:
                raise connection.failure from exc
            raise
        return connection, datagrams

    def _fields(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str | Sequence[str]] | None
    ) -> list[tuple[bytes, bytes]]:
        fields = [
            (b":method", method.encode()),
            (b":scheme", b"https"),
            (b":authority", self._authority),
            (b":path", f"{self._path}{path}".encode()),
            (b"accept", f"{CBOR}, {CBOR_SEQ}".encode()),
        ]
        named = {name.lower(): value for name, value in (headers or {}).items()}
        if "accept" in named:
            fields.pop()
        if body is not None and "content-length" not in named:
            fields.append((b"content-length", str(len(body)).encode()))
        for name, values in named.items():
            for value in (values,) if isinstance(values, str) else values:
                fields.append((name.encode(), value.encode()))
        return fields

    def _no_answer(self, error: OSError, method: str, path: str) -> Unreachable:
        if isinstance(error, TimeoutError):
            return Unreachable(
                f"{self.url}: no answer in time ({method} {path})",
                action=IF_SILENT["h3"],
            )
        return no_answer(self.url, error, f"{method} {path}")


async def _parts(body: StreamBody, idle: float | None) -> AsyncGenerator[bytes, None]:
    while True:
        async with asyncio.timeout(idle):
            part = await body.read()
        if not part:
            return
        yield part


async def _keep_open(connection: _Connection) -> None:
    while True:
        await asyncio.sleep(PING_SEC)
        with contextlib.suppress(ConnectionError):
            await connection.ping()
