"""A connection to a NATS server, for hub and client: one attempt, TLS if it was asked for, no reconnecting.

nats-py would reconnect by itself and subscribe again. Hub and client do it themselves: the hub first looks
whether another hub has its subjects, and the client's requests under way must fail at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import ssl
from collections.abc import Callable
from typing import Any, Final

from nats.aio.client import Client
from nats.errors import Error
from nats.protocol import parser
from nats.protocol.parser import PERMISSIONS_ERR

from veen_hub.nats.parts import MIN_PAYLOAD

__all__ = ["Client", "Error", "close_nats", "open_nats"]

CONNECT_SEC: Final = 5
CLOSE_SEC: Final = 1.0
PING_SEC: Final = 10
"""Time between two pings of a silent connection; after two pings without an answer it counts as lost."""
LOGGER: Final = logging.getLogger("nats.aio.client")
LOGGER.addHandler(logging.NullHandler())
LOGGER.propagate = False  # nats-py logs what its error callback reports too
# A subject may contain a vertical tab or a form feed. nats-py's patterns take such a character for the end of
# the subject, and then end the connection. The server writes single spaces.
parser.MSG_RE = re.compile(rb"\AMSG ([^ \r\n]+) (\d+) (([^ \r\n]+) )?(\d+)\r\n")
parser.HMSG_RE = re.compile(rb"\AHMSG ([^ \r\n]+) (\d+) (([^ \r\n]+) )?(\d+) (\d+)\r\n")


class _NatsClient(Client):
    """nats-py's client, stricter: it never falls back to plain text, and no message stops its reading."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Refuse a server that offers no TLS; nats-py would send it the password in plain text."""
        wants_tls = self.options.get("tls") is not None
        if initial_connection and wants_tls and not info.get("tls_required"):
            raise Error("the NATS server does not require TLS; use an address that begins with nats://")
        await super()._process_info(info, initial_connection)

    def _connect_command(self) -> bytes:
        """Note whether the connection is TLS; nats-py does not, and asyncio would warn at the end of it."""
        transport: Any = self._transport
        writer = transport._io_writer
        writer._protocol._over_ssl = writer.get_extra_info("sslcontext") is not None
        return bytes(super()._connect_command())

    async def _process_msg(self, *args: Any) -> None:
        """Drop a message whose subject or headers are not text; nats-py would stop reading the connection."""
        try:
            await super()._process_msg(*args)
        except (UnicodeDecodeError, IndexError) as exc:
            LOGGER.debug("nats_message_dropped: %s", exc)


async def open_nats(
    server: str,
    *,
    name: str,
    tls: ssl.SSLContext | None,
    on_closed: Callable[[], None],
    on_refused: Callable[[str], None] = lambda _why: None,
    user: str | None = None,
    secret: str | None = None,
    timeout: float = CONNECT_SEC,
) -> Client:
    """Connect to one server; raises OSError, TimeoutError or nats-py's ``Error``.

    ``on_refused`` is called when the server does not let this user publish or subscribe to a subject.
    """

    async def closed() -> None:
        on_closed()

    async def failed(exc: Exception) -> None:
        """Report a refusal; any other failure closes the connection, or concerns one message."""
        if PERMISSIONS_ERR in str(exc).lower():
            on_refused(str(exc).removeprefix("nats: "))

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
    except BaseException as exc:
        await close_nats(client)
        if isinstance(exc, Exception) and not isinstance(exc, (OSError, TimeoutError, Error)):
            raise Error(f"the server does not speak NATS: {exc!r}") from exc  # nats-py expects that it does
        raise
    return client


async def close_nats(client: Client) -> None:
    """Send what is pending, and close; nats-py would wait for ever after a failed TLS handshake."""
    with contextlib.suppress(TimeoutError, OSError, Error):
        async with asyncio.timeout(CLOSE_SEC):
            await client.close()
