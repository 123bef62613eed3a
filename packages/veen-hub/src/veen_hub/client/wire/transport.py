"""HTTP to one hub: bounded responses, timeouts, every failure a ``VeenError`` (§10.3, SH0.3)."""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from veen_core.api import ErrorEnvelope
from veen_core.errors import ConfigError, DecodeError, StateError
from veen_core.rejection import Code
from veen_hub.client.errors import (
    Misbehaved,
    RateLimited,
    Refused,
    TooLarge,
    Unavailable,
    Unreachable,
    refusal,
)
from veen_hub.client.wire.http_connection import HttpConnection
from veen_hub.client.wire.http_pool import HttpPool
from veen_hub.client.wire.http_response import HttpError, ResponseHead

CBOR: Final = "application/cbor"
CBOR_SEQ: Final = "application/cbor-seq"
MAX_RESPONSE_BYTES: Final = 1_048_576
"""Largest response body, unless a request allows more."""
MAX_ERROR_BYTES: Final = 64 * 1_024
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


class Transport:
    """Requests to the hub at ``url``. Create it inside a running event loop."""

    def __init__(self, url: str, *, tls: Tls | None, timeouts: Timeouts) -> None:
        self.url = url.rstrip("/")
        is_https = self.url.startswith("https://")
        if tls is not None and not is_https and self.url.startswith("http://"):
            raise ConfigError(
                f"{url}: TLS settings are given, but the address is plain HTTP",
                action="write https://, or leave tls out",
            )
        host, port, self._path = _parse_address(self.url)
        self.timeouts = timeouts
        context = (tls or Tls()).context() if is_https else None
        self._pool = HttpPool(host, port, context, connect_timeout=timeouts.connect)
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)
        self._closed = False
        authority = urlsplit(self.url).netloc.rpartition("@")[2]
        self._fields = (
            f"Host: {authority}\r\nAccept: {CBOR}, {CBOR_SEQ}\r\nAccept-Encoding: identity\r\n"
            f"User-Agent: veen-client\r\n"
        )

    async def close(self) -> None:
        self._closed = True
        self._pool.close()

    async def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = CBOR,
        headers: Mapping[str, str] | None = None,
        max_bytes: int = MAX_RESPONSE_BYTES,
        timeout: float | None = None,
    ) -> bytes:
        """Return the body of a 200 response, at most ``max_bytes``; any other response raises.

        ``timeout`` is ``timeouts.request`` unless it is given.
        """
        self._check_open()
        head = self._request_head(method, path, body, content_type, headers)
        limit = self.timeouts.request if timeout is None else timeout
        try:
            async with self._slots:
                connection = await self._pool.acquire()
                try:
                    found = await connection.exchange(head, body or b"", timeout=limit, whole=True)
                    content = await read_body(
                        connection, max_bytes if found.status == 200 else MAX_ERROR_BYTES
                    )
                finally:
                    self._pool.release(connection)
        except (HttpError, OSError, UnicodeError) as exc:
            raise self._no_answer(exc, method, path) from exc
        if found.status != 200:
            raise _refused(found, content)
        return content

    @asynccontextmanager
    async def open(
        self, method: str, path: str, *, timeout: float | None = None, idle: float | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a 200 response and yield an iterator over its body; network errors raise ``Unreachable``.

        Without a ``timeout`` the response may stay open for ever and does not count as a request under way.
        ``idle`` bounds the seconds without a byte.
        """
        self._check_open()
        head = self._request_head(method, path, None, CBOR, None)
        try:
            async with self._slots if timeout is not None else nullcontext():
                connection = await self._pool.acquire()
                try:
                    found = await connection.exchange(head, b"", timeout=timeout, whole=False)
                    if found.status != 200:
                        raise _refused(found, await read_body(connection, MAX_ERROR_BYTES, idle))
                    yield connection.parts(idle)
                finally:
                    self._pool.release(connection)
        except (HttpError, OSError, UnicodeError) as exc:
            raise self._no_answer(exc, method, path) from exc

    def _check_open(self) -> None:
        if self._closed:
            raise StateError(f"{self.url}: this connection is closed", action="connect again")

    def _request_head(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        headers: Mapping[str, str] | None,
    ) -> bytes:
        """Return the request up to its body. ``headers`` are not escaped: pass hex and digits only."""
        lines = [f"{method} {self._path}{path} HTTP/1.1\r\n{self._fields}"]
        if body is not None:
            lines.append(f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n")
        lines += [f"{name}: {value}\r\n" for name, value in (headers or {}).items()]
        return "".join((*lines, "\r\n")).encode("ascii")

    def _no_answer(self, error: Exception, method: str, path: str) -> Unreachable:
        if isinstance(error, TimeoutError):
            return Unreachable(f"{self.url}: no answer in time ({method} {path})")
        if isinstance(error, ssl.SSLCertVerificationError):
            return Unreachable(
                f"{self.url}: the certificate of the hub is not trusted: {error}",
                retryable=False,
                action="name the authority that signed the certificate (--ca, or Tls(ca=...))",
            )
        return no_answer(self.url, error)


def _parse_address(url: str) -> tuple[str, int, str]:
    """Return host, port and path of an address."""
    with suppress(ValueError):  # the port is not a number, or brackets do not match
        parts = urlsplit(url)
        is_plain = url.isascii() and " " not in url and parts.username is None
        if is_plain and parts.scheme in ("http", "https") and parts.hostname:
            return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80), parts.path
    raise ConfigError(
        f"{url} is not an http:// or https:// address",
        action="write an address like https://hub.example:8080",
    )


def no_answer(url: str, error: Exception) -> Unreachable:
    """Say why no answer came from ``url``, and what to check where the cause hints at it."""
    hung_up = isinstance(error, ConnectionResetError | BrokenPipeError) or (
        isinstance(error, OSError) and error.errno == errno.ECONNRESET
    )
    action = None
    if isinstance(error, ssl.SSLCertVerificationError):
        action = "name the authority that signed the certificate (--ca, or Tls(ca=...))"
    elif isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        action = "if the hub is plain HTTP, write http:// in its address"
    elif hung_up and not url.startswith("https:"):
        action = "if the hub uses TLS, write https:// in its address"
    elif hung_up or isinstance(error, ssl.SSLError):
        action = "if the hub demands a client certificate, present one (--cert and --cert-key)"
    refused = isinstance(error, ConnectionRefusedError)
    why = "connection refused" if refused else str(error) or type(error).__name__
    return Unreachable(f"{url}: {why}", action=action)


async def read_body(connection: HttpConnection, max_bytes: int, idle: float | None = None) -> bytes:
    """Read the body; raises once it exceeds ``max_bytes``."""
    parts: list[bytes] = []
    size = 0
    while part := await connection.read(idle):
        size += len(part)
        if size > max_bytes:
            raise Misbehaved(f"the response is larger than {max_bytes} bytes")
        parts.append(part)
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class HubResponse:
    """A whole response, on any road; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def refused(found: HubResponse) -> Refused | Misbehaved:
    """Decode the error envelope (§10.6), or classify a proxy's response by its HTTP status."""
    status = found.status
    try:
        return refusal(ErrorEnvelope.decode(found.body))
    except DecodeError:
        after = found.headers.get("retry-after", "")
        retry_after = int(after) if after.isascii() and after.isdigit() and len(after) < 6 else None
        if status == 413:
            return TooLarge(
                Code.LIMIT,
                "HTTP 413 from a proxy: the request is too large for it",
                action="ask the proxy's operator to accept larger requests (nginx: client_max_body_size)",
            )
        if status == 429:
            return RateLimited(Code.RATE, "HTTP 429 from a proxy", retry_after=retry_after)
        if status in (502, 503, 504):
            return Unavailable(Code.UNAVAILABLE, f"HTTP {status} from a proxy", retry_after=retry_after)
        return Misbehaved(f"HTTP {status} without an error envelope (core §10.6): this may not be a VEEN hub")


def _refused(head: ResponseHead, body: bytes) -> Refused | Misbehaved:
    fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.fields.items()}
    return refused(HubResponse(head.status, fields, body))
