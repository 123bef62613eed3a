"""HTTP to one hub: one session, bounded responses, timeouts, every failure a ``VeenError`` (§10.3, SH0.3)."""

from __future__ import annotations

import asyncio
import errno
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
MAX_RESPONSE_BYTES: Final = 1_048_576
"""Largest response body, unless a request allows more."""
MAX_ERROR_BYTES: Final = 64 * 1_024
CHUNK_BYTES: Final = 256 * 1_024
"""Bytes of a body that are read or written at a time."""
MAX_CONCURRENT_REQUESTS: Final = 64
"""Requests under way at once; live streams, which stay open, are not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS settings as PEM files (COMP0.3).

    ``ca`` replaces the system's certificate authorities; ``cert`` and ``key`` are the client's certificate.
    """

    ca: Path | str | None = None
    cert: Path | str | None = None
    key: Path | str | None = None

    def context(self) -> ssl.SSLContext:
        """Load the files; raises ``ConfigError``."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as exc:
            files = ", ".join(str(file) for file in (self.ca, self.cert, self.key) if file is not None)
            raise ConfigError(f"tls: {files or 'the system certificates'} cannot be loaded: {exc}") from None
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Timeouts in seconds."""

    connect: float = 10.0
    request: float = 30.0
    transfer: float = 600.0
    """For sending or fetching one attachment."""
    idle: float = 60.0
    """How long a live stream may be silent before the client reconnects."""


Body = bytes | Callable[[], AsyncIterator[bytes]]


class Transport:
    """Requests to the hub at ``url``. Create it inside a running event loop."""

    def __init__(self, url: str, *, tls: Tls | None, timeouts: Timeouts) -> None:
        self.url = url.rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"{url} is not an http:// or https:// address")
        if tls is not None and not self.url.startswith("https://"):
            raise ConfigError(
                f"{url}: TLS settings are given, but the address is plain HTTP",
                action="write https://, or leave tls out",
            )
        self.timeouts = timeouts
        context = (tls or Tls()).context() if self.url.startswith("https://") else True
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=context),
            headers={"Accept": f"{CBOR}, {CBOR_SEQ}", "Accept-Encoding": "identity"},
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)

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
        max_bytes: int = MAX_RESPONSE_BYTES,
    ) -> bytes:
        """Return the body of a 200 response, at most ``max_bytes``; any other response raises."""
        timeout = self.timeouts.request if isinstance(body, bytes | None) else self.timeouts.transfer
        async with self.open(
            method, path, body, content_type=content_type, headers=headers, timeout=timeout
        ) as response:
            return await read_body(response, max_bytes)

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
        """Open a 200 response whose body is still to be read; network errors raise ``Unreachable``.

        Without a ``timeout`` the response may stay open for ever and does not count as a request under way.
        """
        if self._session.closed:
            raise StateError(f"{self.url}: this connection is closed", action="connect again")
        sent = dict(headers or {})
        if body is not None:
            sent["Content-Type"] = content_type
        limits = aiohttp.ClientTimeout(total=timeout, connect=self.timeouts.connect, sock_read=idle)
        try:
            async with (
                self._slots if timeout is not None else nullcontext(),
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
                f"{self.url}: the certificate of the hub is not trusted: {exc.certificate_error}",
                retryable=False,
                action="name the authority that signed the certificate (--ca, or Tls(ca=...))",
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
    if isinstance(cause.__cause__, ssl.SSLError):  # aiohttp's ClientOSError
        cause = cause.__cause__
    hung_up = isinstance(cause, aiohttp.ServerDisconnectedError | ConnectionResetError | BrokenPipeError) or (
        isinstance(cause, OSError) and cause.errno == errno.ECONNRESET
    )
    action = None
    if isinstance(cause, ssl.SSLCertVerificationError):
        action = "name the authority that signed the certificate (--ca, or Tls(ca=...))"
    elif isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER":
        action = "if the hub is plain HTTP, write http:// in its address"
    elif hung_up and not url.startswith("https:"):
        action = "if the hub uses TLS, write https:// in its address"
    elif hung_up or isinstance(cause, ssl.SSLError):
        action = "if the hub demands a client certificate, present one (--cert and --cert-key)"
    return Unreachable(f"{url}: {str(cause) or type(cause).__name__}", action=action)


async def read_body(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """Read the body; raises once it exceeds ``max_bytes``."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_chunked(CHUNK_BYTES):
        size += len(part)
        if size > max_bytes:
            raise Misbehaved(f"the response is larger than {max_bytes} bytes")
        parts.append(part)
    return b"".join(parts)


async def _refused(response: aiohttp.ClientResponse) -> Refused | Misbehaved:
    """Decode the error envelope (§10.6), or classify a proxy's response by its HTTP status."""
    body = await read_body(response, MAX_ERROR_BYTES)
    try:
        return refusal(ErrorEnvelope.decode(body))
    except DecodeError:
        after = response.headers.get("Retry-After", "")
        retry_after = int(after) if after.isascii() and after.isdecimal() and len(after) < 6 else None
        if response.status == 429:
            return RateLimited(Code.RATE, "HTTP 429 from a proxy", retry_after=retry_after)
        if response.status in (502, 503, 504):
            return Unavailable(
                Code.UNAVAILABLE, f"HTTP {response.status} from a proxy", retry_after=retry_after
            )
        return Misbehaved(
            f"HTTP {response.status} without an error envelope (core §10.6): this may not be a VEEN hub"
        )
