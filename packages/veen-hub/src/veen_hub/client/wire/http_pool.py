"""The connections to one hub: an idle one is reused, or another one is opened (RFC 8305, RFC 9112 §9.3)."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from asyncio.staggered import staggered_race
from functools import partial
from typing import Any, Final

from veen_hub.client.wire.http_connection import HttpConnection

MAX_IDLE_SECONDS: Final = 15.0
"""Age at which an idle connection is not reused: the hub, or a proxy, may be about to close it."""
NEXT_ADDRESS_SECONDS: Final = 0.25
"""Head start of one address of a host over the next one (RFC 8305 §5)."""


class HttpPool:
    """Connections to ``host`` and ``port``."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, *, connect_timeout: float) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._connect_timeout = connect_timeout
        self._idle: list[HttpConnection] = []
        self._in_use: set[HttpConnection] = set()

    async def acquire(self) -> HttpConnection:
        """Return an idle connection, or a new one; raises OSError or TimeoutError."""
        connection = self._take_idle()
        if connection is None:
            async with asyncio.timeout(self._connect_timeout):
                connection = await self._open()
        self._in_use.add(connection)
        return connection

    def _take_idle(self) -> HttpConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable and time.monotonic() - connection.used_at < MAX_IDLE_SECONDS:
                return connection
            connection.abort()
        return None

    def release(self, connection: HttpConnection) -> None:
        """Take back a connection whose exchange has ended, in whatever way."""
        self._in_use.discard(connection)
        connection.finish()
        if connection.is_reusable:
            self._idle.append(connection)

    def close(self) -> None:
        """Close all connections; requests under way fail."""
        for connection in (*self._idle, *self._in_use):
            connection.abort()
        self._idle.clear()

    async def _open(self) -> HttpConnection:
        loop = asyncio.get_running_loop()
        name = self._host if self._tls is not None else None
        connected = await _connect_any(await self._addresses())
        try:
            _, connection = await loop.create_connection(
                HttpConnection, sock=connected, ssl=self._tls, server_hostname=name
            )
        except BaseException:
            connected.close()
            raise
        return connection

    async def _addresses(self) -> list[Any]:
        try:
            loop = asyncio.get_running_loop()
            return await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except RuntimeError:  # the interpreter is shutting down: asyncio starts no thread to ask in
            return socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)


async def _connect_any(addresses: list[Any]) -> socket.socket:
    """Connect to the first address that answers; each has a head start over the next one (RFC 8305)."""
    if len(addresses) == 1:
        return await _connect(addresses[0])
    attempts = [partial(_connect, address) for address in addresses]
    connected: socket.socket | None
    connected, _, failures = await staggered_race(attempts, NEXT_ADDRESS_SECONDS)
    if connected is None:
        raise next(failure for failure in failures if failure is not None)
    return connected


async def _connect(address: Any) -> socket.socket:
    family, kind, protocol, _, where = address
    connected = socket.socket(family, kind, protocol)
    try:
        connected.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connected, where)
    except BaseException:
        connected.close()
        raise
    return connected
