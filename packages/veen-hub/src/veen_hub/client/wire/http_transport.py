"""HTTP to one hub: bounded responses, timeouts, every failure a ``VeenError`` (§10.3, SH0.3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from urllib.parse import urlsplit

from veen_core.errors import ConfigError, StateError
from veen_hub.client.wire.http_pool import HttpPool
from veen_hub.client.wire.http_response import HttpError, ResponseHead
from veen_hub.client.wire.transport import (
    CBOR,
    CBOR_SEQ,
    MAX_CONCURRENT_REQUESTS,
    MAX_ERROR_BYTES,
    MAX_RESPONSE_BYTES,
    HubResponse,
    HubTransport,
    Timeouts,
    Tls,
    no_answer,
    parse_address,
    read_whole,
    refused,
)


class HttpTransport(HubTransport):
    """Requests to the hub at ``url``. Create it inside a running event loop."""

    def __init__(self, url: str, *, tls: Tls | None, timeouts: Timeouts) -> None:
        self.url = url.rstrip("/")
        is_https = self.url.startswith("https://")
        if tls is not None and not is_https and self.url.startswith("http://"):
            raise ConfigError(
                f"{url}: TLS settings are given, but the address is plain HTTP",
                action="write https://, or leave tls out",
            )
        host, port, self._path = parse_address(self.url, {"http": 80, "https": 443})
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
        self._check_open()
        head = self._request_head(method, path, body, headers)
        limit = self.timeouts.request if timeout is None else timeout
        try:
            async with self._slots:
                connection = await self._pool.acquire()
                try:
                    found = await connection.exchange(head, body or b"", timeout=limit, whole=True)
                    content = await read_whole(
                        connection.read, max_bytes if found.status == 200 else MAX_ERROR_BYTES
                    )
                finally:
                    self._pool.release(connection)
        except (HttpError, OSError, UnicodeError) as exc:
            raise no_answer(self.url, exc, f"{method} {path}") from exc
        return _response(found, content)

    @asynccontextmanager
    async def open(
        self, method: str, path: str, *, timeout: float | None = None, idle: float | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self._check_open()
        head = self._request_head(method, path, None, None)
        try:
            async with self._slots if timeout is not None else nullcontext():
                connection = await self._pool.acquire()
                try:
                    found = await connection.exchange(head, b"", timeout=timeout, whole=False)
                    if found.status != 200:
                        content = await read_whole(lambda: connection.read(idle), MAX_ERROR_BYTES)
                        raise refused(_response(found, content))
                    yield connection.parts(idle)
                finally:
                    self._pool.release(connection)
        except (HttpError, OSError, UnicodeError) as exc:
            raise no_answer(self.url, exc, f"{method} {path}") from exc

    def _check_open(self) -> None:
        if self._closed:
            raise StateError(f"{self.url}: this connection is closed", action="connect again")

    def _request_head(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str | Sequence[str]] | None,
    ) -> bytes:
        """Return the request up to its body. ``headers`` are not escaped: pass hex and digits only."""
        lines = [f"{method} {self._path}{path} HTTP/1.1\r\n{self._fields}"]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}\r\n")
        for name, values in (headers or {}).items():
            lines += [f"{name}: {value}\r\n" for value in ((values,) if isinstance(values, str) else values)]
        return "".join((*lines, "\r\n")).encode("ascii")


def _response(head: ResponseHead, body: bytes) -> HubResponse:
    fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.fields.items()}
    return HubResponse(head.status, fields, body)
