"""A proxy between client and hub that forwards everything, unless a test makes it lie."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

Lie = Callable[[str, bytes, bytes], bytes | web.Response | None]
"""Maps (path, request, answer) to the answer that the client gets; None closes the connection."""
Before = Callable[[str], Awaitable[web.Response | None]]
After = Callable[[str], Awaitable[None]]


def honest(_path: str, _request: bytes, answer: bytes) -> bytes:
    return answer


class Proxy:
    """Forwards requests. ``before`` sees each request, ``lie`` replaces answers, ``after`` delays them."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.lie: Lie = honest
        self.before: Before | None = None
        self.after: After | None = None
        self.max_body_bytes = 2**30
        """Larger requests are refused with 413 before their body is read, as nginx does."""
        self.elsewhere: dict[str, str] = {}
        """Addresses of other hubs that answer the paths with these beginnings."""
        self.requests: list[str] = []
        self.url = ""
        self._session: aiohttp.ClientSession | None = None
        self._open: list[web.Request] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.path)
        if self.before is not None and (early := await self.before(request.path)) is not None:
            return early
        if (request.content_length or 0) > self.max_body_bytes:
            refused = web.Response(status=413, text="<h1>413 Request Entity Too Large</h1>")
            refused.force_close()
            return refused
        assert self._session is not None
        body = await request.read()
        headers = {k: v for k, v in request.headers.items() if k.lower() not in ("host", "content-length")}
        upstream = next(
            (url for path, url in self.elsewhere.items() if request.path.startswith(path)), self.upstream
        )
        async with self._session.request(
            request.method, upstream + request.path_qs, data=body or None, headers=headers
        ) as answer:
            if request.method == "GET" and request.path.startswith("/v1/stream/"):
                return await self._pass_on(request, answer)
            shown = await answer.read()
            if self.after is not None:
                await self.after(request.path)
            given = self.lie(request.path, body, shown)
            if given is None:
                return self._cut(request)
            if isinstance(given, web.Response):
                return given
            return web.Response(
                body=given, status=answer.status, headers={"Content-Type": answer.headers["Content-Type"]}
            )

    async def _pass_on(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": answer.headers["Content-Type"]})
        response.enable_chunked_encoding()
        await response.prepare(request)
        self._open.append(request)
        try:
            async for part in answer.content.iter_any():
                given = self.lie(request.path, b"", part)
                if not isinstance(given, bytes):
                    return self._cut(request)
                await response.write(given)
        finally:
            self._open.remove(request)
        return response

    @staticmethod
    def _cut(request: web.Request) -> web.Response:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    def cut_all(self) -> None:
        """Close every live stream."""
        for request in list(self._open):
            self._cut(request)


@asynccontextmanager
async def between(upstream: str) -> AsyncIterator[Proxy]:
    proxy = Proxy(upstream)
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{tail:.*}", proxy.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        proxy._session = session
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        proxy.url = f"http://{host}:{port}"
        try:
            yield proxy
        finally:
            proxy.cut_all()
            with contextlib.suppress(asyncio.TimeoutError):
                await runner.cleanup()
