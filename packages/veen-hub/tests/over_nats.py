"""Requests of tests over NATS, with the answers that ``serving.request`` gives over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from veen_hub.client.wire.nats_transport import NatsTransport
from veen_hub.client.wire.transport import Timeouts, Tls
from veen_testing.nats_server import NatsServer

from .conftest import StartHub
from .serving import Answer, RunningHub, until


def served(hub: RunningHub) -> RunningHub:
    """Wait until a hub has its subjects."""
    nats = hub.server.nats
    assert nats is not None
    until(nats.serving.is_set, "the hub serves over NATS")
    return hub


def url_of(hub: RunningHub) -> str:
    assert hub.server.nats is not None
    return hub.server.nats.urls[0]


def ask(
    url: str,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    tls: Tls | None = None,
) -> Answer:
    """One request on a connection of its own, with the answer that ``serving.request`` would give."""

    async def talk() -> Answer:
        transport = NatsTransport(url, tls=tls, timeouts=Timeouts())
        try:
            found = await transport.exchange(method, path, body, headers, max_bytes=64 * 1_048_576)
        finally:
            await transport.close()
        return Answer(found.status, found.headers, found.body)

    return asyncio.run(talk())


def with_nats(start_hub: StartHub, server: NatsServer, name: str = "data", **settings: Any) -> RunningHub:
    return served(start_hub(name, nats__servers=[server.url], **settings))
