"""A hub process on loopback that can be stopped and started again."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence

PROGRAM = (sys.executable, "-m", "veen_hub.main")
LISTENING = "veen-hub listening on "


class HubProcess:
    """The process of one data directory; ``url`` is its address while it runs."""

    def __init__(self, flags: Sequence[str]) -> None:
        self._run_flags = ["--port=0", "--probes-port=0", "--log-level=error", *flags]
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen([*PROGRAM, *self._run_flags], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith(LISTENING), line
        self.url = line.removeprefix(LISTENING).partition(",")[0].strip()

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None
