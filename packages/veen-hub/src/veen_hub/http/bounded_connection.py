"""A client's connection with bounds: aiohttp's request handler, hardened.

Bounded are the head of a request, the time in which a client reads its answers, and what is left behind by
requests that are interrupted. Refusals by aiohttp itself are answered through the listener, without repeating
the client's bytes.

The private names of aiohttp used here are ``_messages``, ``_request_count``, ``_current_request``,
``_close``, ``_force_close``, ``_reading_paused`` and ``_buffer_paused``; ADR 0009 says what each is needed
for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

from aiohttp import StreamReader, web
from aiohttp.streams import EMPTY_PAYLOAD

from veen_core.errors import ApiError
from veen_core.rejection import Code
from veen_hub.api.content import MIN_READ_RATE
from veen_hub.api.request_ids import new_request_id
from veen_hub.http.replies import to_response
from veen_hub.http.request_names import name_request
from veen_hub.ops.garbage import without_frames
from veen_hub.ops.logs import LOGGER, log

if TYPE_CHECKING:
    from veen_hub.http.bounded_listener import BoundedListener

MAX_HEADER_BYTES: Final = 8_190
MAX_HEADERS: Final = 128
MAX_HEAD_BYTES: Final = 32 * 1_024
"""Bytes of a whole head. aiohttp's parser alone would buffer 128 headers of 8 KiB for each connection."""
KEEPALIVE_SEC: Final = 75
LINGER_SEC: Final = 2
"""How long the rest of a refused body is read and discarded."""


