"""A hub to be killed: forks a writer on demand, which acknowledges over a pipe until it dies.

Started by ``test_crash`` as ``python crash_child.py <data directory>``; a number after that is how many
seconds a writer rests after each batch, so that whoever reads beside it can keep up. It imports everything
once and stays single-threaded; each line ``fork <seed>`` on stdin forks a writer, each ``reap`` waits for it
to be dead. What writers tell goes to stdout as frames (kind, length, bytes), each one atomic write:

    P  pid of a writer            T  receipts of a batch that is about to be committed
    R  a receipt, handed out      C  a checkpoint, handed out
    D  a pruned chunk             A  an attachment, durable
    H  a hub checkpoint           U  a published hub checkpoint
    E  a writer's own failure     X  the writer is dead; nothing of it follows
"""

from __future__ import annotations

import os
import random
import signal
import struct
import sys
import time
import traceback
from pathlib import Path

from sample import BORN, CONTROL, ORIGIN, add, label, signing_key, token

from veen_core import cbor
from veen_core.cap import Rate
from veen_core.hashing import H
from veen_core.ids import ClientId, Coid, UnixTime
from veen_storage.chunks.retention import PruneRule, due
from veen_storage.commit import journal
from veen_storage.commit.writer import Batch
from veen_storage.store import Store

FRAME = struct.Struct(">cI")
LABELS = [label(name) for name in ("orders", "invoices", "news", "chat", "audit")]
PEOPLE = ["alice", "bob", "carol"]
SEGMENT_BYTES = 20_000
OUT = 1


def tell(kind: bytes, *parts: object) -> None:
    data = cbor.encode(list(parts))
    frame = FRAME.pack(kind, len(data)) + data
    assert len(frame) <= 4_096, "a pipe takes no more at once"
    assert os.write(OUT, frame) == len(frame)


class Writer:
    """Writes what its seed says, for ever."""

    def __init__(self, root: Path, seed: int, rest: float) -> None:
        self._draw = random.Random(seed)
        self._now = BORN + seed
        self._store = Store(root)
        self._rest = rest

    def run(self) -> None:
        while True:
            time.sleep(self._rest)
            self._now += self._draw.randrange(2)
            if (luck := self._draw.random()) < 0.04:
                self._attach()
            elif luck < 0.10:
                self._prune()
            elif luck < 0.15:
                self._store.settle()
            else:
                self._write()

    def _write(self) -> None:
        batch = self._store.batch(UnixTime(self._now))
        for _ in range(self._draw.randint(1, 7)):
            body = self._draw.randbytes(self._draw.randrange(500)).ljust(self._draw.randrange(600), b"\x00")
            add(batch, self._draw.choice(LABELS), self._draw.choice(PEOPLE), body)
        if self._draw.random() < 0.1:
            self._authorize(batch)
        checkpoint = batch.checkpoint(batch.receipts[0].label) if self._draw.random() < 0.2 else None
        signed = batch.hub_checkpoint(ORIGIN) if self._draw.random() < 0.3 else None
        self._commit(batch)
        if checkpoint is not None:
            tell(b"C", checkpoint.encode())
        if signed is not None:
            tell(b"H", signed.encode())
            if self._draw.random() < 0.3:
                self._store.publish(signed)
                tell(b"U", signed.encode())

    def _authorize(self, batch: Batch) -> None:
        given = token(
            self._draw.choice(PEOPLE), ttl=self._draw.randrange(1, 2**40), rate=Rate(per_sec=1, burst=5)
        )
        batch.authorize(given, given.encode(), CONTROL)
        add(batch, LABELS[0], "dora", None, given.auth_ref)

    def _commit(self, batch: Batch) -> None:
        tell(b"T", *(receipt.encode() for receipt in batch.receipts))
        self._store.commit(batch)
        for receipt in batch.receipts:
            tell(b"R", receipt.encode())

    def _prune(self) -> None:
        chosen = self._draw.choice(LABELS)
        decisions = due(self._store.index, chosen, PruneRule(max_bytes=40_000), UnixTime(self._now))[:2]
        batch = self._store.batch(UnixTime(self._now))
        for decision in decisions:
            batch.prune(decision)
        self._store.commit(batch)
        for decision in decisions:
            tell(b"D", bytes(decision.label), decision.start_seq, decision.end_seq)
        self._store.settle()  # else the same chunks would be due again

    def _attach(self) -> None:
        content = self._draw.randbytes(self._draw.randrange(1, 2_000))
        self._store.attachments.put(Coid(H(content)), [content[:700], content[700:]])
        tell(b"A", content)


def writer(root: Path, seed: int, rest: float) -> None:
    """Never returns."""
    try:
        Writer(root, seed, rest).run()
    except BaseException:  # noqa: BLE001  # whatever it is, the test must hear of it
        tell(b"E", traceback.format_exc()[-3_000:])
    os._exit(1)


def main() -> None:
    root, rest = Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    journal.SEGMENT_BYTES = SEGMENT_BYTES  # type: ignore[misc]  # so that segments come and go
    signing_key("warm"), ClientId(signing_key("dora").public)
    pid = 0
    for line in sys.stdin:
        match line.split():
            case ["fork", seed]:
                pid = os.fork()
                if pid == 0:
                    writer(root, int(seed), rest)
                tell(b"P", pid)
            case ["reap"]:
                _pid, status = os.waitpid(pid, 0)
                tell(b"X", os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status))
            case other:
                sys.exit(f"what is {other}?")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main()
