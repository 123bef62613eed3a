"""The listener of ``veen console``: the page, and the hub's read calls forwarded on the page's own origin.

Nothing else is forwarded: not a submit, not an admin's call, no header beyond the content negotiation. The
hub sees the client certificate of the person who started the command, so every call needs the session's
token. Answers are passed on as they arrive, so a live stream stays live; when the page hangs up, so does the
call to the hub.

Neither side is trusted. A path is forwarded byte by byte and only if it has plain segments: otherwise an HTTP
client would resolve ``..`` after the route was chosen. A content type is passed on only if the console uses
it: a hub's answer must never become a document or a script on the console's origin.
"""

from __future__ import annotations

import re
import secrets
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from aiohttp import web

from veen_core.errors import ApiError, ConfigError
from veen_core.rejection import Code
from veen_hub.api.content import MAX_REQUEST_BYTES
from veen_hub.api.routes import PROBE_ROUTES, READ_ROUTES
from veen_hub.console.access import ListenerAccess
from veen_hub.console.description import ConsoleDescription, serve_description
from veen_hub.console.page import ConsolePage, add_security_headers
from veen_hub.http.errors import envelopes

REQUEST_HEADERS: Final = ("Accept", "Content-Type")
ANSWER_HEADERS: Final = ("Cache-Control", "Retry-After", "Veen-Next", "VEEN-Request-Id")
OPAQUE: Final = "application/octet-stream"
CONTENT_TYPES: Final = frozenset(
    {"application/cbor", "application/cbor-seq", "application/json", "text/plain", OPAQUE}
)
"""Content types that are passed on, without their parameters; any other becomes ``OPAQUE``."""
PLAIN_PATH: Final = re.compile(r"(?:/[A-Za-z0-9][A-Za-z0-9._-]*)+", re.ASCII)
"""A path that every HTTP client sends as it is: no empty or dot segment, no escape, no backslash."""
PLAIN_QUERY: Final = re.compile(r"[A-Za-z0-9._~=&,-]*", re.ASCII)
CONNECT_SEC: Final = 10.0
MAX_CONNECTIONS: Final = 64
"""Connections to the hub at once; a browser opens about six, live streams included."""
PART_BYTES: Final = 64 * 1_024


@asynccontextmanager
async def serve_console(
    *,
    hub: str,
    probes: str | None,
    tls: ssl.SSLContext | None,
    description: ConsoleDescription,
    host: str,
    port: int,
) -> AsyncIterator[str]:
    """Listen, and yield the address to open, which contains the session's token."""
    token = secrets.token_urlsafe(24)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SEC)
    connector = aiohttp.TCPConnector(limit=MAX_CONNECTIONS, ssl=tls if tls is not None else True)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
    ) as session:
        app = make_app(session, hub, probes, description, token)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, host, port).start()
            except OSError as exc:
                raise ConfigError(
                    f"cannot listen on {host} port {port}: {exc.strerror}",
                    action="choose another port with --port; 0 takes a free one",
                ) from None
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{runner.addresses[0][1]}/?token={token}"
        finally:
            await runner.cleanup()


def make_app(
    session: aiohttp.ClientSession,
    hub: str,
    probes: str | None,
    description: ConsoleDescription,
    token: str,
) -> web.Application:
    """Make the application: the page, its description, and one forwarding handler per read call."""
    page = ConsolePage.load()
    app = web.Application(
        middlewares=[envelopes, ListenerAccess(token=token).admit], client_max_size=MAX_REQUEST_BYTES
    )
    app.on_response_prepare.append(add_security_headers)

    async def index(_request: web.Request) -> web.Response:
        return page.respond()

    app.add_routes([web.get("/", index), web.get("/console.json", serve_description(description))])
    to_hub = _forward_to(session, hub.rstrip("/"))
    for route in READ_ROUTES:
        app.router.add_route(route.method, route.pattern, to_hub)
    if probes is not None:
        to_probes = _forward_to(session, probes.rstrip("/"))
        for route in PROBE_ROUTES:
            app.router.add_route(route.method, route.pattern, to_probes)
    return app


def _forward_to(
    session: aiohttp.ClientSession, base: str
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def forward(request: web.Request) -> web.StreamResponse:
        url = _target(base, request)
        headers = {
            name: value
            for name in REQUEST_HEADERS
            if (value := request.headers.get(name, "")) and value.isascii()
        }
        body = await request.read() if request.method == "POST" else None
        prepared = None
        try:
            async with session.request(
                request.method, url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                passed = {name: answer.headers[name] for name in ANSWER_HEADERS if name in answer.headers}
                passed["Content-Type"] = _content_type(answer.headers.get("Content-Type", ""))
                prepared = web.StreamResponse(status=answer.status, headers=passed)
                await prepared.prepare(request)
                async for part in answer.content.iter_any():
                    await prepared.write(part)
        except (aiohttp.ClientError, TimeoutError, OSError) as exc:
            if prepared is not None:  # the answer has begun: only its end can say that it is not whole
                raise ConnectionResetError("the hub's answer ended early") from exc
            why = str(exc) or type(exc).__name__
            raise ApiError(Code.UNAVAILABLE, f"{base} does not answer: {why}", retry_after=1) from exc
        return prepared

    return forward


def _target(base: str, request: web.Request) -> str:
    """Return the URL to ask: its path and query leave the HTTP client nothing to decode or resolve."""
    path, query = request.rel_url.raw_path, request.rel_url.raw_query_string
    if not PLAIN_PATH.fullmatch(path) or not PLAIN_QUERY.fullmatch(query):
        raise ApiError(
            Code.BAD_REQUEST,
            "the path is not forwarded: each of its segments must begin with a letter or a digit, "
            "and have only letters, digits and . _ -",
        )
    return f"{base}{path}?{query}" if query else f"{base}{path}"


def _content_type(given: str) -> str:
    kind = given.partition(";")[0].strip().lower()
    return kind if kind in CONTENT_TYPES else OPAQUE
