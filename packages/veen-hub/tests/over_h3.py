"""Requests of tests over HTTP/3, and over the HTTP/1.1 with TLS that a hub with HTTP/3 has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from veen_hub.client.wire.h3_transport import H3Transport
from veen_hub.client.wire.transport import Timeouts, Tls

from . import serving
from .certificates import Certificates
from .serving import PATIENCE, Answer, RunningHub


def over_tls(certificates: Certificates) -> Callable[..., Answer]:
    """``serving.request`` over TLS, but to the probes."""
    right, context = serving.request, Tls(ca=certificates.authority).context()

    def secure(port: int, *asked: Any) -> Answer:
        probes = len(asked) > 1 and asked[1] in ("/readyz", "/metrics")
        return right(port, *asked, context=None if probes else context)

    return secure


def url_of(hub: RunningHub) -> str:
    assert hub.server.h3 is not None
    return hub.server.h3.url


def ask(  # noqa: PLR0917 - a request is what it is
    hub: RunningHub,
    tls: Tls,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    async def talk() -> Answer:
        transport = H3Transport(url_of(hub), tls=tls, timeouts=Timeouts(request=PATIENCE))
        try:
            found = await transport.exchange(method, path, body, headers, max_bytes=64 * 1_048_576)
        finally:
            await transport.close()
        return Answer(found.status, found.headers, found.body)

    return asyncio.run(talk())
