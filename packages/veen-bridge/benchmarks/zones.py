"""Hubs for the benchmarks: processes of their own on the same cores, and the bridge's two roles at them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veen_bridge.exporting.export import ExportedBundle, Exporter, ProgressBar
from veen_bridge.exporting.planning import ExportWishes
from veen_bridge.importing.run import ImportRun
from veen_bridge.roles.config import BridgeConfig, load_config
from veen_bridge.roles.session import RoleKeys, open_session
from veen_core.hashing import H
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, UnixTime
from veen_core.keys import DhSecret, SigningSeed
from veen_core.keystore import Secrets
from veen_hub.client import Identity, connect

STREAM = "export/bench"
PROGRAM = (sys.executable, "-m", "veen_hub.main")
LISTENING = "veen-hub listening on "


class Silent:
    """A progress bar that shows nothing."""

    def advance(self, by: int = 1) -> None:
        del by


@contextmanager
def unwatched(_what: str, _total: int) -> Iterator[ProgressBar]:
    yield Silent()


class Zone:
    """A hub process that is open to every writer."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root, data = root, root / "data"
        flags = [f"--data-dir={data}"]
        admin = Identity.generate().client_id.hex()
        init = [*PROGRAM, "--init", f"--admin={admin}", *flags]
        subprocess.run(init, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - a program of this project
        self.hub_id: HubId = HubIdentity.decode((data / "hub-identity.cbor").read_bytes()).hub_id
        options = ["--open", "--port=0", "--probes-port=0", "--log-level=error", *flags]
        self._process = subprocess.Popen([*PROGRAM, *options], stdout=subprocess.PIPE, text=True)  # noqa: S603
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.url = line.removeprefix(LISTENING).partition(",")[0].strip()

    def write_identity(self, name: str) -> Path:
        """Write a keystore for a bridge; return its folder."""
        folder = self.root / name
        folder.mkdir()
        keys = Secrets(
            id_sign=SigningSeed(H(name.encode())),
            id_dh=DhSecret(H(b"dh" + name.encode())),
            created_at=UnixTime(1),
        )
        (folder / "secrets.cbor").touch(0o600)
        (folder / "secrets.cbor").write_bytes(keys.encode())
        return folder

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Zones:
    """A source zone and a target zone, with a bridge between them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.source, self.target = Zone(root / "source"), Zone(root / "target")
        self.sent = 0
        self._write_role(self.source, "bridge_online", {"streams": [STREAM]})
        streams = [STREAM.replace("export/", "import/")]
        sources = [{"hub_id": self.source.hub_id.hex()}]
        self._write_role(self.target, "bridge_offline", {"streams": streams, "sources": sources})

    def _write_role(self, zone: Zone, role: str, settings: dict[str, object]) -> None:
        zone.write_identity(role)
        common = {"role": role, "hub": zone.url, "trust": zone.hub_id.hex(), "client": role}
        (zone.root / f"{role}.yaml").write_text(json.dumps({**common, **settings}))

    def stop(self) -> None:
        self.source.stop()
        self.target.stop()

    async def fill(self, count: int) -> None:
        """Send messages to the source, and wait until its hub log has them."""
        async with connect(self.source.url, Identity.generate(), trust=self.source.hub_id.hex()) as hub:
            async for _ in hub.stream(STREAM).send_many(f"order {n}" for n in range(count)):
                pass
            self.sent += count
            await hub.label_head(hub.stream(STREAM).label(), self.sent)

    async def grow(self, count: int) -> None:
        """Send messages, export them into one bundle and import it."""
        await self.fill(count)
        media = self.root / f"media-{self.sent}"
        await export_all(self.root, media)
        await import_all(self.root, media)


def online(root: Path) -> BridgeConfig:
    return load_config(root / "source" / "bridge_online.yaml")


def offline(root: Path) -> BridgeConfig:
    return load_config(root / "target" / "bridge_offline.yaml")


async def export_all(root: Path, media: Path) -> tuple[ExportedBundle, float]:
    """Export what is new into one bundle; return the bundle and the seconds."""
    config = online(root)
    async with open_session(config, RoleKeys.load(config)) as session:
        exporter = Exporter(session, media, ExportWishes(attachments=False), unwatched)
        start = time.perf_counter()
        (made,) = [each async for each in exporter.export([STREAM])]
        return made, time.perf_counter() - start


async def import_all(root: Path, media: Path) -> float:
    """Verify and import a bundle; return the seconds."""
    config = offline(root)
    async with open_session(config, RoleKeys.load(config)) as session:
        start = time.perf_counter()
        (outcome,) = await ImportRun(session=session).run([media])
        assert outcome.imported is not None, outcome.failure
        return time.perf_counter() - start
