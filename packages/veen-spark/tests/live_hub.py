"""A real hub: the ``veen-hub`` program on a data directory, on a free port of this machine."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from veen_core.hub_identity import HubIdentity
from veen_hub.client import Identity
from veen_hub.client.blocking import connect
from veen_overlays.schema.record import Record

PROGRAM = (sys.executable, "-m", "veen_hub.main")
LISTENING = "veen-hub listening on "


class LiveHub:
    """A hub process; its data directory is created if it does not exist."""

    def __init__(self, root: Path) -> None:
        self.root = root
        if not root.exists():
            admin = Identity.generate().client_id.hex()
            subprocess.run([*PROGRAM, "--init", f"--admin={admin}", f"--data-dir={root}"], check=True)
        self.hub_id = HubIdentity.decode((root / "hub-identity.cbor").read_bytes()).hub_id
        self.identity = Identity.generate()
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> None:
        self._process = subprocess.Popen(
            [*PROGRAM, "--open", "--port=0", "--log-level=error", f"--data-dir={self.root}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith(LISTENING), line
        self.url = line.removeprefix(LISTENING).partition(",")[0]

    def send(self, stream: str, count: int) -> None:
        with connect(self.url, self.identity, trust=self.hub_id) as hub:
            list(hub.stream(stream).send_many(f"note {n}" for n in range(count)))

    def send_records(self, stream: str, records: Iterable[Record]) -> None:
        """Send messages sealed to the sender, which ``identity`` opens."""
        with connect(self.url, self.identity, trust=self.hub_id) as hub:
            list(hub.stream(stream).send_many(records))

    def label(self, stream: str) -> str:
        with connect(self.url, trust=self.hub_id) as hub:
            return hub.stream(stream).label().hex()

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None
