"""A real hub process on loopback with real files, and identities that use it."""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from veen_core import PROFILES, HubId, SigningKey, SigningSeed
from veen_core.cap import CapToken, Rate, mint
from veen_core.hashing import H
from veen_core.hub_identity import HubIdentity
from veen_core.ids import ClientId, UnixTime
from veen_core.keys import DhKey, DhSecret
from veen_core.stream import stream_id
from veen_hub.client import Identity, Retry
from veen_storage import create
from veen_testing.ports import free_port

T = TypeVar("T")
ADMIN = SigningKey(SigningSeed(H(b"admin")))
QUICK = Retry(max_attempts=200, first_delay=0.02, max_delay=0.2, deadline=15.0, max_outage=20.0)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run one test on its own event loop, for at most 90 seconds."""

    async def bounded() -> T:
        async with asyncio.timeout(90):
            return await work

    return asyncio.run(bounded())


def person(name: str) -> Identity:
    seed = name.encode()
    return Identity(
        signing_key=SigningKey(SigningSeed(H(seed + b"/sign"))), dh_keys=(DhKey(DhSecret(H(seed + b"/dh"))),)
    )


def token_for(subject: ClientId, *streams: str, ttl: int = 3_600, rate: Rate | None = None) -> CapToken:
    return mint(ADMIN, subject, [stream_id(name) for name in streams], ttl, rate)


class HubProcess:
    """A data directory and its hub process, which may be stopped, killed and started again."""

    def __init__(
        self,
        root: Path,
        *,
        profile: str = "default",
        gated: bool = False,
        config: str | Callable[[HubIdentity], str] = "",
        twin_of: HubProcess | None = None,
    ) -> None:
        self.directory = root / "data"
        if twin_of is None:
            self.identity = create(
                self.directory,
                SigningKey(SigningSeed(os.urandom(32))),
                UnixTime(int(time.time()) - 1_000),
                profile=PROFILES[profile],
                admin_pk=ADMIN.public,
            )
        else:
            shutil.copytree(twin_of.directory, self.directory)
            self.identity = twin_of.identity
        self._config = root / "hub.yaml"
        self._config.write_text(config if isinstance(config, str) else config(self.identity))
        self._gated = gated
        self._log = root / "hub.log"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def hub_id(self) -> HubId:
        return self.identity.hub_id

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        arguments = [
            "--data-dir",
            str(self.directory),
            "--port",
            str(self.port),
            "--probes-port=0",
            "--config",
            str(self._config),
        ]
        if not self._gated:
            arguments.append("--open")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "veen_hub.main", *arguments], stdout=subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], 60)
        line = self._process.stdout.readline() if ready else b""
        assert b"listening" in line, self._log.read_text()

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


@contextmanager
def serving(root: Path, **options: Any) -> Iterator[HubProcess]:
    hub = HubProcess(root, **options)
    try:
        yield hub
    finally:
        hub.kill()
