"""The source zone: a real hub process on loopback, and bridge_online with its configuration."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from veen_bridge.bundles import BundleReport, check_bundle, open_bundles
from veen_bridge.exporting.export import ExportedBundle, Exporter, ProgressBar
from veen_bridge.exporting.planning import ExportWishes
from veen_bridge.roles.config import BridgeConfig, load_config
from veen_bridge.roles.session import RoleKeys, open_session
from veen_core.bundle import BundleHeader, BundleTrust
from veen_core.hashing import H
from veen_core.hub_identity import HubIdentity
from veen_core.ids import UnixTime
from veen_core.keys import DhSecret, SigningSeed
from veen_core.keystore import Secrets
from veen_hub.client import Identity, Source, connect

from .hub_process import PROGRAM, HubProcess

T = TypeVar("T")
VEEN = (sys.executable, "-c", "from veen_cli.frame.start import main; main()")
FAST = '{"hub_log": {"max_entries": 1}}'
"""A hub checkpoint after every batch, so that no test waits a second for one."""
STREAM = "export/zone1/orders"
BRIDGE_KEYS = Secrets(
    id_sign=SigningSeed(H(b"bridge online")), id_dh=DhSecret(H(b"bridge dh")), created_at=UnixTime(1)
)
BRIDGE = Identity.of(BRIDGE_KEYS)
WRITER = Identity.generate()
SMALL_PARTS = 92 * 1024
"""Header and part table take about 85 KiB of each part, so a part has room for a few entries."""


def run(work: Coroutine[Any, Any, T], seconds: float = 90) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())


class NoProgress:
    def advance(self, by: int = 1) -> None:
        del by


@contextmanager
def unwatched(what: str, total: int) -> Iterator[ProgressBar]:
    del what, total
    yield NoProgress()


class SourceZone(HubProcess):
    """Z1: a hub that anybody may write to, and a bridge that may export one stream or several."""

    def __init__(
        self, root: Path, *, profile: str = "default", streams: Sequence[str] = (STREAM,), config: str = FAST
    ) -> None:
        self.root, self.data, self.out = root, root / "data", root / "out"
        root.mkdir(parents=True, exist_ok=True)
        admin = Identity.generate().client_id.hex()
        (root / "hub.yaml").write_text(config)
        self._flags = [f"--data-dir={self.data}", f"--config={root / 'hub.yaml'}"]
        subprocess.run(
            [*PROGRAM, "--init", f"--admin={admin}", f"--profile={profile}", *self._flags], check=True
        )
        self.hub_id = HubIdentity.decode((self.data / "hub-identity.cbor").read_bytes()).hub_id
        self.trust = BundleTrust(pinned=self.hub_id, bridge=BRIDGE.client_id)
        super().__init__(["--open", *self._flags])
        self.write_bridge(streams)

    def write_bridge(self, streams: Sequence[str]) -> None:
        client = self.root / "bridge"
        client.mkdir(exist_ok=True)
        secrets = client / "secrets.cbor"
        secrets.touch(0o600)
        secrets.write_bytes(BRIDGE_KEYS.encode())
        lines = ["role: bridge_online", f"hub: {self.url}", f"trust: {self.hub_id.hex()}", "client: bridge"]
        lines += ["operator: tests", "streams:", *(f'  - "{each}"' for each in streams)]
        (self.root / "bridge.yaml").write_text("\n".join(lines) + "\n")

    @property
    def reader_folder(self) -> Path:
        """A folder with the reader key of the streams, and without the key that the bridge signs with."""
        folder = self.root / "reader"
        folder.mkdir(exist_ok=True)
        secrets = folder / "secrets.cbor"
        secrets.touch(0o600)
        secrets.write_bytes(replace(BRIDGE_KEYS, id_sign=SigningSeed(H(b"reader"))).encode())
        return folder

    @property
    def config(self) -> BridgeConfig:
        return load_config(self.root / "bridge.yaml")

    # --- what people do

    def send(
        self, count: int, stream: str = STREAM, *, attachments: Sequence[Source] = (), to: Identity = BRIDGE
    ) -> None:
        async def work() -> None:
            async with connect(self.url, WRITER, trust=self.hub_id.hex(), state=self.root / "writer") as hub:
                to_stream = hub.stream(stream, to=to.recipient)
                if attachments:
                    await to_stream.send("with attachments", attachments=attachments)
                async for _ in to_stream.send_many(f"order {n}" for n in range(count)):
                    pass

        run(work())

    def export(self, *streams: str, out: Path | None = None, **wishes: Any) -> list[ExportedBundle]:
        """Export in this process, up to the newest entry."""
        wanted = ExportWishes(checkpoint_now=True, **wishes)

        async def work() -> list[ExportedBundle]:
            keys = RoleKeys.load(self.config)
            async with open_session(self.config, keys) as session:
                exporter = Exporter(session, out or self.out, wanted, unwatched)
                return [bundle async for bundle in exporter.export(streams or [STREAM])]

        return run(work())

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*VEEN, "bridge", *arguments], capture_output=True, text=True, timeout=90, check=False
        )

    def export_command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        flags = ("--config", str(self.root / "bridge.yaml"), "--out", str(self.out), "--checkpoint-now")
        return self.command("export", *flags, *arguments)

    def check(self, *paths: Path, previous: BundleHeader | None = None) -> list[BundleReport]:
        """Verify files with the pinned hub and bridge."""
        opened = open_bundles(paths or [self.out])
        assert not opened.faults
        return [check_bundle(each, self.trust, previous=previous) for each in opened.bundles]
