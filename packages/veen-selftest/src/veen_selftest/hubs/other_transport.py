"""A hub over another transport than HTTP/1.1: one request at a time, through the client's transport (DR0)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar
from urllib.parse import urlsplit

from veen_hub.client import (
    HubResponse,
    HubTransport,
    Timeouts,
    Tls,
    TooLarge,
    Unreachable,
    transport_to,
)
from veen_selftest.runner.check import Skip

T = TypeVar("T")
OTHER_SCHEMES = ("nats", "tls", "h3")
MAX_RESPONSE_BYTES = 64 * 1_048_576
CONNECT_SECONDS = 10.0


def is_other_transport(url: str) -> bool:
    """Return whether an address is of another transport than HTTP/1.1."""
    return urlsplit(url).scheme in OTHER_SCHEMES


class OtherTransport:
    """Requests to one hub; the event loop of the transport runs in a thread."""

    def __init__(self, url: str, tls: Tls | None, timeout: float) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="veen-transport", daemon=True).start()
        self._url, self._tls, self._timeout = url, tls, timeout
        self._transport: HubTransport | None = None

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _opened(self) -> HubTransport:
        if self._transport is None:
            timeouts = Timeouts(connect=CONNECT_SECONDS, request=self._timeout)
            self._transport = transport_to(self._url, tls=self._tls, timeouts=timeouts)
        return self._transport

    def exchange(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str | Sequence[str]]
    ) -> HubResponse:
        """Send a request and return its response; raises OSError if there is none."""

        async def work() -> HubResponse:
            transport = await self._opened()
            return await transport.exchange(method, path, body, headers, max_bytes=MAX_RESPONSE_BYTES)

        try:
            return self._run(work())
        except Unreachable as exc:
            raise ConnectionError(str(exc)) from exc
        except TooLarge as exc:
            raise Skip(f"needs a NATS server with a larger max_payload, such as 8MB ({exc})") from None

    def live(self, path: str, timeout: float) -> Iterator[bytes]:
        """Yield the parts of a live stream as they arrive (H15)."""
        stack = AsyncExitStack()

        async def begin() -> AsyncIterator[bytes]:
            return await stack.enter_async_context((await self._opened()).open("GET", path, idle=timeout))

        async def read(parts: AsyncIterator[bytes]) -> bytes | None:
            return await anext(parts, None)

        parts = self._run(begin())
        try:
            while (part := self._run(read(parts))) is not None:
                yield part
        finally:
            self._run(stack.aclose())
