"""A hub process that the selftest creates, starts, kills and deletes.

The program may be any that takes ``--init``, ``--rotate``, ``--data-dir``, ``--config`` and ``--port`` as
``veen-hub`` does and prints one line when it listens; nothing else is assumed about it. A replica is started
with ``--replica-of`` instead of ``--config``.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from veen_core.keys import SigningKey
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.hubs.server_process import START_STOP_SECONDS, ServerProcess
from veen_selftest.runner.hub_setup import HubSetup

PROGRAM: Final = (
    sys.executable,
    "-P",
    "-m",
    "veen_hub.main",
)  # -P: import nothing from the working directory
LISTENING: Final = "veen-hub listening on "
PROBES: Final = ", probes on "


class OwnHub:
    """A data directory and, while it runs, its process. ``start`` returns the hub to talk to."""

    def __init__(
        self,
        program: Sequence[str],
        root: Path,
        setup: HubSetup,
        admin: SigningKey,
        timeout: float = START_STOP_SECONDS,
        *,
        snapshot_of: OwnHub | None = None,
    ) -> None:
        """``root``: a new folder. ``snapshot_of``: copy the data of this hub; else a new hub is made."""
        self._program = tuple(program)
        self._timeout = timeout
        self._process = ServerProcess("the hub", program, root / "hub.log", timeout)
        self._root = root
        self._admin = admin
        self._settings: dict[str, Any] = dict(setup.settings)
        root.mkdir(parents=True)
        self._configure()
        if snapshot_of is not None:
            snapshot_of._copy_data(self.data)
        else:
            self._run_once("--init", f"--admin={admin.public.hex()}", f"--profile={setup.profile}")

    def _copy_data(self, target: Path) -> None:
        """Copy the data directory as a snapshot of its volume does: at one instant, also of a running hub."""
        with self._process.paused():
            shutil.copytree(self.data, target)

    @property
    def data(self) -> Path:
        return self._root / "data"

    @property
    def log(self) -> Path:
        return self._process.log

    def change(self, settings: Mapping[str, Any]) -> None:
        """Change settings; they take effect at the next start."""
        self._settings |= settings
        self._configure()

    def _configure(self) -> None:
        (self._root / "hub.yaml").write_text(
            json.dumps(self._settings), encoding="utf-8"
        )  # JSON is valid YAML

    def _flags(self) -> list[str]:
        return [f"--data-dir={self.data}", f"--config={self._root / 'hub.yaml'}"]

    def _run_once(self, *flags: str) -> None:
        self._process.run_once(*flags, *self._flags())

    def start(self, environment: Mapping[str, str] | None = None) -> HttpHub:
        """Start the process; ``environment``: variables besides this process's own."""
        flags = ("--port=0", "--log-level=warning", *self._flags())
        line = self._process.start(LISTENING, *flags, variables=environment)
        url, _, probes = line.partition(PROBES)
        return HttpHub(url, self._admin, probes_url=probes or None)

    def another_process(self, what: str, log: Path) -> ServerProcess:
        """Return a process of the same program for another data directory, not started yet."""
        return ServerProcess(what, self._program, log, self._timeout)

    @contextlib.contextmanager
    def running(self) -> Iterator[HttpHub]:
        """Start the process, and kill it at the end, also after a violation."""
        try:
            yield self.start()
        finally:
            self.kill()

    def rotate(self, window_sec: int) -> None:
        """Rotate to the next key (core §8.4); the hub must not be running."""
        self._run_once("--rotate", f"--window={window_sec}")

    def stop(self) -> int:
        """Stop with SIGTERM, as an operator would; returns the exit code."""
        return self._process.stop()

    def kill(self) -> None:
        """Kill the process and its children with SIGKILL."""
        self._process.kill()

    def resident_mb(self) -> float:
        """Resident memory of the process and its children, in MB."""
        return sum(map(_resident_kb, self.processes())) / 1_024

    def processes(self) -> list[int]:
        """Return the process ids of the hub and its helpers, the hub's first."""
        return _process_tree(self._process.pid)


def _process_tree(pid: int) -> list[int]:
    found = [pid]
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in listed.read_text(encoding="ascii").split():
            found += _process_tree(int(child))
    return found


def _resident_kb(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])
    return 0
