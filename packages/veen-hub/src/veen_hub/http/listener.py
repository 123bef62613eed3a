"""The socket that the hub listens on, and who may come in.

A connection beyond ``max_connections`` gets one answer and ends; the first few of those may ask how the hub
is. A TLS handshake takes a place like a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from typing import Any, Final, cast

from aiohttp import web

from veen_core.errors import ApiError, ConfigError
from veen_core.rejection import Code
from veen_hub.http.connections import Connection
from veen_hub.http.express import refusal
from veen_hub.http.keys import new_request_id
from veen_hub.hub import Hub
from veen_hub.ops.logs import log

HANDSHAKE_SEC: Final = 10
SPARE: Final = 64
"""Connections beyond ``max_connections`` that may ask for a probe."""
SPARE_SEC: Final = 5
"""How long such a one may take, all in all."""


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


class _Full(asyncio.Protocol):
    """A connection too many: one answer, and it ends."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting from it
        stream.write(refusal(too_many(), new_request_id(), last=True))
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
