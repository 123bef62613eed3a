"""Connections: aiohttp's request handler with bounds, envelopes for refusals, and a direct way for submits.

A submit that arrived whole is handled without aiohttp's task, request and response objects, which cost as
much as verifying and signing the message: 256 raw clients got 2,380 submits/s this way and 1,680 through
aiohttp's handler (2 cores). aiohttp's parser reads both, and ``SubmitCall`` applies the same rules to both.

The private names of aiohttp used here are ``_waiter``, ``_messages``, ``_parser``, ``_request_count``,
``_current_request``, ``_close``, ``_force_close``, ``_reading_paused``, ``_buffer_paused`` and the
keep-alive timer; ADR 0009 says what each is needed for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from aiohttp import HttpVersion11, StreamReader, web
from aiohttp.streams import EMPTY_PAYLOAD

from veen_core.errors import AdmissionError, ApiError
from veen_core.rejection import Code
from veen_hub.http.content import check_body, over_the_cap
from veen_hub.http.errors import from_http, refuse, refuse_and_close
from veen_hub.http.keys import name_request, new_request_id
from veen_hub.http.submit import SubmitCall
from veen_hub.hub import Hub
from veen_hub.ops.garbage import without_frames
from veen_hub.ops.logs import LOGGER, log
from veen_hub.pipeline.sequencer import internal_error

if TYPE_CHECKING:
    from veen_hub.http.listener import Listener

SUBMIT_PATH: Final = "/v1/submit"
MAX_HEADER_BYTES: Final = 8_190
MAX_HEADERS: Final = 128
MAX_HEAD_BYTES: Final = 32 * 1_024
"""Bytes of a whole head. aiohttp's parser alone would buffer 128 headers of 8 KiB for each connection."""
KEEPALIVE_SEC: Final = 75
MIN_READ_RATE: Final = 32 * 1_024
"""Bytes per second that a client must read of its answers."""
LINGER_SEC: Final = 2
"""How long the rest of a refused body is read and discarded."""


class Connection(web.RequestHandler):
    """One client's connection."""

    __slots__ = (
        "_body",
        "_held",
        "_hub",
        "_listener",
        "_submit",
        "_unparsed",
        "_watch",
        "dropped",
        "lost",
    )

    def __init__(
        self, listener: Listener, server: web.Server, loop: asyncio.AbstractEventLoop, hub: Hub
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
        self._hub = hub
        self.lost = asyncio.Event()
        """Set when the connection is gone, for handlers that wait for something else."""
        self._submit: SubmitCall | None = None
        """The direct submit in progress."""
        self._held = b""
        """Bytes that arrived behind it."""
        self._body: StreamReader = EMPTY_PAYLOAD
        """The body of the last request that the parser has recognised."""
        self._unparsed = 0
        """Bytes given to the parser since it last produced anything."""
        self._watch: asyncio.TimerHandle | None = None
        """Runs while the client does not read fast enough."""
        self.dropped = False
        """Whether the connection was closed because the client read too slowly."""

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
        """Check later whether the client has read ``MIN_READ_RATE`` until then."""
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
        """Parse data; handle a whole submit directly, and leave every other request to aiohttp."""
        if self._submit is not None:  # answers keep the order of their requests
            self._held += data
            self._pause_transport_reading()
            return
        waiter = self._waiter
        idle = not waiter.done() if waiter is not None else self._request_count == 0
        if not idle or self._messages or self.writing_paused:
            self._parse(data)
            return
        self._waiter = None  # the loop in start() must not wake up for a direct submit
        try:
            self._parse(data)
        finally:
            self._waiter = waiter
        if self._close or self._force_close:
            if waiter is not None:
                waiter.cancel()
        elif len(self._messages) == 1 and self._is_whole_submit(*self._messages[0]):
            message, payload = self._messages.popleft()
            assert self._parser is not None
            self._parser.message_consumed()
            self._begin_submit(message, payload)
        elif self._messages and waiter is not None:
            waiter.set_result(None)

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Skip aiohttp's parse of an empty piece after each body, unless data was held back."""
        if self._reading_paused or self._buffer_paused:
            super().resume_reading(resume_parser)

    def _is_whole_submit(self, message: Any, payload: StreamReader) -> bool:
        return (
            getattr(message, "path", None) == SUBMIT_PATH
            and message.method == "POST"
            and self._listener.takes_submits
            and payload.is_eof()
            and message.version == HttpVersion11
            and not message.should_close
            and not message.upgrade
            and "Expect" not in message.headers
        )

    def _begin_submit(self, message: Any, payload: StreamReader) -> None:
        peer = self.peername
        remote = peer[0] if isinstance(peer, tuple) else peer
        call = SubmitCall(self._hub, message.headers, remote, new_request_id())
        try:
            check_head_size(message.raw_headers)
            max_bytes = call.check_head()
            body = check_body(payload.read_nowait(), max_bytes, over_the_cap)
            call.lease.grow_to(len(body))
            self._submit = call
            if not call.enter(body, self._answer):
                self._answer()
        except (AdmissionError, ApiError) as exc:
            self._submit = None
            call.lease.release()
            self._write(call.refuse(exc).to_bytes())

    def _answer(self) -> None:
        """Answer the direct submit, and continue with what arrived behind it."""
        call, self._submit = self._submit, None
        assert call is not None
        call.lease.release()
        try:
            answer = call.reply()
            self._loop.call_soon(call.note)
        except Exception:  # noqa: BLE001 - logged; a bug is answered too
            LOGGER.exception("answer_failed")
            answer = call.refuse(internal_error())
        self._write(answer.to_bytes())
        if self._held:
            data, self._held = self._held, b""
            self._resume_transport_reading()
            self.data_received(data)

    def _write(self, answer: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(answer)
        self._next_keepalive_close_time = self._loop.time() + KEEPALIVE_SEC

    def _process_keepalive(self) -> None:
        """Keep a connection with a direct submit in progress open: it is not idle."""
        if self._submit is not None:
            self._next_keepalive_close_time = self._loop.time() + KEEPALIVE_SEC
        super()._process_keepalive()

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
            self._write(refuse_and_close(head_too_long(), request_id))
        if not self._body.is_eof():  # the unparsed bytes are trailers of a chunked body
            self._body.set_exception(ConnectionResetError("the trailers of the body are too long"))
        self.force_close()

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
        """Send an answer; give refusals by aiohttp itself an envelope, and count unsent bytes."""
        if isinstance(resp, web.HTTPException):
            resp = refuse(request.headers, from_http(request, resp), name_request(request)).to_response()
            resp.force_close()
        size = (resp.content_length or 0) if isinstance(resp, web.Response) else 0
        self._hub.unsent += size
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._note_body()  # aiohttp may have parsed a body after a declined upgrade
            self._hub.unsent -= size

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
            error = internal_error()
        response = refuse(request.headers, error, request_id).to_response()
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
        body.set_exception(ApiError(Code.UNAVAILABLE, "the hub is shutting down", retry_after=5))
