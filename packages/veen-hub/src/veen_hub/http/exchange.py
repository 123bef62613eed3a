"""HTTP/1.1 as a transport of the API: aiohttp's requests in, replies out as aiohttp's answers."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from functools import lru_cache

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.typedefs import Handler

from veen_hub.api import routes
from veen_hub.api.reply import InterruptedReply, Reply, StreamedReply
from veen_hub.api.request import ApiRequest
from veen_hub.api.routes import Route
from veen_hub.http.bounded_connection import BoundedConnection
from veen_hub.http.keys import HUB, READERS_ARE_CHECKED
from veen_hub.http.replies import to_response
from veen_hub.http.request_names import REQUEST_ID
from veen_hub.ops.logs import LOGGER


def route_of(route: Route) -> web.RouteDef:
    """Make aiohttp's route to an endpoint."""
    if route.method == "GET":
        return web.get(route.pattern, _handler_of(route), allow_head="HEAD" in route.methods)
    return web.route(route.method, route.pattern, _handler_of(route))


def _handler_of(route: Route) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        made = ApiRequest(
            hub=request.app[HUB],
            method=request.method,
            path=request.path,
            request_id=request[REQUEST_ID],
            headers=request.headers,
            content=request.content,
            peer=HttpPeer(request),
            query=request.query,
            variables=request.match_info,
        )
        reply = await routes.call(route, made)
        return to_response(reply) if isinstance(reply, Reply) else await _send(reply, request)

    return handle


def _is_chunked(request: web.Request) -> bool:
    """Return whether an answer of unknown length has chunks; an HTTP/1.0 answer ends with its connection."""
    return request.version >= HttpVersion11


@lru_cache(maxsize=16)
def _chunk(data: bytes) -> bytes:
    """Return the HTTP chunk of a part; all followers of a label are sent the same one."""
    return b"%x\r\n%b\r\n" % (len(data), data)


@dataclass(frozen=True, slots=True)
class HttpLiveWriter:
    """Writes items of a live stream to a connection, without aiohttp's response (``LiveWriter``)."""

    connection: BoundedConnection
    writer: AbstractStreamWriter
    is_chunked: bool

    def write(self, data: bytes) -> bool:
        transport = self.connection.transport
        if transport is None or transport.is_closing():
            return False
        transport.write(_chunk(data) if self.is_chunked else data)
        return not self.connection.writing_paused

    async def drain(self) -> None:
        await self.writer.drain()


@dataclass(slots=True)
class HttpPeer:
    """The client of an aiohttp request."""

    request: web.Request

    @property
    def remote(self) -> str | None:
        return self.request.remote

    @property
    def _connection(self) -> BoundedConnection:
        connection = self.request.protocol
        assert isinstance(connection, BoundedConnection)
        return connection

    @property
    def source(self) -> bytes:
        return self._connection.source

    @source.setter
    def source(self, source: bytes) -> None:
        self._connection.source = source

    @property
    def lost(self) -> asyncio.Event:
        return self._connection.lost

    @property
    def dropped(self) -> bool:
        return self._connection.dropped

    @property
    def live_writer(self) -> HttpLiveWriter:
        return HttpLiveWriter(self._connection, self.request.writer, _is_chunked(self.request))

    def is_checked_reader(self) -> bool:
        if self.request.app.get(READERS_ARE_CHECKED, False):
            return True
        connection = self.request.get_extra_info("ssl_object")
        return connection is not None and bool(connection.getpeercert())


async def _send(reply: StreamedReply, request: web.Request) -> web.StreamResponse:
    """Send an answer while it is made; if it cannot be completed, abort the connection."""
    response = web.StreamResponse(headers={"Content-Type": reply.content_type, **reply.headers})
    if reply.length is not None:
        response.content_length = reply.length
    elif _is_chunked(request):
        response.enable_chunked_encoding()
    async with aclosing(reply.parts) as parts:
        await response.prepare(request)
        if request.method == hdrs.METH_HEAD:  # aiohttp would send the body after HEAD too
            return response
        try:
            if reply.first:
                await response.write(reply.first)
            async for part in parts:
                await response.write(part)
        except ConnectionError:
            raise  # the client has disconnected
        except Exception as exc:  # noqa: BLE001 - logged; the answer has begun: it can only be cut
            if not isinstance(exc, InterruptedReply):
                LOGGER.error("answer_failed", exc_info=exc)
            if request.transport is not None:
                request.transport.abort()
    return response
