"""The setting of the quickstart: a folder with three identities and a hub process on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen_cli.arguments import times
from veen_cli.hub.process import START_SECONDS, failure_of, launch, log_lines_since
from veen_cli.identity.identity_folder import Folder, new_secrets
from veen_core.hub_identity import HubIdentity
from veen_core.ids import UnixTime, VerifyKey
from veen_core.keys import SigningKey, SigningSeed
from veen_hub.ops.config import ENVIRONMENT
from veen_storage import create

NAMES: Final = ("admin", "alice", "bob")
STREAM: Final = "quickstart"


@dataclass(frozen=True, slots=True)
class World:
    """The folder of the quickstart and its content."""

    root: Path
    identity: HubIdentity

    def person(self, name: str) -> Folder:
        return Folder(self.root / name)

    @property
    def data_dir(self) -> Path:
        return self.root / "hub"

    @property
    def copy(self) -> Path:
        return self.root / "hub-tampered"

    @property
    def evidence(self) -> Path:
        return self.root / "evidence"

    def keys(self) -> dict[str, VerifyKey]:
        return {name: self.person(name).card().id_sign for name in NAMES}


def build(root: Path) -> World:
    """Create three identities without passphrases, and an empty hub."""
    now = UnixTime(times.now())
    for name in NAMES:
        Folder(root / name).create(new_secrets(now), None, now)
    identity = create(
        root / "hub",
        SigningKey(SigningSeed(os.urandom(SigningSeed.SIZE))),
        now,
        admin_pk=Folder(root / "admin").card().id_sign,
    )
    return World(root, identity)


@dataclass(frozen=True, slots=True)
class Running:
    """The running hub process."""

    url: str
    pid: int

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@contextmanager
def running(world: World) -> Iterator[Running]:
    """Run a hub process on a free port of loopback; drain and stop it at the end."""
    arguments = [f"--data-dir={world.data_dir}", "--host=127.0.0.1", "--port=0", "--log-level=warning"]
    log = world.root / "hub.log"
    # The user's variables are removed: VEEN_KEYS_DIR would hide the hub's keys.
    process, url, _ = launch(arguments, log, without=ENVIRONMENT)
    try:
        yield Running(url, process.pid)
    except Exception as error:
        if process.poll() is not None:
            # The last line of the hub's log names the cause; the log is removed with the folder.
            raise failure_of(process, log_lines_since(log)) from error
        raise
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
