"""Witnesses that tests talk to: real ``veen-witness`` processes, and answers of any witness."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nacl.signing import VerifyKey

from veen_core.keys import SigningSeed
from veen_hub.witness.folder import WitnessFolder

from .independent_log import IndependentLog
from .serving import PATIENCE, Answer, request

NAME = "witness.example/w1"
SEED = SigningSeed(hashlib.sha256(b"the witness of the tests").digest())
SIZE = "text/x.tlog.size"


def make_witness(root: Path, logs: Iterable[IndependentLog], more: str = "") -> str:
    """Make a witness's folder and return its verifier key; ``more`` is added to witness.yaml."""
    key = WitnessFolder(root).create(NAME, SEED, [log.vkey for log in logs]).verifier.text
    with (root / "witness.yaml").open("a") as file:
        file.write(more)
    return key


class Asked:
    """A witness at a port, whoever wrote it."""

    port: int
    vkey: str
    prefix = ""

    def post(self, body: str | bytes, headers: Mapping[str, str] | None = None) -> Answer:
        data = body.encode() if isinstance(body, str) else body
        return request(self.port, "POST", f"{self.prefix}/add-checkpoint", data, headers)

    def get(self, path: str) -> Answer:
        return request(self.port, "GET", self.prefix + path)

    def cosigned(self, log: IndependentLog, old: int, size: int) -> int:
        """Have a checkpoint cosigned, verify the cosignature without VEEN code, and return its time."""
        answer = self.post(log.request(old, size))
        assert answer.status == 200, (answer.status, answer.body)
        return verify_cosignature(self.vkey, answer.body.decode(), log.text(size))

    def size_of(self, log: IndependentLog) -> int:
        """Return the size that the witness knows, as a log asks for it."""
        answer = self.post(log.request(0, len(log.entries)))
        assert (answer.status, answer.headers["content-type"]) == (409, SIZE), answer
        return int(answer.body)


def verify_cosignature(vkey: str, line: str, text: str) -> int:
    """Verify a signature line by C2SP tlog-cosignature and return its time; imports nothing of VEEN."""
    name, key_id, encoded = vkey.split("+", 2)
    kind_and_key = base64.b64decode(encoded)
    assert kind_and_key[0] == 4
    dash, signer, value = line.removesuffix("\n").split(" ")
    data = base64.b64decode(value)
    assert (dash, signer, data[:4].hex()) == ("—", name, key_id)
    time = int.from_bytes(data[4:12])
    VerifyKey(kind_and_key[1:]).verify(f"cosignature/v1\ntime {time}\n{text}".encode(), data[12:])
    return time


class WitnessProcess(Asked):
    """A real ``veen-witness``."""

    def __init__(self, root: Path, *flags: str, port: int = 0) -> None:
        self.root = root
        self.vkey = WitnessFolder(root).load_key().verifier.text
        self.log = root.parent / f"{root.name}.log"
        with self.log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "veen_hub.witness.main",
                    f"--dir={root}",
                    f"--listen=127.0.0.1:{port}",
                    *flags,
                ],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("veen-witness listening on "), (line, self.log.read_text()[-2_000:])
        self.url = line.removeprefix("veen-witness listening on ").strip()
        address = self.url.partition("//")[2]
        self.port = int(address.partition("/")[0].rpartition(":")[2])
        self.prefix = address.removeprefix(address.partition("/")[0])

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it logged; a line that it is just writing is left out."""
        return [json.loads(line) for line in self.log.read_text().split("\n")[:-1]]

    @property
    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def metric(self, line_start: str) -> float:
        for line in self.get("/metrics").body.decode().splitlines():
            if line.startswith(f"{line_start} "):
                return float(line.rpartition(" ")[2])
        return 0.0

    def logs(self) -> dict[str, dict[str, Any]]:
        """Return what ``/logs`` says, by origin."""
        return {log["origin"]: log for log in self.get("/logs").json["logs"]}

    def signal(self, number: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def stop(self) -> int:
        return self.signal(signal.SIGTERM)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
