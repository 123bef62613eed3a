"""A witness process that the selftest creates, starts, suspends and deletes (C2SP tlog-witness)."""

from __future__ import annotations

import http.client
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, closing
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from veen_selftest.hubs.server_process import START_STOP_SECONDS, ServerProcess
from veen_selftest.peers.note_verifier import WITNESS_KEY, parse_verifier_key
from veen_selftest.runner.check import Violation

WITNESS_PROGRAM: Final = (sys.executable, "-P", "-m", "veen_hub.witness.main")
LISTENING: Final = "veen-witness listening on "
NAME: Final = "selftest.example/witness"
TIMEOUT: Final = 10.0
"""Seconds after which a witness that does not answer counts as silent."""


class OwnWitness:
    """A witness of the logs whose verifier keys it is given; ``url`` is its submission prefix."""

    def __init__(self, root: Path, log_keys: Iterable[str], timeout: float = START_STOP_SECONDS) -> None:
        root.mkdir(parents=True)
        self._process = ServerProcess("the witness", WITNESS_PROGRAM, root / "witness.log", timeout)
        self._folder = f"--dir={root / 'witness'}"
        made = self._process.run_once(
            f"--init={NAME}", self._folder, *(f"--log={log_key}" for log_key in log_keys)
        )
        self.key = made.strip()
        """The verifier key."""
        self.name, self.public = parse_verifier_key(self.key, WITNESS_KEY)
        self.url = ""

    def start(self) -> None:
        """Start the process; later starts take the same port, which the hubs know."""
        port = urlsplit(self.url).port or 0
        self.url = self._process.start(
            LISTENING, f"--listen=127.0.0.1:{port}", "--log-level=warning", self._folder
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
        address = urlsplit(self.url)
        path = f"{address.path}/{sha256(origin.encode()).hexdigest()}/checkpoint"
        with closing(
            http.client.HTTPConnection(address.hostname or "", address.port, timeout=TIMEOUT)
        ) as link:
            link.request("GET", path)
            answer = link.getresponse()
            body = answer.read()
        if answer.status not in (200, 404):
            raise Violation(f"the witness answers {path} with status {answer.status}")
        return body if answer.status == 200 else None
