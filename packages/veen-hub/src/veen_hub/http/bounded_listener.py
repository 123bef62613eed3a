"""Listeners with bounds: a socket, its connection limit, and TLS handshakes.

A connection beyond ``max_connections`` gets one answer and is closed. A TLS handshake counts as a connection
until it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import socket
import ssl
import sys
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from aiohttp import web
from multidict import CIMultiDict

from veen_core.errors import ApiError, ConfigError
from veen_core.rejection import HTTP_STATUS, Code
from veen_hub.api.reply import Headers, Reply
from veen_hub.api.request_ids import new_request_id
from veen_hub.http.bounded_connection import BoundedConnection
from veen_hub.http.replies import to_bytes
from veen_hub.ops.logs import log

HANDSHAKE_SEC: Final = 10
RESERVED_FILES: Final = 512
"""File descriptors that are not used for connections, unless there are fewer than twice as many."""


def affordable_connections() -> int:
    """Return for how many connections this process has descriptors; others need some for the log's files."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else max(limit - RESERVED_FILES, limit // 2)


class ListenSettings(Protocol):
    """A section of a configuration file that says where to listen."""

    @property
    def host(self) -> str: ...
    @property
    def max_connections(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerEndpoint:
    """Address and limits of one listener."""

    key: str
    """The section of the configuration file that sets host and port."""
    host: str
    port: int
    max_connections: int
    backlog: int
    reuse_port: bool = False
    """Whether other processes of the same hub listen at the same address."""

    @staticmethod
    def of(key: str, settings: ListenSettings, *, port: int, reuse_port: bool = False) -> ListenerEndpoint:
        """Return the endpoint of a section; its backlog is ``max_connections`` unless the section has one."""
        limit = settings.max_connections
        backlog = getattr(settings, "backlog", limit)
        return ListenerEndpoint(
            key=key,
            host=settings.host,
            port=port,
            max_connections=limit,
            backlog=backlog,
            reuse_port=reuse_port,
        )


def refuse_in_text(error: ApiError) -> Reply:
    """Encode a refusal as one line of text."""
    answer = Reply(HTTP_STATUS[error.code], f"{error.message}\n".encode(), "text/plain; charset=utf-8")
    if error.retry_after is not None:
        answer.headers["Retry-After"] = str(error.retry_after)
    return answer


class _RefusedConnection(asyncio.Protocol):
    """A connection beyond the limit: one answer, then closed."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)  # uvloop's transport does not inherit from it
        stream.write(self._answer)
        stream.close()


class _BeforeHandshake(asyncio.Protocol):
    """A TCP connection before its TLS handshake, which asyncio alone would neither count nor report."""

    def __init__(self, listener: BoundedListener) -> None:
        self._listener = listener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        stream.pause_reading()
        if self._listener.has_room():
            with contextlib.suppress(OSError):  # no file descriptor is left
                self._listener.shake_hands(os.dup(stream.get_extra_info("socket").fileno()))
        stream.abort()  # closes this descriptor; the duplicate keeps the connection open


class BoundedListener(web.BaseSite):
    """One listening socket."""

    __slots__ = ("_endpoint", "_handshakes", "_is_limited", "connections", "slow_client_sec", "unsent")

    def __init__(
        self,
        runner: web.BaseRunner,
        endpoint: ListenerEndpoint,
        context: ssl.SSLContext | None = None,
        *,
        slow_client_sec: int,
    ) -> None:
        super().__init__(runner, ssl_context=context, backlog=endpoint.backlog)
        self._endpoint = endpoint
        self.slow_client_sec = slow_client_sec
        """How long a client may read too slowly before it is dropped."""
        self.connections = 0
        self.unsent = 0
        """Bytes of answers that clients have yet to read."""
        self._handshakes: set[asyncio.Task[None]] = set()
        self._is_limited = False
        """Whether connections were refused for want of file descriptors, which is logged once."""

    def make_connection(self, server: web.Server, loop: asyncio.AbstractEventLoop) -> BoundedConnection:
        """Make the handler of a new connection."""
        return BoundedConnection(self, server, loop)

    def add_unsent(self, size: int) -> None:
        """Count bytes of an answer that is being sent, or that was sent."""
        self.unsent += size

    def refuse(self, headers: Headers, error: ApiError, request_id: str) -> Reply:  # noqa: ARG002 - for others
        """Encode a refusal; here as one line of text."""
        return refuse_in_text(error)

    def refuse_and_close(self, error: ApiError, request_id: str) -> bytes:
        """Encode the last answer of a connection whose request could not be read."""
        answer = self.refuse(CIMultiDict(), error, request_id)
        answer.headers["Connection"] = "close"
        return to_bytes(answer)

    @property
    def port(self) -> int:
        return int(self._runner.addresses[0][1])

    @property
    def name(self) -> str:
        scheme = "https" if self._ssl_context is not None else "http"
        host, port = self._runner.addresses[0][:2]
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    async def start(self) -> None:
        await super().start()
        endpoint, loop = self._endpoint, asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: self._connect(loop) if self._ssl_context is None else _BeforeHandshake(self),
                endpoint.host,
                endpoint.port,
                backlog=self._backlog,
                reuse_address=True,
                reuse_port=endpoint.reuse_port or None,
            )
        except (OSError, OverflowError) as exc:  # overflow: the port after 65535
            await self.stop()
            why = os.strerror(exc.errno) if isinstance(exc, OSError) and exc.errno else exc
            raise ConfigError(
                f"{endpoint.key}.host, {endpoint.key}.port: cannot listen on {endpoint.host} port "
                f"{endpoint.port}: {why}",
                action="choose another port (0 takes a free one), or stop the program that listens there",
            ) from exc

    def _connect(self, loop: asyncio.AbstractEventLoop) -> asyncio.BaseProtocol:
        if self.has_room():
            return self._make(loop)
        error = ApiError(Code.UNAVAILABLE, "too many connections", retry_after=1)
        return _RefusedConnection(self.refuse_and_close(error, new_request_id()))

    def _make(self, loop: asyncio.AbstractEventLoop) -> BoundedConnection:
        server: Any = self._runner.server
        return self.make_connection(server, loop)

    def has_room(self) -> bool:
        """Return whether the listener may accept another connection."""
        taken = self.connections + len(self._handshakes)
        if self._runner.server is None or taken >= self._endpoint.max_connections:
            return False
        if taken < (affordable := affordable_connections()):
            return True
        if not self._is_limited:
            self._is_limited = True
            help_ = "raise the limit of open files (ulimit -n, LimitNOFILE)"
            log(logging.WARNING, "connections_limited", connections=affordable, action=help_)
        return False

    def shake_hands(self, descriptor: int) -> None:
        task = asyncio.create_task(self._shake_hands(socket.socket(fileno=descriptor)))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        try:
            await loop.connect_accepted_socket(
                lambda: self._make(loop),
                connection,
                ssl=self._ssl_context,
                ssl_handshake_timeout=HANDSHAKE_SEC,
            )
        except (OSError, ssl.SSLError) as exc:
            log(logging.DEBUG, "tls_handshake_failed", error=type(exc).__name__)

    async def stop(self) -> None:
        await super().stop()
        for task in self._handshakes:
            task.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)
