"""The common part of all transports to a hub: settings, requests, whole responses, and errors (§10.3)."""

from __future__ import annotations

import errno
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from veen_core.api import ErrorEnvelope
from veen_core.errors import ConfigError, DecodeError
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


@dataclass(frozen=True, slots=True)
class HubResponse:
    """A whole response, over any transport; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HubTransport(ABC):
    """Requests to one hub."""

    url: str
    timeouts: Timeouts

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def exchange(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str | Sequence[str]] | None = None,
        *,
        max_bytes: int = MAX_RESPONSE_BYTES,
        timeout: float | None = None,
    ) -> HubResponse:
        """Send a request and return the whole response; a header may have several values.

        ``max_bytes`` bounds the body of a 200 response. ``timeout`` is ``timeouts.request`` by default.
        """

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
        """Return the body of a 200 response; any other response raises."""
        given = {"Content-Type": content_type, **(headers or {})} if body is not None else headers
        found = await self.exchange(method, path, body, given, max_bytes=max_bytes, timeout=timeout)
        if found.status != 200:
            raise refused(found)
        return found.body

    @abstractmethod
    def open(
        self, method: str, path: str, *, timeout: float | None = None, idle: float | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a 200 response and yield an iterator over its body; network errors raise ``Unreachable``.

        Without a ``timeout`` the response may stay open for ever and does not count as a request under way.
        ``idle`` bounds the seconds without a byte.
        """


async def read_whole(read: Callable[[], Awaitable[bytes]], max_bytes: int) -> bytes:
    """Read a body to its end, where ``read`` returns nothing; raises once it exceeds ``max_bytes``."""
    parts: list[bytes] = []
    size = 0
    while part := await read():
        size += len(part)
        if size > max_bytes:
            raise Misbehaved(f"the response is larger than {max_bytes} bytes")
        parts.append(part)
    return b"".join(parts)


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


def parse_address(url: str, ports: Mapping[str, int]) -> tuple[str, int, str]:
    """Return host, port and path of an address; ``ports`` are the schemes and their default ports."""
    with suppress(ValueError):  # the port is not a number, or brackets do not match
        parts = urlsplit(url)
        is_plain = url.isascii() and " " not in url and parts.username is None and not parts.query
        if is_plain and parts.scheme in ports and parts.hostname:
            return parts.hostname, parts.port or ports[parts.scheme], parts.path
    schemes = " or ".join(f"{scheme}://" for scheme in ports)
    raise ConfigError(
        f"{url} is not an {schemes} address",
        action=f"write an address like {list(ports)[-1]}://hub.example:8080",
    )


def no_answer(url: str, error: Exception, asked: str) -> Unreachable:
    """Say why no answer to ``asked`` came from ``url``, and what to check if the cause suggests a check."""
    if isinstance(error, TimeoutError):
        return Unreachable(f"{url}: no answer in time ({asked})")
    if isinstance(error, ssl.SSLCertVerificationError):
        return Unreachable(
            f"{url}: the certificate of the hub is not trusted: {error}",
            retryable=False,
            action="name the authority that signed the certificate (--ca, or Tls(ca=...))",
        )
    hung_up = isinstance(error, ConnectionResetError | BrokenPipeError) or (
        isinstance(error, OSError) and error.errno == errno.ECONNRESET
    )
    action = None
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        action = "if the hub is plain HTTP, write http:// in its address"
    elif hung_up and not url.startswith("https:"):
        action = "if the hub uses TLS, write https:// in its address"
    elif hung_up or isinstance(error, ssl.SSLError):
        action = "if the hub demands a client certificate, present one (--cert and --cert-key)"
    refused = isinstance(error, ConnectionRefusedError)
    why = "connection refused" if refused else str(error) or type(error).__name__
    return Unreachable(f"{url}: {why}", action=action)
