"""Connections: aiohttp's, with every answer an envelope, a bound on how many, and word when one is gone.

What never becomes a request (not HTTP, a header too long, an ``Expect`` nobody knows) is refused here, with
the same envelope as all else (§10.6). A connection beyond ``max_connections`` gets one answer and ends; the
first few of those may ask how the hub is. A TLS handshake takes a place like a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from aiohttp import StreamReader, web

from veen_core.api import envelope_of
from veen_core.errors import ApiError, ConfigError
from veen_core.rejection import HTTP_STATUS, Code
from veen_hub.garbage import without_frames
from veen_hub.http.content import CBOR
from veen_hub.http.errors import from_http, internal_error, refuse
from veen_hub.http.express import Express, is_whole
from veen_hub.http.keys import name_request, new_request_id
from veen_hub.hub import Hub
from veen_hub.logs import LOGGER, log

MAX_HEADER: Final = 8_190
MAX_HEADERS: Final = 128
KEEPALIVE_SEC: Final = 75
HANDSHAKE_SEC: Final = 10
SLOWEST: Final = 32 * 1_024
"""Bytes a second that a client must take of what is sent to it."""
SPARE: Final = 64
"""Connections beyond ``max_connections`` that may ask for a probe."""
SPARE_SEC: Final = 5
"""How long such a one may take, all in all."""
LINGER_SEC: Final = 2
"""How long the rest of a body is read and thrown away after its request was refused."""


class Connection(web.RequestHandler):
    """One client. ``lost`` is set when it is gone, for handlers that wait for something else."""

    __slots__ = ("_at_boundary", "_express", "_held", "_hub", "_listener", "_watch", "deaf", "lost")

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
            super().data_received(data)
        elif self._express is not None:
            self._held += data
            self._pause_transport_reading()
        elif not (self._at_boundary and self._is_idle and self._takes_short_way(data)):
            self._at_boundary = self._at_boundary and is_whole(data)
            super().data_received(data)

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


class Spare(Connection):
    """Beyond ``max_connections``: it asks one thing at once, and ``app`` answers only what probes ask."""

    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._loop.call_later(SPARE_SEC, cast(asyncio.Transport, transport).abort)

    def data_received(self, data: bytes) -> None:
        web.RequestHandler.data_received(self, data)  # no short way in

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        resp.force_close()
        return await super().finish_response(request, resp, start_time)


def too_many() -> ApiError:
    return ApiError(Code.UNAVAILABLE, "too many connections", retry_after=1)


def _give_up(body: StreamReader) -> None:
    """Whoever waits for the rest of it is refused now."""
    if not body.is_eof():
        body.set_exception(ApiError(Code.UNAVAILABLE, "the hub is shutting down", retry_after=5))


class _Full(asyncio.Protocol):
    """A connection too many: one answer, and it ends."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        error = too_many()
        request_id = new_request_id()
        body = envelope_of(error, request_id).encode()
        head = (
            f"HTTP/1.1 {HTTP_STATUS[error.code]} Service Unavailable\r\nContent-Type: {CBOR}\r\n"
            f"Content-Length: {len(body)}\r\nVEEN-Request-Id: {request_id}\r\n"
            f"Retry-After: {error.retry_after}\r\nConnection: close\r\n\r\n"
        )
        stream = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting from it
        stream.write(head.encode() + body)
        stream.close()


class _Arrival(asyncio.Protocol):
    """A connection whose handshake is still to come: asyncio tells nobody of those, nor of how they end."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        stream.pause_reading()
        if (kind := self._listener.kind()) is not None:
            with contextlib.suppress(OSError):  # no descriptor is left
                self._listener.shake_hands(kind, os.dup(stream.get_extra_info("socket").fileno()))
        stream.abort()  # its descriptor; the connection lives on in the other one, if there is one


class Listener(web.BaseSite):
    """The socket that the hub listens on."""

    __slots__ = ("_handshakes", "_hub", "_listen", "connections")

    def __init__(self, runner: web.BaseRunner, hub: Hub, context: ssl.SSLContext | None) -> None:
        listen = hub.config.listen
        super().__init__(runner, ssl_context=context, backlog=listen.backlog)
        self._hub = hub
        self._listen = listen
        self.connections = 0
        self._handshakes: set[asyncio.Task[None]] = set()

    @property
    def patience(self) -> int:
        """Seconds that somebody may take to read an answer."""
        return self._listen.follower_timeout_sec

    @property
    def name(self) -> str:
        scheme = "https" if self._ssl_context is not None else "http"
        host, port = self._runner.addresses[0][:2]
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    async def start(self) -> None:
        await super().start()
        loop = asyncio.get_running_loop()
        listen = self._listen
        try:
            self._server = await self._bind(loop)
        except OSError as exc:
            raise ConfigError(
                f"listen.host, listen.port: cannot listen on {listen.host} port {listen.port}: "
                f"{exc.strerror or exc}; choose another (--host, --port; 0 takes a free one), or stop what "
                "listens there"
            ) from exc

    async def _bind(self, loop: asyncio.AbstractEventLoop) -> asyncio.Server:
        return await loop.create_server(
            lambda: self._connect(loop) if self._ssl_context is None else _Arrival(self),
            self._listen.host,
            self._listen.port,
            backlog=self._backlog,
            reuse_address=True,
        )

    def _connect(self, loop: asyncio.AbstractEventLoop) -> asyncio.BaseProtocol:
        return self._made(kind, loop) if (kind := self.kind()) is not None else _Full()

    def _made(self, kind: type[Connection], loop: asyncio.AbstractEventLoop) -> Connection:
        server: Any = self._runner.server
        return kind(self, server, loop, self._hub)

    def kind(self) -> type[Connection] | None:
        """What there is room for."""
        taken = self.connections + len(self._handshakes)
        if self._runner.server is None or taken >= self._listen.max_connections + SPARE:
            return None
        return Connection if taken < self._listen.max_connections else Spare

    def shake_hands(self, kind: type[Connection], descriptor: int) -> None:
        task = asyncio.create_task(self._shake_hands(kind, socket.socket(fileno=descriptor)))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, kind: type[Connection], connection: socket.socket) -> None:
        """It has its place as a handshake until it has one as a connection."""
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        try:
            await loop.connect_accepted_socket(
                lambda: self._made(kind, loop),
                connection,
                ssl=self._ssl_context,
                ssl_handshake_timeout=HANDSHAKE_SEC,
            )
        except (OSError, ssl.SSLError) as exc:
            log(logging.DEBUG, "no TLS handshake", error=type(exc).__name__)

    async def stop(self) -> None:
        await super().stop()
        for task in self._handshakes:
            task.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)
