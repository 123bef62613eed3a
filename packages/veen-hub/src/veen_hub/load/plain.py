"""The plain HTTP client: aiohttp as its own documentation shows it, without special headers."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import aiohttp

from veen_hub.load.raw import CBOR, RefusalFactory, unexpected

IDLE_SECONDS: Final = 60
"""How long an unused connection stays open: other clients are measured meanwhile."""


@dataclass(frozen=True, slots=True)
class PlainConnection:
    """An aiohttp session; it opens as many connections as requests are in flight."""

    session: aiohttp.ClientSession
    url: str
    refused: RefusalFactory

    async def post(self, path: str, body: bytes, kind: str = CBOR) -> bytes:
        """Send a request and return the body of its answer."""
        async with self.session.post(self.url + path, data=body, headers={"Content-Type": kind}) as answer:
            content = await answer.read()
            if answer.status != 200:
                raise self.refused(str(answer.status).encode(), content)
            return content


@contextlib.asynccontextmanager
async def open_plain(
    url: str, *, connections: int, tls: ssl.SSLContext | None = None, refused: RefusalFactory = unexpected
) -> AsyncIterator[PlainConnection]:
    """Open a session with at most this many connections to the hub."""
    connector = aiohttp.TCPConnector(
        limit=connections, ssl=tls if tls is not None else True, keepalive_timeout=IDLE_SECONDS
    )
    async with aiohttp.ClientSession(connector=connector) as session:
        yield PlainConnection(session, url, refused)
