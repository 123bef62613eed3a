"""A connection to a NATS server, for hub and client: one attempt, TLS if it was asked for, no reconnecting.

nats-py would reconnect by itself and subscribe again. Hub and client do it themselves: the hub first looks
whether another hub has its subjects, and the client's requests under way must fail at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from typing import Any, Final

from nats.aio.client import Client
from nats.errors import Error

from veen_hub.nats.parts import MIN_PAYLOAD

__all__ = ["Client", "Error", "close_nats", "open_nats"]

CONNECT_SEC: Final = 5
CLOSE_SEC: Final = 1.0
PING_SEC: Final = 10
"""How often a silent connection is tried; after two pings without an answer it counts as lost."""
LOGGER: Final = logging.getLogger("nats.aio.client")
LOGGER.addHandler(logging.NullHandler())
LOGGER.propagate = False  # nats-py logs what its error callback reports too


class _NatsClient(Client):
    """nats-py's client, which alone would send a password in plain text if the server offers no TLS."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        wants_tls = self.options.get("tls") is not None
        if initial_connection and wants_tls and not info.get("tls_required"):
            raise Error("the NATS server does not require TLS; use an address that begins with nats://")
        await super()._process_info(info, initial_connection)


async def open_nats(
    server: str,
    *,
    name: str,
    tls: ssl.SSLContext | None,
    on_closed: Callable[[], None],
    user: str | None = None,
    secret: str | None = None,
    timeout: float = CONNECT_SEC,
) -> Client:
    """Connect to one server; raises OSError, TimeoutError or nats-py's ``Error``."""

    async def closed() -> None:
        on_closed()

    async def failed(_exc: Exception) -> None:
        """Ignore: a failure of the connection closes it, and any other concerns one message."""

    login: dict[str, Any] = {}
    if secret is not None:
        login = {"user": user, "password": secret} if user is not None else {"token": secret}
    client = _NatsClient()
    try:
        async with asyncio.timeout(timeout):
            await client.connect(
                server,
                name=name,
                tls=tls,
                allow_reconnect=False,
                connect_timeout=max(1, round(timeout)),
                ping_interval=PING_SEC,
                closed_cb=closed,
                disconnected_cb=closed,
                error_cb=failed,
                **login,
            )
        if client.max_payload < MIN_PAYLOAD:
            raise Error(f"max_payload of the NATS server is {client.max_payload}, below {MIN_PAYLOAD}")
    except BaseException:
        await close_nats(client)
        raise
    return client


async def close_nats(client: Client) -> None:
    """Send what is pending, and close; nats-py would wait for ever after a failed TLS handshake."""
    with contextlib.suppress(TimeoutError, OSError, Error):
        async with asyncio.timeout(CLOSE_SEC):
            await client.close()
