"""Figures of the hub log and its witnesses; ``run.py`` calls ``measure``.

    python packages/veen-hub/benchmarks/trust.py    these figures alone

- ``trust.witness_rate`` divides the add-checkpoint requests per second of one witness process by those of a
  thread that does nothing but one verification, one signature, one small write and ``fdatasync`` per request,
  on the same disk. Many logs send at once, one request at a time each, through the raw generator of
  ``veen_hub.load``; so the witness may serve several with one sync.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from veen_core import H, SigningKey, SigningSeed
from veen_core.ids import UnixTime
from veen_core.tlog import tree
from veen_core.tlog.add_checkpoint import PATH, AddCheckpoint
from veen_core.tlog.note import ED25519, Note, NoteKey, cosign, sign_note
from veen_core.tlog.tree_head import SignedHead, TreeHead
from veen_hub.load import open_raw
from veen_hub.witness.folder import WitnessFolder

HOST = "127.0.0.1"
LOGS = 128
GROWTH = 5
"""Leaves that a log grows by from one checkpoint to the next."""

Say = Callable[[str, float, float, bool], bool]
"""Prints one figure with its target; returns whether it was met."""


@dataclass
class Log:
    """A log that grows by ``GROWTH`` leaves per checkpoint."""

    number: int
    tree: tree.Tree = field(default_factory=tree.Tree)
    nodes: dict[tuple[int, int], bytes] = field(default_factory=dict)

    @property
    def key(self) -> SigningKey:
        return SigningKey(SigningSeed(H(b"log" + self.number.to_bytes(4, "big"))))

    @property
    def vkey(self) -> NoteKey:
        return NoteKey(f"log.example/{self.number}", ED25519, self.key.public)

    def requests(self, count: int) -> list[bytes]:
        """Grow, and return the requests for the next ``count`` checkpoints."""
        key, name = self.key, self.vkey.name
        made: list[bytes] = []
        for _ in range(count):
            old = self.tree.size
            for leaf in range(old, old + GROWTH):
                for node in self.tree.append(tree.leaf_hash(leaf.to_bytes(8, "big"))):
                    self.nodes[node.height, node.index] = node.hash
            head = TreeHead(name, self.tree.size, self.tree.root)
            note = Note(head.text, (sign_note(key, name, head.text),))
            proof = tree.prove_consistency(lambda *at: self.nodes[at], old, head.size)
            made.append(AddCheckpoint(old, tuple(proof), SignedHead(head, note)).encode())
        return made


@contextlib.contextmanager
def run_witness(place: Path, name: str, seed: SigningSeed, log_vkeys: list[str]) -> Iterator[tuple[str, int]]:
    """Run a witness process that watches the logs, and yield its verifier key and its port."""
    key = WitnessFolder(place).create(name, seed, log_vkeys)
    process = subprocess.Popen(  # noqa: S603 - this very witness
        [
            *(sys.executable, "-m", "veen_hub.witness.main", f"--dir={place}"),
            *(f"--listen={HOST}:0", "--log-level=warning"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield key.verifier.text, int(process.stdout.readline().rsplit(":", 1)[1])
    finally:
        process.terminate()
        process.wait(30)


def floor_seconds(place: Path, log: Log, count: int = 200) -> float:
    """Return the mean time of one verification, one cosignature, one small write and ``fdatasync``."""
    head = TreeHead(log.vkey.name, 1, tree.EMPTY_ROOT)
    signature = log.key.sign(head.text.encode())
    key, vkey = SigningKey(SigningSeed(b"\x03" * 32)), log.vkey
    fd = os.open(place / "floor", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    started = time.perf_counter()
    for at in range(count):
        assert vkey.is_valid(head.text, signature)
        cosign(key, "witness.example/bench", head.text, UnixTime(at))
        os.pwrite(fd, bytes(400), at * 400)
        os.fdatasync(fd)
    seconds = time.perf_counter() - started
    os.close(fd)
    return seconds / count


async def send(port: int, prepared: list[list[bytes]]) -> float:
    """Send each log's requests one after the other, all logs at once; return requests per second."""

    async def one(bodies: list[bytes]) -> None:
        async with open_raw(HOST, port) as connection:
            for body in bodies:
                await connection.post(PATH, body, "text/plain")

    started = time.perf_counter()
    await asyncio.gather(*map(one, prepared))
    return sum(map(len, prepared)) / (time.perf_counter() - started)


def witness_rate(place: Path, count: int, rounds: int) -> tuple[float, float]:
    """Return the requests per second of one witness, and their ratio to the floor, medians of all rounds."""
    logs = [Log(number) for number in range(LOGS)]
    rates, ratios = [], []
    vkeys = [log.vkey.text for log in logs]
    seed = SigningSeed(b"\x03" * 32)
    with run_witness(place / "witness", "witness.example/bench", seed, vkeys) as (_key, port):
        before = floor_seconds(place, logs[0])
        for _ in range(rounds):
            prepared = [log.requests(max(1, count // rounds // LOGS)) for log in logs]
            rates.append(uvloop.run(send(port, prepared)))
            after = floor_seconds(place, logs[0])
            ratios.append(rates[-1] * (before + after) / 2)
            before = after
    return statistics.median(rates), statistics.median(ratios)


def measure(place: Path, count: int, rounds: int, say: Say) -> bool:
    """Print all figures of this module; ``count`` requests to a witness are shared between the rounds."""
    _rate, ratio = witness_rate(place, count, rounds)
    return say("trust.witness_rate", ratio, 0.4, ratio >= 0.4)


def _print(name: str, value: float, target: float, ok: bool) -> bool:
    print(json.dumps({"name": name, "value": round(value, 3), "target": target, "ok": ok}))  # noqa: T201
    return ok


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(0 if measure(Path(folder), 20_000, 5, _print) else 1)
