"""The listeners of a hub: submits take a short path past aiohttp, and refusals are error envelopes."""

from __future__ import annotations

import asyncio
import ssl

from aiohttp import web

from veen_core.errors import ApiError
from veen_hub.api.errors import refuse
from veen_hub.api.reply import Headers, Reply
from veen_hub.http.bounded_listener import BoundedListener, ListenerEndpoint
from veen_hub.http.connections import Connection
from veen_hub.http.resting import Resting
from veen_hub.hub import Hub


class Listener(BoundedListener):
    """One listening socket of a hub."""

    __slots__ = ("_hub", "resting", "takes_submits")

    def __init__(
        self,
        runner: web.BaseRunner,
        hub: Hub,
        endpoint: ListenerEndpoint,
        context: ssl.SSLContext | None = None,
        *,
        takes_submits: bool = False,
    ) -> None:
        slow_client_sec = hub.config.listen.follower_timeout_sec
        super().__init__(runner, endpoint, context, slow_client_sec=slow_client_sec)
        self._hub = hub
        self.takes_submits = takes_submits
        self.resting = Resting()

    def make_connection(self, server: web.Server, loop: asyncio.AbstractEventLoop) -> Connection:
        return Connection(self, server, loop, self._hub)

    def add_unsent(self, size: int) -> None:
        """Count for the whole hub: all its listeners share the bound."""
        self._hub.unsent += size

    def refuse(self, headers: Headers, error: ApiError, request_id: str) -> Reply:
        """Encode a refusal as an envelope (§10.6)."""
        return refuse(headers, error, request_id)
