"""The hub's HTTP/3 connections: requests in, replies out, and bounds before anything is computed (SH0.4).

A head may have as many bytes as over HTTP/1.1, and is not compressed with a dynamic table, by which 32 KiB
could become 64 MiB. Bytes that neither begin nor continue a request are counted, and a peer that sends too
many is disconnected. So is one that gives up too many requests, does not complete its handshake in time, or
reads its answers too slowly.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import pylsqpack
from aioquic.h3.connection import ErrorCode, H3Connection, Setting
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import (
    ConnectionTerminated,
    HandshakeCompleted,
    QuicEvent,
    StopSendingReceived,
    StreamDataReceived,
    StreamReset,
)
from multidict import CIMultiDict

from veen_core.errors import ApiError
from veen_core.rejection import Code
from veen_hub.api import routes
from veen_hub.api.content import MIN_READ_RATE
from veen_hub.api.errors import answer_error
from veen_hub.api.reply import AnyReply, InterruptedReply, Reply, StreamedReply
from veen_hub.api.request import ApiRequest
from veen_hub.api.request_ids import new_request_id
from veen_hub.api.whole_requests import TABLE
from veen_hub.http3.quic_peer import QuicPeer, pieces
from veen_hub.http3.stream_body import StreamBody
from veen_hub.http3.windows import MAX_UNSENT_BYTES
from veen_hub.hub import Hub
from veen_hub.ops.logs import LOGGER, log
from veen_hub.pipeline.feed import LiveWriter

MAX_HEAD_BYTES: Final = 32 * 1_024
"""Bytes of a head, before and after its compression; also of anything that is no request."""
MAX_UNSENT_TAIL_BYTES: Final = 64 * 1_024
"""Bytes at the end of an answer that may still be unsent when the hub forgets the request."""
HANDSHAKE_SEC: Final = 10.0
MAX_RESETS: Final = 256
"""Requests that a client may give up before it is disconnected."""
Fields = list[tuple[bytes, bytes]]
"""The fields of a head, in their order."""


class _Http(H3Connection):
    """aioquic's HTTP/3 without a dynamic table of header fields, and with our own check of lengths."""

    def __init__(self, quic: QuicConnection) -> None:
        super().__init__(quic)
        self._decoder = pylsqpack.Decoder(0, 0)

    def _get_local_settings(self) -> dict[int, int]:
        no_table = {Setting.QPACK_MAX_TABLE_CAPACITY: 0, Setting.QPACK_BLOCKED_STREAMS: 0}
        return super()._get_local_settings() | no_table

    def unparsed(self, stream_id: int) -> int:
        """Return how many bytes of a stream wait for the rest of their frame."""
        stream = self._stream.get(stream_id)
        return len(stream.buffer) if stream is not None else 0

    def _check_content_length(self, stream: Any) -> None:
        """Leave the check to ``H3Request.feed``, which refuses the request and keeps the connection."""


class H3Request:
    """One request of a connection; a ``Peer`` of the API."""

    live_writer: LiveWriter | None = None

    def __init__(self, connection: H3HubConnection, stream_id: int) -> None:
        self.stream_id = stream_id
        self.body = StreamBody(connection.transmit_soon)
        self.announced: int | None = None
        """Content-Length of the request."""
        self.lost = asyncio.Event()
        self.dropped = False
        self.is_answered = False
        """Whether the head of the answer was sent."""
        self._received = 0
        self._connection = connection

    def feed(self, data: bytes, *, ended: bool) -> None:
        """Take bytes of the body; its whole length must be the announced one (RFC 9114 §4.1.2)."""
        self._received += len(data)
        announced = self.announced
        if announced is not None and (self._received > announced or (ended and self._received < announced)):
            why = f"the body has another length than the announced {announced} bytes"
            self.body.fail(ApiError(Code.BAD_REQUEST, why))
        self.body.feed(data, ended=ended)

    @property
    def remote(self) -> str | None:
        return self._connection.remote

    @property
    def source(self) -> bytes:
        return self._connection.source

    @source.setter
    def source(self, source: bytes) -> None:
        self._connection.source = source

    def wants_more(self) -> bool:
        """Return True; raise ConnectionResetError once the client has given up the request."""
        if self.lost.is_set():
            raise ConnectionResetError
        return True

    def is_checked_reader(self) -> bool:
        """Return True: a hub whose readers need certificates does not listen for HTTP/3."""
        return True


