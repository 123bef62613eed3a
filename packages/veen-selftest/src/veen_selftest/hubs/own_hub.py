"""A hub process that the selftest creates, starts, kills and deletes.

The program may be any that takes ``--init``, ``--rotate``, ``--data-dir``, ``--config`` and ``--port`` as
``veen-hub`` does and prints one line when it listens; nothing else is assumed about it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from veen_core.keys import SigningKey
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.runner.check import Violation
from veen_selftest.runner.hub_setup import HubSetup

PROGRAM: Final = (
    sys.executable,
    "-P",
    "-m",
    "veen_hub.main",
)  # -P: import nothing from the working directory
LISTENING: Final = "veen-hub listening on "
PROBES: Final = ", probes on "
START_STOP_SECONDS: Final = 60
"""Longest time that a hub may take to start, and to stop."""


class OwnHub:
    """A data directory and, while it runs, its process. ``start`` returns the hub to talk to."""

    def __init__(
        self,
        program: Sequence[str],
        root: Path,
        setup: HubSetup,
        admin: SigningKey,
        timeout: float = START_STOP_SECONDS,
    ) -> None:
        self._program = tuple(program)
        self._timeout = timeout
        self._root = root
        self._admin = admin
        self._settings: dict[str, Any] = dict(setup.settings)
        self._process: subprocess.Popen[str] | None = None
        root.mkdir(parents=True)
        self._configure()
        self._run_once("--init", f"--admin={admin.public.hex()}", f"--profile={setup.profile}")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> Path:
        return self._root / "hub.log"

    def change(self, settings: Mapping[str, Any]) -> None:
        """Change settings; they take effect at the next start."""
        self._settings |= settings
        self._configure()

    def _configure(self) -> None:
        (self._root / "hub.yaml").write_text(
            json.dumps(self._settings), encoding="utf-8"
        )  # JSON is valid YAML

    def _flags(self) -> list[str]:
        return [f"--data-dir={self._root / 'data'}", f"--config={self._root / 'hub.yaml'}"]

    def _run_once(self, *flags: str) -> None:
        try:
            done = subprocess.run(  # noqa: S603 - the hub under test
                [*self._program, *flags, *self._flags()],
                capture_output=True,
                text=True,
                check=False,
                timeout=self._timeout,
                env=_environment(),
            )
        except subprocess.TimeoutExpired:
            raise Violation(f"{self._program[-1]} {flags[0]} has not ended after {self._timeout} s") from None
        if done.returncode != 0:
            raise Violation(f"{self._program[-1]} {flags[0]} failed: {done.stderr.strip()[-300:]}")

    def start(self) -> HttpHub:
        """Start the process, in its own session: Ctrl-C reaches only the selftest, which stops its hubs."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - as above
                [*self._program, "--port=0", "--log-level=warning", *self._flags()],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env=_environment(),
            )
        line = self._first_line(self._process.stdout)
        if not line.startswith(LISTENING):
            self.kill()
            raise Violation(f"the hub did not start: {line.strip()} {self._log_tail()}")
        url, _, probes = line.removeprefix(LISTENING).strip().partition(PROBES)
        return HttpHub(url, self._admin, probes_url=probes or None)

    def _first_line(self, said: IO[str] | None) -> str:
        assert said is not None
        ready, _, _ = select.select([said], [], [], self._timeout)
        return said.readline() if ready else f"no output in {self._timeout} s"

    def _log_tail(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace").strip()[-300:]

    def rotate(self, window_sec: int) -> None:
        """Rotate to the next key (§8.4); the hub must not be running."""
        self._run_once("--rotate", f"--window={window_sec}")

    def stop(self) -> int:
        """Stop with SIGTERM, as an operator would; returns the exit code."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._wait()

    def kill(self) -> None:
        """Kill the process and its children with SIGKILL."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._wait()

    def _wait(self) -> int:
        if self._process is None:
            return 0
        process, self._process = self._process, None
        try:
            code = process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        if process.stdout is not None:
            process.stdout.close()
        return code

    def resident_mb(self) -> float:
        """Resident memory of the process and its children, in MB."""
        return sum(_resident_kb(pid) for pid in _process_tree(self.pid)) / 1_024


def _environment() -> dict[str, str]:
    """Return the environment without VEEN_ variables: VEEN_KEYS_DIR would mix keys of several hubs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("VEEN_")}


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
