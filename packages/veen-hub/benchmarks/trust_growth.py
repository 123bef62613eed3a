"""``trust.growth``: what evidence of a message costs in a large hub log, compared with a small one.

    python packages/veen-hub/benchmarks/trust_growth.py LABELS HEADS    these figures alone

Two hubs run side by side: one with a thousand labels and a thousand heads in its hub log, one with many more.
The client that ships gathers evidence of messages of random labels at both in turn: receipt, proof up to the
label's head, proof from there up to the hub checkpoint, all verified. The figure is a ratio of medians.
``trust.evidence_bytes`` is the size of the largest file of evidence at the large hub.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import uvloop

from veen_core import DEFAULT_PROFILE, H, SigningKey, SigningSeed, hub_log
from veen_core.ciphertext import Binding
from veen_core.ids import ClientId, ClientSeq, HubId, Label, StreamSeq, UnixTime
from veen_core.keys import DhKey, DhSecret
from veen_core.msg import sign_msg
from veen_hub.client import Hub, Identity, connect
from veen_storage import Store, create

HOST = "127.0.0.1"
HUB = SigningKey(SigningSeed(b"\x01" * 32))
WRITER = SigningKey(SigningSeed(b"\x04" * 32))
SEALED = H(b"enc") + (16).to_bytes(4, "big") + (32).to_bytes(4, "big") + H(b"header") + H(b"body")[:16]
BATCH = 512
SMALL = 1_000
SAMPLES = 150
ROUNDS = 3
MAX_GROWTH = 1.5
MAX_EVIDENCE_BYTES = 6 * 1_024

Say = Callable[[str, float, float, bool], bool]
"""Prints one figure with its target; returns whether it was met."""


def label_of(number: int) -> Label:
    return Label(H(b"label" + number.to_bytes(8, "big")))


def fill(root: Path, labels: int, heads: int) -> HubId:
    """Write messages and hub checkpoints until the hub log has so many heads, while no hub runs."""
    create(root, HUB, UnixTime(0))
    with Store(root) as store:
        for seq in range(1, max(1, heads // labels) + 1):
            now = UnixTime(1_700_000_000 + seq)
            for start in range(0, labels, BATCH):
                batch = store.batch(now)
                for number in range(start, min(start + BATCH, labels)):
                    msg = sign_msg(WRITER, _binding(label_of(number), seq), SEALED)
                    batch.add(msg, msg.encode(), msg.leaf_hash)
                store.commit(batch)
            batch = store.batch(now)
            batch.hub_checkpoint(hub_log.origin_of(store.identity.hub_id))
            store.commit(batch)
        return store.identity.hub_id


def _binding(label: Label, seq: int) -> Binding:
    return Binding(
        profile_id=DEFAULT_PROFILE.profile_id,
        label=label,
        client_id=ClientId(WRITER.public),
        client_seq=ClientSeq(seq),
        prev_ack=StreamSeq(0),
        auth_ref=None,
    )


@contextlib.contextmanager
def running(root: Path) -> Iterator[str]:
    """Run a hub and yield its URL."""
    process = subprocess.Popen(  # noqa: S603 - this very hub
        [sys.executable, "-m", "veen_hub.main", f"--data-dir={root}", "--port=0", "--log-level=error"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield f"http://{HOST}:{int(process.stdout.readline().partition(',')[0].rsplit(':', 1)[1])}"
    finally:
        process.terminate()
        process.wait(60)


async def gather(hub: Hub, labels: list[int]) -> tuple[float, int]:
    """Return the median time of gathering evidence, and the size of the largest."""
    seconds, sizes = [], []
    for number in labels:
        started = time.perf_counter()
        evidence = await hub.evidence(label_of(number), 1)
        seconds.append(time.perf_counter() - started)
        sizes.append(len(evidence.encode()))
    return statistics.median(seconds), max(sizes)


async def compare(urls: tuple[str, str], hub_id: HubId, labels: int, place: Path) -> tuple[float, int]:
    """Return the ratio of large to small, the median of ``ROUNDS``, and the size of the largest evidence."""
    identity = Identity(
        signing_key=SigningKey(SigningSeed(b"\x05" * 32)), dh_keys=(DhKey(DhSecret(bytes(32))),)
    )
    ratios, largest = [], 0
    async with (
        connect(urls[0], identity, trust=hub_id, state=place / "large-state") as large,
        connect(urls[1], identity, trust=hub_id, state=place / "small-state") as small,
    ):
        for turn in range(ROUNDS):
            choose = random.Random(turn)  # noqa: S311 - the same labels in every run
            count = min(SAMPLES, labels, SMALL)
            slow, size = await gather(large, choose.sample(range(labels), count))
            fast, _size = await gather(small, choose.sample(range(min(SMALL, labels)), count))
            ratios.append(slow / fast)
            largest = max(largest, size)
    return statistics.median(ratios), largest


def measure(place: Path, labels: int, heads: int, say: Say) -> bool:
    """Print the figures."""
    hub_id = fill(place / "many-heads", labels, heads)
    fill(place / "few-heads", min(SMALL, labels), min(SMALL, labels))
    with running(place / "many-heads") as large, running(place / "few-heads") as small:
        growth, largest = uvloop.run(compare((large, small), hub_id, labels, place))
    ok = say("trust.growth", growth, MAX_GROWTH, growth <= MAX_GROWTH)
    return say("trust.evidence_bytes", largest, MAX_EVIDENCE_BYTES, largest <= MAX_EVIDENCE_BYTES) and ok


def main() -> None:
    def show(name: str, value: float, target: float, ok: bool) -> bool:
        print(name, round(value, 3), f"target {target}", "ok" if ok else "missed")  # noqa: T201
        return ok

    with tempfile.TemporaryDirectory() as place:
        measure(Path(place), int(sys.argv[1]), int(sys.argv[2]), show)


if __name__ == "__main__":
    main()
