"""HTTP to one hub: one session, bounded answers, timeouts, each failure as a ``VeenError`` (§10.3, SH0.3)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from veen_core.api import ErrorEnvelope
from veen_core.errors import ConfigError, DecodeError, StateError
from veen_core.rejection import Code
from veen_hub.client.errors import Misbehaved, RateLimited, Refused, Unavailable, Unreachable, refusal

CBOR: Final = "application/cbor"
CBOR_SEQ: Final = "application/cbor-seq"
MAX_ANSWER: Final = 1_048_576
"""No answer is read beyond this, except where more is asked for."""
MAX_ERROR: Final = 64 * 1_024
PIECE: Final = 256 * 1_024
AT_ONCE: Final = 64
"""Requests under way; live streams, which stay open, are not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """PEM files: the authority to believe instead of the system's, and a certificate to show (COMP0.3)."""

    ca: Path | str | None = None
    cert: Path | str | None = None
    key: Path | str | None = None

    def context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as exc:
            raise ConfigError(f"tls: {self.ca}, {self.cert} or {self.key} cannot be used: {exc}") from None
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds. ``idle`` is how long a live stream may be silent before it is asked for again."""

    connect: float = 10.0
    request: float = 30.0
    transfer: float = 600.0
    idle: float = 60.0


Body = bytes | Callable[[], AsyncIterator[bytes]]


class Transport:
    """Requests to ``url``; made inside a running loop, closed once."""

    def __init__(self, url: str, *, tls: Tls | None, timeouts: Timeouts) -> None:
        self.url = url.rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"{url}: want an http:// or https:// address")
        if tls is not None and not self.url.startswith("https://"):
            raise ConfigError(f"{url}: tls is given and would not be used: want https://, or leave tls out")
        self.timeouts = timeouts
        context = (tls or Tls()).context() if self.url.startswith("https://") else True
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=context),
            headers={"Accept": f"{CBOR}, {CBOR_SEQ}", "Accept-Encoding": "identity"},
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._places = asyncio.Semaphore(AT_ONCE)

    async def close(self) -> None:
        await self._session.close()

    async def call(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        *,
        content_type: str = CBOR,
        headers: Mapping[str, str] | None = None,
        most: int = MAX_ANSWER,
    ) -> bytes:
        """The whole body of a 200, of at most ``most`` bytes; anything else raises."""
        timeout = self.timeouts.request if isinstance(body, bytes | None) else self.timeouts.transfer
        async with self.open(
            method, path, body, content_type=content_type, headers=headers, timeout=timeout
        ) as response:
            return await read_whole(response, most)

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        *,
        content_type: str = CBOR,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        idle: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A 200 whose body is still to be read; trouble on the way raises ``Unreachable``, inside too.

        Without a ``timeout`` it may stay open for ever, and takes no place that others wait for.
        """
        if self._session.closed:
            raise StateError(f"{self.url}: this connection is closed: connect again")
        sent = dict(headers or {})
        if body is not None:
            sent["Content-Type"] = content_type
        limits = aiohttp.ClientTimeout(total=timeout, connect=self.timeouts.connect, sock_read=idle)
        try:
            async with (
                self._places if timeout is not None else nullcontext(),
                self._session.request(
                    method,
                    self.url + path,
                    data=body() if callable(body) else body,
                    headers=sent,
                    timeout=limits,
                    allow_redirects=False,
                ) as response,
            ):
                if response.status != 200:
                    raise await _refused(response)
                yield response
        except aiohttp.ClientConnectorCertificateError as exc:
            raise Unreachable(
                f"{self.url}: its certificate is not trusted: {exc.certificate_error}",
                retryable=False,
                action="name the authority that signed its certificate (--ca)",
            ) from exc
        except aiohttp.InvalidURL as exc:
            raise Unreachable(
                f"{self.url}: not an address",
                retryable=False,
                action="write an address like https://hub.example:8080",
            ) from exc
        except TimeoutError as exc:
            raise Unreachable(f"{self.url}: no answer in time ({method} {path})") from exc
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as exc:
            raise no_answer(self.url, exc) from exc


def no_answer(url: str, error: Exception) -> Unreachable:
    """Say why no answer came from ``url``, and what to check where the cause hints at it."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    action = None
    if isinstance(cause, ssl.SSLError):
        action = "if the hub is plain HTTP, write http:// in its address; else check the TLS files"
    elif isinstance(cause, aiohttp.ServerDisconnectedError | ConnectionResetError | BrokenPipeError):
        action = "if the hub uses TLS, write https:// in its address"
        if url.startswith("https:"):
            action = "if the hub demands a client certificate, present one (--cert and --cert-key)"
    return Unreachable(f"{url}: {str(cause) or type(cause).__name__}", action=action)


async def read_whole(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The body, at most ``most`` bytes of it in memory."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_chunked(PIECE):
        size += len(part)
        if size > most:
            raise Misbehaved(f"an answer of more than {most} bytes")
        parts.append(part)
    return b"".join(parts)


async def _refused(response: aiohttp.ClientResponse) -> Refused | Misbehaved:
    """§10.6's envelope; from something between here and the hub, what its status says."""
    body = await read_whole(response, MAX_ERROR)
    try:
        return refusal(ErrorEnvelope.decode(body))
    except DecodeError:
        after = response.headers.get("Retry-After", "")
        retry_after = int(after) if after.isascii() and after.isdecimal() and len(after) < 6 else None
        if response.status == 429:
            return RateLimited(Code.RATE, "HTTP 429 on the way", retry_after=retry_after)
        if response.status in (502, 503, 504):
            return Unavailable(
                Code.UNAVAILABLE, f"HTTP {response.status} on the way", retry_after=retry_after
            )
        return Misbehaved(f"HTTP {response.status} without an error envelope (§10.6): is this a VEEN hub?")