class BoundedConnection(web.RequestHandler):
    """One client's connection."""

    __slots__ = ("_body", "_listener", "_unparsed", "_watch", "dropped", "lost", "source")

    def __init__(
        self, listener: BoundedListener, server: web.Server, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # aiohttp's own way to switch it off
            auto_decompress=False,
            keepalive_timeout=KEEPALIVE_SEC,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=MAX_HEADERS,
            lingering_time=LINGER_SEC,
        )
        self._listener = listener
        self.lost = asyncio.Event()
        """Set when the connection is gone, for handlers that wait for something else."""
        self._body: StreamReader = EMPTY_PAYLOAD
        """The body of the last request that the parser has recognised."""
        self._unparsed = 0
        """Bytes given to the parser since it last produced anything."""
        self._watch: asyncio.TimerHandle | None = None
        """Runs while the client does not read fast enough."""
        self.dropped = False
        """Whether the connection was closed because the client read too slowly."""
        self.source = b""
        """The writer whose message was accepted last over this connection."""

    def translate(self, request: web.BaseRequest, refused: web.HTTPException) -> ApiError:  # noqa: ARG002
        """Translate a refusal by aiohttp: an unknown route, a wrong method, a line that is too long."""
        codes = {404: Code.NOT_FOUND, 413: Code.LIMIT}
        return ApiError(codes.get(refused.status, Code.BAD_REQUEST), refused.reason)

    # --- life of the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._listener.connections += 1
        super().connection_made(transport)

    async def start(self) -> None:
        """Handle requests; afterwards, close even if the client does not read the last answer."""
        transport = self.transport
        try:
            await super().start()
        finally:
            if transport is not None and transport.get_write_buffer_size():
                self._loop.call_later(self._listener.slow_client_sec, transport.abort)

    def connection_lost(self, exc: BaseException | None) -> None:
        if not self.lost.is_set():
            self._listener.connections -= 1
        self.lost.set()
        self._stop_watching()
        for head, _body in self._messages:
            if isinstance(why := getattr(head, "exc", None), BaseException):  # not a valid request
                without_frames(why)
        self._body = EMPTY_PAYLOAD  # the old payload refers to this connection
        super().connection_lost(exc)

    def close(self) -> None:
        """Stop taking requests when the hub stops; aiohttp drops what arrives from now on."""
        super().close()
        for _head, body in self._messages:
            _abandon(body)
        self._loop.call_soon(self._abandon_current)  # includes a request that is being handed over now

    def _abandon_current(self) -> None:
        if self._current_request is not None:
            _abandon(self._current_request.content)

    # --- clients that read too slowly

    def pause_writing(self) -> None:
        """Start watching a client that leaves its answers unread."""
        super().pause_writing()
        assert self.transport is not None
        self._watch_from(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._stop_watching()
        super().resume_writing()

    def _watch_from(self, unread: int) -> None:
        """Check, ``slow_client_sec`` from now, that the client has read at least at ``MIN_READ_RATE``."""
        seconds = self._listener.slow_client_sec
        self._watch = self._loop.call_later(seconds, self._check_progress, unread - seconds * MIN_READ_RATE)

    def _check_progress(self, allowed_unread: int) -> None:
        if self.transport is None:
            return
        unread = self.transport.get_write_buffer_size()
        if unread <= max(0, allowed_unread):
            self._watch_from(unread)
        else:
            self.dropped = True
            self.transport.abort()

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    # --- data

    def data_received(self, data: bytes) -> None:
        self._parse(data)

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Skip aiohttp's parse of an empty piece after each body, unless data was held back."""
        if self._reading_paused or self._buffer_paused:
            super().resume_reading(resume_parser)

    def _parse(self, data: bytes) -> None:
        """Feed aiohttp's parser; refuse if it buffers MAX_HEAD_BYTES without producing a request."""
        if self._close or self._force_close:
            return
        before = self._request_count, self._body.total_bytes
        super().data_received(data)
        self._note_body()
        paused = self._reading_paused or self._buffer_paused
        if paused or (self._request_count, self._body.total_bytes) != before:
            self._unparsed = 0
        else:
            self._unparsed += len(data)
        if self._unparsed > MAX_HEAD_BYTES:
            self._refuse_head()

    def _note_body(self) -> None:
        if self._messages:
            self._body = self._messages[-1][1]

    def _refuse_head(self) -> None:
        """Answer a head that is too long, unless another answer must come first, and close."""
        request_id = new_request_id()
        log(logging.INFO, "request_unreadable", error="head too long", request_id=request_id)
        idle = self._current_request is None and not self._messages
        if idle and not self.writing_paused:
            self._write(self._listener.refuse_and_close(head_too_long(), request_id))
        if not self._body.is_eof():  # the unparsed bytes are trailers of a chunked body
            self._body.set_exception(ConnectionResetError("the trailers of the body are too long"))
        self.force_close()

    def _write(self, answer: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(answer)

    # --- aiohttp's way

    async def _handle_request(
        self,
        request: web.BaseRequest,
        start_time: float | None,
        request_handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
    ) -> tuple[web.StreamResponse, bool]:
        """Leave no reference cycle behind an interrupted request: its body would stay until a collection."""
        try:
            return await super()._handle_request(request, start_time, request_handler)
        except ConnectionError as exc:
            without_frames(exc)
            return web.Response(), True  # aiohttp's way to report that the client is gone
        finally:
            if (why := request.content.exception()) is not None:
                without_frames(why)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer; translate refusals by aiohttp itself, and count unsent bytes."""
        if isinstance(resp, web.HTTPException):
            error = self.translate(request, resp)
            resp = to_response(self._listener.refuse(request.headers, error, name_request(request)))
            resp.force_close()
        size = (resp.content_length or 0) if isinstance(resp, web.Response) else 0
        self._listener.add_unsent(size)
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._note_body()  # aiohttp may have parsed a body after a declined upgrade
            self._listener.add_unsent(-size)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - may quote the client's bytes
    ) -> web.StreamResponse:
        """Answer what is not a valid request; its bytes are not logged."""
        if isinstance(exc, ConnectionError):
            raise exc  # the client is gone
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun and can only be interrupted")
        request_id = name_request(request)
        kind = type(exc).__name__ if exc is not None else "none"
        if status < 500:
            log(logging.INFO, "request_unreadable", error=kind, request_id=request_id)
            if exc is not None:
                without_frames(exc)  # its frames hold the client's bytes
            error = ApiError(Code.BAD_REQUEST, f"the request is not valid HTTP ({kind})")
        else:
            LOGGER.error("handler_failed", exc_info=exc, extra={"fields": {"request_id": request_id}})
            error = ApiError(Code.UNAVAILABLE, "internal error: see the server's log", retry_after=5)
        response = to_response(self._listener.refuse(request.headers, error, request_id))
        response.force_close()
        return response


def check_head_size(raw_headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse a head that arrived in one piece and is too long."""
    if sum([len(name) + len(value) for name, value in raw_headers]) > MAX_HEAD_BYTES:
        raise head_too_long()


def head_too_long() -> ApiError:
    return ApiError(Code.BAD_REQUEST, f"the head of the request has more than {MAX_HEAD_BYTES} bytes")


def _abandon(body: StreamReader) -> None:
    """Refuse the handler that waits for the rest of a body."""
    if not body.is_eof():
        body.set_exception(ApiError(Code.UNAVAILABLE, "the server is shutting down", retry_after=5))
