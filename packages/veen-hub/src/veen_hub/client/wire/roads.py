"""The roads to a hub: the transport that the scheme of its address names (§10.3, DR0)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec
from typing import Protocol, runtime_checkable

from veen_core.errors import ConfigError
from veen_hub.client.wire.transport import CBOR, MAX_RESPONSE_BYTES, HubResponse, Timeouts, Tls, Transport

__all__ = ["ExchangingTransport", "HubResponse", "HubTransport", "transport_to"]


class HubTransport(Protocol):
    """Requests to one hub; ``Transport`` says what each method does."""

    url: str
    timeouts: Timeouts

    async def close(self) -> None: ...

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
    ) -> bytes: ...

    def open(
        self, method: str, path: str, *, timeout: float | None = None, idle: float | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]: ...


@runtime_checkable
class ExchangingTransport(HubTransport, Protocol):
    """A transport that also returns responses as they are, for programs that judge a hub."""

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
        """Send a request and return the whole response; a header may have several values."""


def transport_to(url: str, *, tls: Tls | None, timeouts: Timeouts) -> HubTransport:
    """Make the transport to a hub: HTTP/1.1 for ``http(s)://``, NATS, or files."""
    scheme = url.partition("://")[0]
    if scheme in ("nats", "tls"):
        _require("nats", "nats-py", "veen-hub[nats]", url)
        from veen_hub.client.wire.nats_transport import NatsTransport  # noqa: PLC0415 - an optional package

        return NatsTransport(url, tls=tls, timeouts=timeouts)
    if scheme == "h3":
        _require("aioquic", "aioquic", "veen-hub[h3]", url)
        from veen_hub.client.wire.h3_transport import H3Transport  # noqa: PLC0415 - an optional package

        return H3Transport(url, tls=tls, timeouts=timeouts)
    if scheme == "file":
        from veen_hub.client.wire.file_transport import FileTransport  # noqa: PLC0415 - rarely used

        return FileTransport(url, tls=tls, timeouts=timeouts)
    return Transport(url, tls=tls, timeouts=timeouts)


def _require(module: str, package: str, extra: str, url: str) -> None:
    if find_spec(module) is None:
        scheme = url.partition("://")[0]
        raise ConfigError(f"{scheme}:// needs the package {package}", action=f"install {extra}")
