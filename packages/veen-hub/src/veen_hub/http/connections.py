"""Connections: aiohttp's, with every answer an envelope, and word when one is gone.

What never becomes a request (not HTTP, a header too long, an ``Expect`` nobody knows) is refused here, with
the same envelope as all else (§10.6).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from aiohttp import StreamReader, web
from aiohttp.streams import EMPTY_PAYLOAD

from veen_core.errors import ApiError
from veen_core.rejection import Code
from veen_hub.http.errors import from_http, internal_error, refuse
from veen_hub.http.express import Express, is_whole, refusal
from veen_hub.http.keys import name_request, new_request_id
from veen_hub.hub import Hub
from veen_hub.ops.garbage import without_frames
from veen_hub.ops.logs import LOGGER, log

if TYPE_CHECKING:
    from veen_hub.http.listener import Listener

MAX_HEADER: Final = 8_190
MAX_HEADERS: Final = 128
MAX_FIELDS: Final = 32 * 1_024
"""Bytes of a whole head, with as many cookies as fit. aiohttp's parser keeps what it has of one that is half
sent, and of the fields behind a chunked body: 128 of the longest are a megabyte and a half a connection."""
KEEPALIVE_SEC: Final = 75
SLOWEST: Final = 32 * 1_024
"""Bytes a second that a client must take of what is sent to it."""
LINGER_SEC: Final = 2
"""How long the rest of a body is read and thrown away after its request was refused."""


class Connection(web.RequestHandler):
    """One client. ``lost`` is set when it is gone, for handlers that wait for something else."""

    __slots__ = (
        "_at_boundary",
        "_body",
        "_express",
        "_held",
        "_hub",
        "_listener",
        "_unparsed",
        "_watch",
        "deaf",
        "lost",
    )

    def __init__(
        self, listener: Listener, server: web.Server, loop: asyncio.AbstractEventLoop, hub: Hub
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # aiohttp's own way to say none
            auto_decompress=False,
            keepalive_timeout=KEEPALIVE_SEC,
            max_line_size=MAX_HEADER,
            max_field_size=MAX_HEADER,
            max_headers=MAX_HEADERS,
            lingering_time=LINGER_SEC,
        )
        self._listener = listener
        self._hub = hub
        self.lost = asyncio.Event()
        self._express: Express | None = None
        """The submit of the short way that is to be answered next."""
        self._held = b""
        """What arrived behind it."""
        self._at_boundary = True
        """Whether all that aiohttp's parser was given ended where a request ends."""
        self._body: StreamReader = EMPTY_PAYLOAD
        """Of the last request that aiohttp's parser has made out."""
        self._unparsed = 0
        """Bytes that the parser was given since anything last came of them."""
        self._watch: asyncio.TimerHandle | None = None
        """Runs while the client takes less than it is sent."""
        self.deaf = False
        """Whether it was dropped for that."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._listener.connections += 1
        super().connection_made(transport)

    async def start(self) -> None:
        """The loop over requests; it ends with the connection, which closes when all answers are sent.

        Whoever does not read them would keep it open for ever.
        """
        transport = self.transport
        try:
            await super().start()
        finally:
            if transport is not None and transport.get_write_buffer_size():
                self._loop.call_later(self._listener.patience, transport.abort)

    def connection_lost(self, exc: BaseException | None) -> None:
        if not self.lost.is_set():
            self._listener.connections -= 1
        self.lost.set()
        self._stop_watching()
        for head, _body in self._messages:
            if isinstance(why := getattr(head, "exc", None), BaseException):  # was no request
                without_frames(why)
        self._body = EMPTY_PAYLOAD  # which knows this connection
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The transport holds enough: whatever is being sent, who does not take it is dropped."""
        super().pause_writing()
        assert self.transport is not None
        self._look_again(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._stop_watching()
        super().resume_writing()

    def _look_again(self, left: int) -> None:
        """It takes so much, or everything, until then."""
        patience = self._listener.patience
        self._watch = self._loop.call_later(patience, self._look, left - patience * SLOWEST)

    def _look(self, enough: int) -> None:
        if self.transport is None:
            return
        left = self.transport.get_write_buffer_size()
        if left <= max(0, enough):
            self._look_again(left)
        else:
            self.deaf = True
            self.transport.abort()

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def data_received(self, data: bytes) -> None:
        """By the short way if it can be; in the order in which it came."""
        if not data:  # aiohttp's own way to go on with what its parser holds
            self._parse(data)
        elif self._express is not None:
            self._held += data
            self._pause_transport_reading()
        elif not (self._at_boundary and self._is_idle and self._takes_short_way(data)):
            self._at_boundary = self._at_boundary and is_whole(data)
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        """By aiohttp, which has its own bounds for what comes of it, and none for what nothing comes of."""
        if self._close or self._force_close:  # nothing is to come of it: whoever is being answered still is
            return
        before = self._request_count, self._body.total_bytes
        super().data_received(data)
        self._note_body()
        paused = self._reading_paused or self._buffer_paused
        if paused or (self._request_count, self._body.total_bytes) != before:
            self._unparsed = 0
        else:
            self._unparsed += len(data)
        if self._unparsed > MAX_FIELDS:
            self._refuse_head()

    def _note_body(self) -> None:
        if self._messages:
            self._body = self._messages[-1][1]

    def _refuse_head(self) -> None:
        """Half-sent and too long already: the answer, if nobody waits for another one first, and the end."""
        request_id = new_request_id()
        log(logging.INFO, "not HTTP", error="head too long", request_id=request_id)
        if self._is_idle:
            self._write(refusal(head_too_long(), request_id, last=True))
        if not self._body.is_eof():  # these are fields behind it
            self._body.set_exception(ConnectionResetError("the fields behind a body are too long"))
        self.force_close()

    @property
    def _is_idle(self) -> bool:
        """Whether aiohttp has answered everything that it was given and takes more, and the client reads.

        For one that does not, aiohttp waits before it answers the next request.
        """
        if self._close or self._force_close or self.writing_paused:
            return False
        return not self._request_count or (self._waiter is not None and not self._waiter.done())

    def _takes_short_way(self, data: bytes) -> bool:
        express = Express.of(self._hub, data)
        if express is None:
            return False
        try:
            express.enter(self._answer)
        except ApiError as exc:
            self._write(express.refuse(exc))
            return True
        self._express = express
        return True

    def _answer(self) -> None:
        express, self._express = self._express, None
        assert express is not None
        try:
            answer = express.answer()
            self._loop.call_soon(express.note)
        except Exception:  # noqa: BLE001 - logged; a bug is answered like everything else
            LOGGER.exception("bug")
            answer = express.refuse(internal_error())
        self._write(answer)
        if self._held:
            data, self._held = self._held, b""
            self._resume_transport_reading()
            self.data_received(data)

    def _write(self, answer: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(answer)
        self._next_keepalive_close_time = self._loop.time() + KEEPALIVE_SEC

    def _process_keepalive(self) -> None:
        """The timer for connections that are idle: one with a submit under way is not."""
        if self._express is not None:
            self._next_keepalive_close_time = self._loop.time() + KEEPALIVE_SEC
        super()._process_keepalive()

    def close(self) -> None:
        """When the hub stops: aiohttp drops what arrives from now on, so nobody may wait for it."""
        super().close()
        for _head, body in self._messages:
            _give_up(body)
        self._loop.call_soon(self._give_up_current)  # a request that is just being handed over is one then

    def _give_up_current(self) -> None:
        if self._current_request is not None:
            _give_up(self._current_request.content)

    async def _handle_request(
        self,
        request: web.BaseRequest,
        start_time: float | None,
        request_handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
    ) -> tuple[web.StreamResponse, bool]:
        """A request that is cut off leaves no cycle: what came of its body would wait for the collector."""
        try:
            return await super()._handle_request(request, start_time, request_handler)
        except ConnectionError as exc:
            without_frames(exc)
            return web.Response(), True  # aiohttp's word for a client that is gone
        finally:
            if (why := request.content.exception()) is not None:
                without_frames(why)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """What aiohttp refuses before a handler is asked; and how much waits to be read."""
        if isinstance(resp, web.HTTPException) and isinstance(request, web.Request):
            name_request(request)
            resp = refuse(request, from_http(request, resp))
            resp.force_close()
        size = (resp.content_length or 0) if isinstance(resp, web.Response) else 0
        self._hub.unsent += size
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._note_body()  # aiohttp parses here what came behind an upgrade that was declined
            self._hub.unsent -= size

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - may quote what was sent
    ) -> web.StreamResponse:
        """What never became a request; its bytes are not logged."""
        if isinstance(exc, ConnectionError):
            raise exc  # there is nobody to answer
        if request.writer.output_size > 0:
            raise ConnectionError("the answer is under way: it can only be cut off")
        request_id = name_request(request)
        kind = type(exc).__name__ if exc is not None else "none"
        if status < 500:
            log(logging.INFO, "not HTTP", error=kind, request_id=request_id)
            if exc is not None:
                without_frames(exc)  # they hold what was sent
            error = ApiError(Code.BAD_REQUEST, f"not a request that this hub can read ({kind})")
        else:
            LOGGER.error("bug", exc_info=exc, extra={"fields": {"request_id": request_id}})
            error = internal_error()
        assert isinstance(request, web.Request)
        response = refuse(request, error)
        response.force_close()
        return response


def check_head(request: web.BaseRequest) -> None:
    """A head that came at once may be as long as what is read at once."""
    if sum(len(name) + len(value) for name, value in request.raw_headers) > MAX_FIELDS:
        raise head_too_long()


def head_too_long() -> ApiError:
    return ApiError(Code.BAD_REQUEST, f"the head of a request may have {MAX_FIELDS} bytes, this one has more")


def _give_up(body: StreamReader) -> None:
    """Whoever waits for the rest of it is refused now."""
    if not body.is_eof():
        body.set_exception(ApiError(Code.UNAVAILABLE, "the hub is shutting down", retry_after=5))