class H3HubConnection(QuicPeer):
    """One client's connection."""

    def __init__(self, quic: QuicConnection, hub: Hub, on_gone: Callable[[H3HubConnection], None]) -> None:
        super().__init__(quic)
        self._hub = hub
        self._on_gone = on_gone
        self._http: _Http | None = None
        self._requests: dict[int, H3Request] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle_bytes = 0
        """Bytes since something was recognised as part of a request."""
        self._resets = 0
        self.source = b""
        """The writer whose message was accepted last over this connection."""
        loop = asyncio.get_running_loop()
        self._handshake = loop.call_later(HANDSHAKE_SEC, self._give_up)

    @property
    def remote(self) -> str | None:
        """The client's address now; it may change while the connection lasts (RFC 9000 §9)."""
        paths = self._quic._network_paths
        return str(paths[0].addr[0]) if paths else None

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    def body_of(self, stream_id: int) -> StreamBody | None:
        request = self._requests.get(stream_id)
        return request.body if request is not None else None

    # --- what arrives

    def quic_event_received(self, event: QuicEvent) -> None:
        match event:
            case HandshakeCompleted():
                self._handshake.cancel()
                if event.alpn_protocol == "h3":
                    self._http = _Http(self._quic)
            case StreamReset() | StopSendingReceived():
                self._give_up_request(event.stream_id)
            case ConnectionTerminated():
                self._end()
        if self._http is None:
            return
        if isinstance(event, StreamDataReceived):
            self._idle_bytes += len(event.data)
        for found in self._http.handle_event(event):
            if isinstance(found, HeadersReceived):
                self._idle_bytes = 0
                self._begin(found)
            elif isinstance(found, DataReceived):
                self._idle_bytes = 0
                if (request := self._requests.get(found.stream_id)) is not None:
                    request.feed(found.data, ended=found.stream_ended)
        unparsed = self._http.unparsed(event.stream_id) if isinstance(event, StreamDataReceived) else 0
        if max(self._idle_bytes, unparsed) > MAX_HEAD_BYTES:
            log(logging.INFO, "request_unreadable", error="head too long", request_id=new_request_id())
            self.close(ErrorCode.H3_EXCESSIVE_LOAD)

    def _begin(self, found: HeadersReceived) -> None:
        if (known := self._requests.get(found.stream_id)) is not None:  # trailers
            known.feed(b"", ended=found.stream_ended)
            return
        request = self._requests[found.stream_id] = H3Request(self, found.stream_id)
        lengths = [value for name, value in found.headers if name == b"content-length"]
        request.announced = int(lengths[0]) if lengths and lengths[0].isdigit() else None
        request.feed(b"", ended=found.stream_ended)
        size = sum(len(name) + len(value) for name, value in found.headers)
        fields = found.headers if size <= MAX_HEAD_BYTES else None  # others must not wait in memory
        task = self._loop.create_task(self._serve(request, fields))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _give_up_request(self, stream_id: int) -> None:
        """Note that the client has given up a request, or only its answer (RFC 9114 §4.1.1)."""
        request = self._requests.get(stream_id)
        if request is not None:
            if request.lost.is_set():
                return  # it has given up both
            request.lost.set()
            request.body.fail(ConnectionResetError("the client has given up the request"))
            self._progress.set()
        if request is None or not request.is_answered:
            self._resets += 1
        if self._resets > MAX_RESETS:
            self.close(ErrorCode.H3_EXCESSIVE_LOAD)

    def _give_up(self) -> None:
        """End a connection whose handshake is not complete, without waiting for the client."""
        self.close(ErrorCode.H3_NO_ERROR)
        self._end()

    def _end(self) -> None:
        self._handshake.cancel()
        for request in self._requests.values():
            request.lost.set()
            request.body.fail(ConnectionResetError("the connection has ended"))
        self._progress.set()
        self._on_gone(self)

    def stop_bodies(self) -> None:
        """Refuse the rest of bodies that are still arriving: the hub stops."""
        for request in self._requests.values():
            request.body.fail(ApiError(Code.UNAVAILABLE, "the server is shutting down", retry_after=5))

    # --- requests

    async def _serve(self, request: H3Request, fields: Fields | None) -> None:
        """Answer a request; ``fields`` is its head, None if it is too long."""
        request_id = new_request_id()
        headers: CIMultiDict[str] = CIMultiDict()
        path = ""
        reply: AnyReply
        try:
            try:
                made = self._request(request, fields, headers, request_id)
                path = made.path
                route, made.variables = TABLE.find(made.method, path)
                reply = await routes.call(route, made)
            except ConnectionError:
                raise  # the client has given up
            except Exception as exc:  # noqa: BLE001 - a bug is answered too
                made = None
                reply = answer_error(exc, headers, path, request_id)
            only_head = made is not None and made.method == "HEAD"
            if isinstance(reply, Reply):
                await self._send(request, reply, only_head=only_head)
            else:
                await self._stream(request, reply, only_head=only_head)
        except (ConnectionError, TimeoutError):  # the client has given up, or reads too slowly
            self._windows.reset(request.stream_id, ErrorCode.H3_REQUEST_CANCELLED)
        except Exception:  # noqa: BLE001 - logged; the answer can only be cut
            LOGGER.exception("answer_failed")
            self._cut(request)
        finally:
            self._requests.pop(request.stream_id, None)
            if not request.body.is_eof():
                self._quic.stop_stream(request.stream_id, ErrorCode.H3_NO_ERROR)
            self.transmit_soon()

    def _request(
        self,
        request: H3Request,
        fields: Fields | None,
        headers: CIMultiDict[str],
        request_id: str,
    ) -> ApiRequest:
        """Make the API's request; fills ``headers`` as far as they can be read."""
        if fields is None:
            raise ApiError(Code.BAD_REQUEST, f"the head of the request has more than {MAX_HEAD_BYTES} bytes")
        pseudo: dict[bytes, str] = {}
        for name, value in fields:
            if name.startswith(b":"):
                pseudo[name] = value.decode("latin-1")
            else:
                headers.add(name.decode("latin-1"), value.decode("latin-1"))
        path, _, query = pseudo.get(b":path", "").partition("?")
        return ApiRequest(
            hub=self._hub,
            method=pseudo.get(b":method", ""),
            path=unquote(path),
            request_id=request_id,
            headers=headers,
            content=request.body,
            peer=request,
            query=dict(reversed(parse_qsl(query))),  # the first of equal names counts
        )

    async def _send(self, request: H3Request, reply: Reply, *, only_head: bool) -> None:
        fields = _fields(reply.status, reply.content_type, reply.headers)
        if not only_head:  # aioquic's client would expect as many bytes after HEAD too
            fields.append((b"content-length", str(len(reply.body)).encode()))
        has_body = bool(reply.body) and not only_head
        self._headers(request, fields, ended=not has_body)
        if not has_body:
            return
        self._hub.unsent += len(reply.body)
        try:
            for piece, is_last in pieces(reply.body):
                await self._write(request, piece, ended=is_last)
        finally:
            self._hub.unsent -= len(reply.body)

    async def _stream(self, request: H3Request, reply: StreamedReply, *, only_head: bool) -> None:
        """Send an answer while it is made; if it cannot be completed, reset its stream."""
        fields = _fields(200, reply.content_type, reply.headers)
        if reply.length is not None and not only_head:
            fields.append((b"content-length", str(reply.length).encode()))
        async with aclosing(reply.parts) as parts:
            self._headers(request, fields, ended=only_head)
            if only_head:
                return
            try:
                if reply.first:
                    await self._write(request, reply.first)
                async for part in parts:
                    await self._write(request, part)
                await self._write(request, b"", ended=True)
            except InterruptedReply:
                self._cut(request)

    def _headers(self, request: H3Request, fields: Fields, *, ended: bool) -> None:
        if request.lost.is_set() or self._http is None:
            raise ConnectionResetError
        self._http.send_headers(request.stream_id, fields, end_stream=ended)
        request.is_answered = True
        self.transmit_soon()

    def _data(self, request: H3Request, data: bytes, *, ended: bool = False) -> None:
        if request.lost.is_set() or self._http is None:
            raise ConnectionResetError
        self._http.send_data(request.stream_id, data, end_stream=ended)
        self.transmit_soon()

    async def _write(self, request: H3Request, data: bytes, *, ended: bool = False) -> None:
        """Send a part; wait while too much is unsent, and drop a client that reads too slowly."""
        self._data(request, data, ended=ended)
        max_unsent = MAX_UNSENT_TAIL_BYTES if ended else MAX_UNSENT_BYTES
        seconds = self._hub.config.listen.follower_timeout_sec
        while (unsent := self._windows.unsent(request.stream_id)) > max_unsent:
            allowed = max(max_unsent, unsent - round(seconds * MIN_READ_RATE))
            try:
                async with asyncio.timeout(seconds):
                    await self.until_sent(request.stream_id, allowed, request.wants_more)
            except TimeoutError:
                request.dropped = True
                self._cut(request)
                raise

    def _cut(self, request: H3Request) -> None:
        if not request.lost.is_set():
            request.lost.set()
            self._windows.reset(request.stream_id, ErrorCode.H3_INTERNAL_ERROR)
            self.transmit_soon()


def _fields(status: int, content_type: str, headers: dict[str, str]) -> Fields:
    return [
        (b":status", str(status).encode()),
        (b"content-type", content_type.encode()),
        *((name.lower().encode(), value.encode()) for name, value in headers.items()),
    ]
