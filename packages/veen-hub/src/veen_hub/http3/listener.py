"""The hub's UDP socket for HTTP/3 (RFC 9114), with bounds on connections and handshakes.

Every client first proves its address with a retry token (RFC 9000 §8.1.2), so that datagrams with false
addresses cost neither memory nor TLS. There are no session tickets: a client cannot send a request in 0-RTT
data, which an attacker could repeat (RFC 8470).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final

from aioquic.asyncio.server import QuicServer
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

from veen_core.errors import ConfigError
from veen_hub.http3.connection import H3HubConnection
from veen_hub.http3.windows import bounded
from veen_hub.hub import Hub
from veen_hub.ops.config import Tls
from veen_hub.ops.config.h3 import H3Settings
from veen_hub.ops.logs import LOGGER, log

IDLE_SEC: Final = 75.0
STOP_SEC: Final = 5.0
ALT_SVC_SEC: Final = 86_400


class H3Listener:
    """Listens for HTTP/3 on one UDP port."""

    def __init__(self, hub: Hub, settings: H3Settings, tls: Tls, host: str, port: int) -> None:
        self._hub = hub
        self._settings = settings
        self._host, self._port = host, port
        self._connections: set[H3HubConnection] = set()
        self._server: _Server | None = None
        self._configuration = bounded(
            QuicConfiguration(is_client=False, alpn_protocols=["h3"], idle_timeout=IDLE_SEC)
        )
        try:
            self._configuration.load_cert_chain(tls.cert, tls.key)
        except (OSError, ValueError) as exc:
            raise ConfigError(f"tls.cert, tls.key: cannot be used for HTTP/3: {exc}") from None

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.port

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"h3://{host}:{self.port}"

    @property
    def alt_svc(self) -> str:
        """The header with which HTTP/1.1 says where HTTP/3 is (RFC 7838)."""
        return f'h3=":{self.port}"; ma={ALT_SVC_SEC}'

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, self._server = await loop.create_datagram_endpoint(
                lambda: _Server(self), local_addr=(self._host, self._port)
            )
        except OSError as exc:
            raise ConfigError(
                f"h3.host, h3.port: cannot listen on {self._host} UDP port {self._port}: {exc.strerror}",
                action="choose another port (0 takes a free one), or stop the program that listens there",
            ) from exc

    async def stop(self) -> None:
        """Let answers in progress end, and close all connections; the hub has been drained."""
        if self._server is None:
            return
        self._server.accepts = False
        for connection in list(self._connections):
            connection.stop_bodies()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SEC):
                while any(connection.is_busy for connection in self._connections):
                    await asyncio.sleep(0.01)
        self._server.close()

    # --- for the server

    @property
    def configuration(self) -> QuicConfiguration:
        return self._configuration

    def has_room(self) -> bool:
        """Return whether another connection may be made."""
        return len(self._connections) < self._settings.max_connections

    def connect(self, quic: QuicConnection) -> H3HubConnection:
        made = H3HubConnection(quic, self._hub, self._connections.discard)
        self._connections.add(made)
        return made


class _Server(QuicServer):
    """aioquic's server, with bounded connections."""

    def __init__(self, listener: H3Listener) -> None:
        self._listener = listener
        super().__init__(
            configuration=listener.configuration,
            create_protocol=lambda quic, **_options: listener.connect(quic),
            retry=True,
        )
        self.accepts = True

    @property
    def port(self) -> int:
        assert self._transport is not None
        return int(self._transport.get_extra_info("sockname")[1])

    def datagram_received(self, data: bytes | str, addr: Any) -> None:
        """Drop what would make a connection beyond the limit; never fail on a datagram."""
        known = isinstance(data, bytes) and self._is_known(data)
        if not known and not (self.accepts and self._listener.has_room()):
            return
        try:
            super().datagram_received(data, addr)
        except Exception:  # noqa: BLE001 - logged; one peer must not end the others
            LOGGER.exception("datagram_failed")

    def _is_known(self, data: bytes) -> bool:
        """Return whether a datagram belongs to a connection, by its destination connection id."""
        length = self._configuration.connection_id_length
        start = 6 if data and data[0] & 0x80 else 1  # a long header has the version and the id's length first
        return data[start : start + length] in self._protocols

    def error_received(self, exc: Exception) -> None:
        log(logging.DEBUG, "udp_error", error=str(exc))
