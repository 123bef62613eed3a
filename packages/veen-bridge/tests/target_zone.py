"""The target zone: a gated hub on loopback, and bridge_offline with its token and its configuration."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from veen_bridge.importing.run import ImportOutcome, ImportRun
from veen_bridge.roles.config import OFFLINE, BridgeConfig, load_config, parse_config
from veen_bridge.roles.session import RoleKeys, open_session
from veen_bridge.roles.templates import issue_token
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, UnixTime
from veen_core.keys import DhSecret, SigningKey, SigningSeed
from veen_core.keystore import Secrets
from veen_hub.client import Identity, Message, connect

from .hub_process import PROGRAM, HubProcess
from .source_zone import BRIDGE, VEEN, run

TARGET = "import/zone1/orders"


def new_keys() -> Secrets:
    return Secrets(
        id_sign=SigningSeed(os.urandom(32)), id_dh=DhSecret(os.urandom(32)), created_at=UnixTime(1)
    )


def write_keys(folder: Path, keys: Secrets) -> Path:
    """Write an identity folder that only its owner can read."""
    folder.mkdir()
    secrets = folder / "secrets.cbor"
    secrets.touch(0o600)
    secrets.write_bytes(keys.encode())
    return folder


class TargetHub(HubProcess):
    """Z2's hub: it takes messages only with a token of its admin."""

    def __init__(self, root: Path, *, profile: str = "default", **settings: Any) -> None:
        self.root, self.data = root, root / "data"
        root.mkdir(parents=True, exist_ok=True)
        self.admin_keys = new_keys()
        self.admin = SigningKey(self.admin_keys.id_sign)
        (root / "hub.yaml").write_text(yaml.safe_dump(settings))
        self._flags = [f"--data-dir={self.data}", f"--config={root / 'hub.yaml'}"]
        init = [
            *PROGRAM,
            "--init",
            f"--admin={self.admin.public.hex()}",
            f"--profile={profile}",
            *self._flags,
        ]
        subprocess.run(init, check=True)
        self.hub_id = HubIdentity.decode((self.data / "hub-identity.cbor").read_bytes()).hub_id
        super().__init__(self._flags)


class OfflineBridge:
    """bridge_offline at a target hub: its folder, and what its operator does with it."""

    def __init__(
        self,
        root: Path,
        hub: TargetHub,
        source: HubId,
        *,
        streams: Sequence[str] = (TARGET,),
        **settings: Any,
    ) -> None:
        self.root, self.hub = root, hub
        self._secrets = new_keys()
        self.identity = Identity.of(self._secrets)
        root.mkdir(parents=True, exist_ok=True)
        self.settings: dict[str, Any] = {
            "role": OFFLINE,
            "hub": hub.url,
            "trust": hub.hub_id.hex(),
            "client": "identity",
            "tokens": ["role.cap"],
            "operator": "tests",
            "streams": list(streams),
            "sources": [{"hub_id": source.hex(), "bridge_id": BRIDGE.client_id.hex()}],
        } | settings
        sources = parse_config(self.settings, root).sources
        token = issue_token(hub.admin, OFFLINE, self.identity.client_id, streams, sources, ttl=3_600)
        (root / "role.cap").write_bytes(token.encode())
        self.write()

    @property
    def admin_folder(self) -> Path:
        """A folder with the keys of the hub's admin."""
        return write_keys(self.root / "admin", self.hub.admin_keys)

    def write(self, **settings: Any) -> None:
        """Write the configuration, with changes."""
        (self.root / "bridge.yaml").write_text(yaml.safe_dump(self.settings | settings))
        self.lose_disk()

    def lose_disk(self) -> None:
        """Forget everything but the keys: as on a new machine."""
        shutil.rmtree(self.root / "identity", ignore_errors=True)
        write_keys(self.root / "identity", self._secrets)

    @property
    def config(self) -> BridgeConfig:
        return load_config(self.root / "bridge.yaml")

    def import_(self, *paths: Path, **options: Any) -> list[ImportOutcome]:
        """Import in this process."""

        async def work() -> list[ImportOutcome]:
            config = self.config
            async with open_session(config, RoleKeys.load(config)) as session:
                return await ImportRun(session=session, **options).run(paths)

        return run(work())

    def import_command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        flags = ("--config", str(self.root / "bridge.yaml"))
        command = [*VEEN, "bridge", "import", *flags, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)

    def read(self, stream: str = TARGET) -> list[Message]:
        """Read a stream of the target hub with the bridge's keys."""

        async def work() -> list[Message]:
            async with connect(self.hub.url, self.identity, trust=self.hub.hub_id.hex()) as hub:
                return [message async for message in hub.stream(stream).read()]

        return run(work())


@contextmanager
def target_hub(root: Path, **settings: Any) -> Iterator[TargetHub]:
    hub = TargetHub(root, **settings)
    try:
        yield hub
    finally:
        hub.stop()
