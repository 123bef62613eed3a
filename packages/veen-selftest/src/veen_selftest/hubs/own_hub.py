"""A hub that the selftest makes, starts, kills and throws away: ``veen-hub`` as a process, in a folder.

The program is any that understands ``--init``, ``--rotate``, ``--data-dir``, ``--config`` and ``--port`` as
``veen-hub`` does and prints one line when it listens; nothing else of it is known here.
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
from veen_selftest.hubs.http_hub import Hub
from veen_selftest.runner.check import Violation
from veen_selftest.runner.hub_setup import Setup

PROGRAM: Final = (sys.executable, "-P", "-m", "veen_hub.main")  # nothing of the working directory
LISTENING: Final = "veen-hub listening on "
PATIENCE: Final = 60
"""Seconds to start in, and to stop in."""


class OwnHub:
    """A data directory and, while it runs, the process on it. ``hub`` is how to talk to it."""

    def __init__(
        self,
        program: Sequence[str],
        root: Path,
        setup: Setup,
        admin: SigningKey,
        patience: float = PATIENCE,
    ) -> None:
        self._program = tuple(program)
        self._patience = patience
        self._root = root
        self._admin = admin
        self._settings: dict[str, Any] = dict(setup.settings)
        self._process: subprocess.Popen[str] | None = None
        root.mkdir(parents=True)
        self._configure()
        self._run_once("--init", f"--admin={admin.public.hex()}", f"--named={setup.profile}")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> Path:
        return self._root / "hub.log"

    def change(self, settings: Mapping[str, Any]) -> None:
        """Settings for the next start."""
        self._settings |= settings
        self._configure()

    def _configure(self) -> None:
        (self._root / "hub.yaml").write_text(json.dumps(self._settings), encoding="utf-8")  # JSON is YAML

    def _flags(self) -> list[str]:
        return [f"--data-dir={self._root / 'data'}", f"--config={self._root / 'hub.yaml'}"]

    def _run_once(self, *flags: str) -> None:
        try:
            done = subprocess.run(  # noqa: S603 - the hub that is to be judged
                [*self._program, *flags, *self._flags()],
                capture_output=True,
                text=True,
                check=False,
                timeout=self._patience,
                env=_surroundings(),
            )
        except subprocess.TimeoutExpired:
            raise Violation(f"{self._program[-1]} {flags[0]} does not end") from None
        if done.returncode != 0:
            raise Violation(f"{self._program[-1]} {flags[0]} failed: {done.stderr.strip()[-300:]}")

    def start(self) -> Hub:
        """In a session of its own: Ctrl-C reaches the selftest, and the selftest stops its hubs."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - as above
                [*self._program, "--port=0", "--log-level=warning", *self._flags()],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env=_surroundings(),
            )
        line = self._first_line(self._process.stdout)
        if not line.startswith(LISTENING):
            self.kill()
            raise Violation(f"the hub did not start: {line.strip()} {self._last_words()}")
        return Hub(line.removeprefix(LISTENING).strip(), self._admin)

    def _first_line(self, said: IO[str] | None) -> str:
        assert said is not None
        ready, _, _ = select.select([said], [], [], self._patience)
        return said.readline() if ready else f"nothing was said in {self._patience} s"

    def _last_words(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace").strip()[-300:]

    def rotate(self, window_sec: int) -> None:
        """The next key (§8.4); the hub must not be running."""
        self._run_once("--rotate", f"--window={window_sec}")

    def stop(self) -> int:
        """As an operator would; the exit code."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._wait()

    def kill(self) -> None:
        """``kill -9``, and whatever the process left behind."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._wait()

    def _wait(self) -> int:
        if self._process is None:
            return 0
        process, self._process = self._process, None
        try:
            code = process.wait(self._patience)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        if process.stdout is not None:
            process.stdout.close()
        return code

    def resident_mb(self) -> float:
        """Of the process and of those it started."""
        return sum(_resident_kb(pid) for pid in _family(self.pid)) / 1_024


def _surroundings() -> dict[str, str]:
    """Without what an operator set for another hub: with VEEN_KEYS_DIR, keys would lie among that hub's."""
    return {name: value for name, value in os.environ.items() if not name.startswith("VEEN_")}


def _family(pid: int) -> list[int]:
    found = [pid]
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in listed.read_text(encoding="ascii").split():
            found += _family(int(child))
    return found


def _resident_kb(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])
    return 0
