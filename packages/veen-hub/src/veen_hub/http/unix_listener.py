"""A hub's listener at a unix socket, for the other processes of the same hub."""

from __future__ import annotations

import asyncio
import contextlib
import os

from aiohttp import web

from veen_core.errors import ConfigError
from veen_hub.http.bounded_listener import ListenerEndpoint
from veen_hub.http.listener import Listener
from veen_hub.hub import Hub

MAX_CONNECTIONS = 65_536
BACKLOG = 1_024


class UnixListener(Listener):
    """Listens at a path that only this user can reach; a socket left by an ended process is replaced."""

    __slots__ = ("_path",)

    def __init__(self, runner: web.BaseRunner, hub: Hub, path: str) -> None:
        endpoint = ListenerEndpoint(
            key="sockets", host="", port=0, max_connections=MAX_CONNECTIONS, backlog=BACKLOG
        )
        super().__init__(runner, hub, endpoint)
        self._path = path

    @property
    def name(self) -> str:
        return f"unix:{self._path}"

    async def start(self) -> None:
        await web.BaseSite.start(self)
        loop = asyncio.get_running_loop()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        try:
            self._server = await loop.create_unix_server(
                lambda: self._connect(loop), self._path, backlog=BACKLOG
            )
        except OSError as exc:
            await self.stop()
            raise ConfigError(f"{self._path}: cannot listen there: {exc.strerror or exc}") from exc
