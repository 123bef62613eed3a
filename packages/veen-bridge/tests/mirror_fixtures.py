"""Real hub processes on loopback, and mirrors between them."""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from veen_bridge.mirror.service import HubTarget, MirrorService, MirrorSettings
from veen_bridge.mirror.stream_mirror import MirrorOptions, StreamPair
from veen_bridge.transfer import Mode
from veen_core.hashing import H
from veen_core.ids import UnixTime
from veen_core.keys import DhKey, DhSecret, SigningKey, SigningSeed
from veen_core.keystore import Secrets
from veen_core.limits import DEFAULT_LIMITS, Limits
from veen_core.profile import Profile
from veen_hub.client import FileStateStore, Hub, Identity, Message, Retry, connect
from veen_overlays.fold.overlay import Overlay
from veen_overlays.live import FoldedState, Materializer
from veen_overlays.summary_tree.store import MemoryStore
from veen_storage import create
from veen_testing.ports import free_port

T = TypeVar("T")
ADMIN = SigningKey(SigningSeed(H(b"admin")))
QUICK = Retry(max_attempts=200, first_delay=0.02, max_delay=0.2, deadline=15.0, max_outage=20.0)
SOURCE_READER = DhKey(DhSecret(H(b"source reader")))
TARGET_READER = DhKey(DhSecret(H(b"target reader")))


def person(name: str) -> Identity:
    seed = name.encode()
    return Identity(
        signing_key=SigningKey(SigningSeed(H(seed + b"/sign"))), dh_keys=(DhKey(DhSecret(H(seed + b"/dh"))),)
    )


BRIDGE = person("bridge")


def run(work: Coroutine[Any, Any, T], seconds: float = 90) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())


class HubProcess:
    """A data directory and its hub process, which may be stopped, killed, rotated and replaced."""

    def __init__(
        self,
        root: Path,
        *,
        epoch_sec: int = 0,
        gated: bool = False,
        settings: dict[str, Any] | None = None,
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.directory = root / "data"
        self._config = root / "hub.yaml"
        self._log = root / "hub.log"
        self._gated = gated
        self.configure(settings or {})
        create(
            self.directory,
            SigningKey(SigningSeed(os.urandom(32))),
            UnixTime(int(time.time()) - 2),
            profile=Profile(epoch_sec=epoch_sec, pad_block=256),
            limits=Limits(max_epoch_skew_sec=epoch_sec) if epoch_sec else DEFAULT_LIMITS,
            admin_pk=ADMIN.public,
        )
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def configure(self, settings: dict[str, Any]) -> None:
        self._config.write_text(json.dumps(settings))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def _flags(self) -> list[str]:
        return [f"--data-dir={self.directory}", f"--config={self._config}"]

    def _once(self, *flags: str) -> None:
        command = [sys.executable, "-m", "veen_hub.main", *flags, *self._flags]
        subprocess.run(command, check=True, capture_output=True, timeout=60)

    def start(self) -> None:
        flags = [*self._flags, f"--port={self.port}", "--probes-port=0", *([] if self._gated else ["--open"])]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "veen_hub.main", *flags], stdout=subprocess.PIPE, stderr=log
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

    def restart(self) -> None:
        self.stop()
        self.start()

    def rotate(self) -> None:
        """Restart with the next key."""
        self.stop()
        self._once("--rotate", "--window=3600")
        self.start()

    def snapshot(self) -> Path:
        """Copy the data directory of the stopped hub."""
        assert self._process is None
        copy = self.directory.with_name("snapshot")
        shutil.copytree(self.directory, copy)
        return copy

    def replace_data(self, copy: Path) -> None:
        """Put a snapshot in the place of the stopped hub's data: the hub now forks its own log."""
        assert self._process is None
        shutil.rmtree(self.directory)
        shutil.copytree(copy, self.directory)


@contextmanager
def serving(root: Path, **options: Any) -> Iterator[HubProcess]:
    hub = HubProcess(root, **options)
    try:
        yield hub
    finally:
        hub.kill()


@asynccontextmanager
async def talking(hub: HubProcess, name: str = "writer") -> AsyncIterator[Hub]:
    async with connect(hub.url, person(name), trust=await hub_id(hub), retry=QUICK) as one:
        yield one


async def hub_id(hub: HubProcess) -> str:
    """Read the hub's id as an operator does, from its status."""
    import aiohttp  # noqa: PLC0415 - only here

    from veen_core.status import Status  # noqa: PLC0415

    async with aiohttp.ClientSession() as session, session.get(f"{hub.url}/v1/status") as answer:
        return Status.decode(await answer.read()).identity.hub_id.hex()


async def settings(
    source: HubProcess,
    target: HubProcess,
    state: Path,
    *streams: str,
    mode: Mode = Mode.WRAP,
    **options: Any,
) -> MirrorSettings:
    pairs = [pair.split("=") for pair in streams]
    return MirrorSettings(
        source=HubTarget(url=source.url, pin=await hub_id(source)),
        target=HubTarget(url=target.url, pin=await hub_id(target)),
        pairs=tuple(StreamPair(source=pair[0], target=pair[-1]) for pair in pairs),
        options=MirrorOptions(
            mode=mode,
            bridge_id=BRIDGE.client_id,
            source_readers=(SOURCE_READER,) if mode is Mode.RESEAL else (),
            target_readers=(TARGET_READER,),
        ),
        identity=BRIDGE,
        store=FileStateStore(state),
        **options,
    )


@asynccontextmanager
async def mirroring(given: MirrorSettings) -> AsyncIterator[MirrorService]:
    """Run a mirror in this process; at the end it is drained."""
    service, stopping = MirrorService(given), asyncio.Event()
    task = asyncio.create_task(service.run(stopping))
    try:
        yield service
    finally:
        stopping.set()
        await task


async def read_all(hub: Hub, stream: str, count: int | None = None) -> list[Message]:
    """Read a stream of the target, waiting for ``count`` messages if given."""
    found = hub.stream(stream, readers=(TARGET_READER, SOURCE_READER))
    if count is None:
        return [message async for message in found.read()]
    messages = []
    async for message in found.follow():
        messages.append(message)
        if len(messages) == count:
            break
    return messages


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition of this process."""
    while not condition():
        await asyncio.sleep(0.01)


def write_secrets(folder: Path, identity: Identity) -> Path:
    """Write an identity folder as `veen keygen --no-passphrase` does."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "secrets.cbor"
    (dh_key,) = identity.dh_keys
    secrets = Secrets(id_sign=identity.signing_key.seed, id_dh=dh_key.secret, created_at=UnixTime(1))
    path.write_bytes(secrets.encode())
    path.chmod(0o600)
    return folder


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


async def folded_stream(hub: Hub, stream: str, overlay: Overlay[Any]) -> FoldedState[Any]:
    """A stream of either hub, folded to its end with the keys of both."""
    view = Materializer(
        overlay,
        hub.stream(stream).label(),
        hub.log_reader(),
        key=(TARGET_READER, SOURCE_READER),
        store=MemoryStore(),
    )
    await view.open()
    await view.catch_up()
    return await view.state()
