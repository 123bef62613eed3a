"""A witness process that the selftest creates, starts, suspends and deletes (C2SP tlog-witness)."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from veen_selftest.hubs.ports import free_port
from veen_selftest.hubs.server_process import START_STOP_SECONDS, ServerProcess
from veen_selftest.peers.note_verifier import WITNESS_KEY, parse_verifier_key
from veen_selftest.runner.check import ClauseViolation

WITNESS_PROGRAM: Final = (sys.executable, "-P", "-m", "veen_hub.witness.main")
LISTENING: Final = "veen-witness listening on "
NAME: Final = "selftest.example/witness"
MAX_SILENCE_SECONDS: Final = 10.0
"""Seconds after which a witness that does not answer counts as silent."""


class OwnWitness:
    """A witness; hubs are configured with its ``key`` and ``url``, which it has before it starts."""

    def __init__(self, root: Path, timeout: float = START_STOP_SECONDS) -> None:
        root.mkdir(parents=True)
        self._process = ServerProcess("the witness", WITNESS_PROGRAM, root / "witness.log", timeout)
        self._folder = root / "witness"
        self.key = self._process.run_once(f"--init={NAME}", f"--dir={self._folder}").strip()
        """The verifier key."""
        self.name, self.public = parse_verifier_key(self.key, WITNESS_KEY)
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        """The submission prefix."""

    def watch(self, log_keys: Sequence[str]) -> None:
        """Let the witness cosign the log with these verifier keys, from its next start on."""
        settings = {"logs": [{"keys": list(log_keys)}]}
        (self._folder / "witness.yaml").write_text(
            json.dumps(settings), encoding="utf-8"
        )  # JSON is valid YAML

    def start(self) -> None:
        """Start the process."""
        self._process.start(
            LISTENING, f"--listen=127.0.0.1:{self._port}", "--log-level=warning", f"--dir={self._folder}"
        )

    def paused(self) -> AbstractContextManager[None]:
        """Suspend the process: it takes connections and answers nothing."""
        return self._process.paused()

    def resume(self) -> None:
        """Let a suspended witness answer, before the end of ``paused``."""
        self._process.resume()

    def kill(self) -> None:
        self._process.kill()

    def newest(self, origin: str) -> bytes | None:
        """Return the newest checkpoint of a log that this witness cosigned; None if there is none."""
        path = f"/{sha256(origin.encode()).hexdigest()}/checkpoint"
        address = urlsplit(self.url)
        connection = http.client.HTTPConnection(
            address.hostname or "", address.port, timeout=MAX_SILENCE_SECONDS
        )
        with closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        if answer.status not in (200, 404):
            raise ClauseViolation(f"the witness answers {path} with status {answer.status}")
        return body if answer.status == 200 else None
