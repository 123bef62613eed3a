"""Real kills: a writing process dies at random moments; nothing it acknowledged is lost (H2).

200 rounds of one to three kills each, through which two directories live, side by side if there are two
test processes. They lie in memory: a kill loses nothing of the page cache anyway. ``VEEN_CRASH_ROUNDS``
asks for more, and then they are on a disk, whose syncs take their time; ``VEEN_CRASH_SEED`` asks for others.
"""

from __future__ import annotations

import os
import random
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from veen_core import cbor
from veen_core.checkpoint import Checkpoint
from veen_core.chunk import PrunedEntry
from veen_core.hashing import H
from veen_core.ids import Coid, Label
from veen_core.limits import Limits
from veen_core.receipt import Receipt
from veen_core.tlog.tree_head import parse_signed_head
from veen_storage.store import Store, create

from .oracle import Promises, Seen, check_files, describe_halves, examine, half_visible, walk
from .sample import BORN, HUB_KEY
from .scripted_run import memory_folder

ROUNDS = int(os.environ.get("VEEN_CRASH_ROUNDS", "80"))
SEED = int(os.environ.get("VEEN_CRASH_SEED", "1"))
DIRECTORIES = 2
FULL_EVERY = 100
LIMITS = Limits(max_msg_bytes=2_048, max_body_bytes=1_024, max_chunk_bytes=8_192, max_checkpoint_interval=12)
FRAME = struct.Struct(">cI")
"""As ``crash_child.py`` sends them."""
PATIENCE = 60.0
"""Seconds to wait for a process that should answer at once."""


@dataclass
class Victim:
    """The process that forks writers, and what they told."""

    process: subprocess.Popen[bytes]
    pending: bytearray = field(default_factory=bytearray)
    told: list[tuple[bytes, list]] = field(default_factory=list)

    def ask(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def listen(self, seconds: float) -> bool:
        """Take in what arrives next, if anything does within that time."""
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        if not select.select([fd], [], [], max(0.0, seconds))[0]:
            return False
        data = os.read(fd, 65_536)
        assert data, "the process that forks writers is gone"
        self.pending += data
        while len(self.pending) >= FRAME.size:
            kind, length = FRAME.unpack_from(self.pending)
            if len(self.pending) < FRAME.size + length:
                break
            content = cbor.decode_items(bytes(self.pending[FRAME.size : FRAME.size + length]))
            assert kind != b"E", content[0]
            self.told.append((kind, content))
            del self.pending[: FRAME.size + length]
        return True

    def heard(self, kind: bytes) -> int:
        return sum(1 for said, _content in self.told if said == kind)

    def wait_for(self, kind: bytes, count: int = 1) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.heard(kind) < count:
            assert self.listen(deadline - time.monotonic()), f"no {kind!r} within {PATIENCE} s"

    def live_and_die(self, seed: int, acknowledged: int, lingering: float) -> list[tuple[bytes, list]]:
        """One writer, killed so long after so many receipts; returns everything it told."""
        self.told = []
        self.ask(f"fork {seed}")
        self.wait_for(b"P")
        self.wait_for(b"R", acknowledged)
        deadline = time.monotonic() + lingering
        while (left := deadline - time.monotonic()) > 0:
            self.listen(left)
        os.kill(next(content[0] for kind, content in self.told if kind == b"P"), signal.SIGKILL)
        self.ask("reap")
        self.wait_for(b"X")
        assert next(content for kind, content in self.told if kind == b"X") == [signal.SIGKILL]
        return self.told


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with nullcontext(tmp_path) if "VEEN_CRASH_ROUNDS" in os.environ else memory_folder() as folder:
        create(folder / "hub", HUB_KEY, BORN, limits=LIMITS, zstd_level=1)
        yield folder / "hub"


@pytest.fixture
def victim(root: Path) -> Iterator[Victim]:
    child = Path(__file__).with_name("crash_child.py")
    with subprocess.Popen(
        [sys.executable, str(child), str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield Victim(process)
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


def remember(promises: Promises, told: list[tuple[bytes, list]]) -> None:
    for kind, content in told:
        match kind:
            case b"T":
                promises.attempted.append([Receipt.decode(wire) for wire in content])
            case b"R":
                receipt = Receipt.decode(content[0])
                promises.receipts[receipt.label, receipt.stream_seq] = content[0]
            case b"C":
                checkpoint = Checkpoint.decode(content[0])
                promises.checkpoints[checkpoint.label_curr, checkpoint.upto_seq] = content[0]
            case b"D":
                label, start, end = content
                promises.pruned[Label(label), start] = end
            case b"H" | b"U":
                signed = parse_signed_head(content[0])
                kept = promises.hub_checkpoints if kind == b"H" else promises.published
                before = kept.setdefault(signed.head.size, content[0])
                assert before == content[0], f"two hub checkpoints at size {signed.head.size}"
            case b"A":
                promises.attachments[Coid(H(content[0]))] = content[0]


def check_recent(root: Path, recent: Promises, seen: dict[Label, Seen]) -> None:
    """What was told since the last check, and every entry since then, is there and holds together."""
    with Store(root, background=False) as store:
        walk(store, seen)
        for (label, start), end in recent.pruned.items():
            seen[label].pruned |= set(range(start, end + 1))
            kept = store.read.entries(label, start, end - start + 1)
            assert [entry.receipt for entry in kept] == seen[label].receipts[start - 1 : end]
            assert all(isinstance(entry, PrunedEntry) for entry in kept)
        examine(store, recent, seen)
        assert not half_visible(seen, recent), f"in part:\n{describe_halves(seen, recent)}"


def check_all(root: Path, promises: Promises, seen: dict[Label, Seen]) -> None:
    """From the beginning: the same receipts as ever, and files that ``fsck`` finds nothing wrong with."""
    with Store(root, background=False) as store:
        anew = examine(store, promises)
    assert {label: held.receipts for label, held in anew.items()} == {
        label: held.receipts for label, held in seen.items()
    }
    check_files(root, apart=True)


@pytest.mark.parametrize("directory", range(DIRECTORIES))
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(
    victim: Victim, root: Path, directory: int
) -> None:
    draw = random.Random(DIRECTORIES * SEED + directory)
    promises, seen, lives = Promises(), dict[Label, Seen](), count(10_000 * directory + 1)
    rounds = -(-ROUNDS // DIRECTORIES)
    for number in range(1, rounds + 1):
        recent = Promises()
        for _ in range(draw.choice([1, 1, 2, 3])):
            in_recovery = draw.random() < 0.3
            acknowledged = 0 if in_recovery else draw.randrange(1, 60)
            lingering = draw.uniform(0, 0.03 if in_recovery else 0.01)
            told = victim.live_and_die(next(lives), acknowledged, lingering)
            remember(recent, told)
            remember(promises, told)
        check_recent(root, recent, seen)
        if number % FULL_EVERY == 0 or number == rounds:
            check_all(root, promises, seen)
    assert len(promises.receipts) > 10 * rounds
    assert promises.pruned
    assert promises.attachments
    assert promises.checkpoints
    assert promises.hub_checkpoints
    assert promises.published
