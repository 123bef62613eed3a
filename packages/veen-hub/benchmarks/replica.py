"""``replica.lag_ms``: how long after its receipt a message is durable and readable at the replica (P9).

    python packages/veen-hub/benchmarks/replica.py

One client sends ``RATE`` messages a second to a primary process for ``SECONDS``, ten a request, at fixed
times. A follower reads the label at the replica process. The lag of a message is the time from the arrival of
its receipt at the client to its arrival at the follower; it includes the follower's own delivery.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import uvloop

from veen_core import H, SigningKey, SigningSeed, cbor, stream
from veen_core.ids import Epoch, UnixTime
from veen_core.profile import DEFAULT_PROFILE
from veen_hub.client.wire.framing import Framer
from veen_hub.load import MessageSigner, open_raw
from veen_hub.load.raw import CBOR_SEQ
from veen_storage import create

RATE = int(os.environ.get("VEEN_REPLICA_RATE", "1000"))
SECONDS = float(os.environ.get("VEEN_REPLICA_SECONDS", "20"))
TOGETHER = 10
BODY_BYTES = 256
LIMIT_MS = 50.0

Say = Callable[[str, float, float, bool], bool]
"""Prints one figure with its target; returns whether it was met."""


@contextlib.contextmanager
def hub_process(root: Path, *flags: str) -> Iterator[str]:
    """Run a hub and yield its address."""
    command = [sys.executable, "-m", "veen_hub.main", f"--data-dir={root}", "--port=0", "--log-level=error"]
    with subprocess.Popen(  # noqa: S603 - our own program
        [*command, *flags], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield line.removeprefix("veen-hub listening on ").split(",")[0].strip()
        finally:
            process.terminate()


async def _send(url: str, bodies: list[bytes], sent: dict[int, float]) -> None:
    """Send the messages at fixed times, and note when each receipt arrived."""
    where = urlsplit(url)
    assert where.hostname is not None
    assert where.port is not None
    async with open_raw(where.hostname, where.port) as connection:
        begin = time.perf_counter()
        for at in range(0, len(bodies), TOGETHER):
            await asyncio.sleep(max(0.0, begin + at / RATE - time.perf_counter()))
            answer = await connection.post("/v1/submit", b"".join(bodies[at : at + TOGETHER]), CBOR_SEQ)
            now = time.perf_counter()
            assert b"E." not in answer[:16], answer[:100]
            sent.update(dict.fromkeys(range(at + 1, at + 1 + TOGETHER), now))


async def _follow(url: str, label: bytes, count: int, seen: dict[int, float]) -> None:
    framer = Framer(1 << 20)
    async with aiohttp.ClientSession() as session, session.get(f"{url}/v1/stream/{label.hex()}") as answer:
        async for part in answer.content.iter_any():
            now = time.perf_counter()
            for item in framer.feed(part):
                seen[cbor.decode(item)[1]] = now
            if len(seen) >= count:
                return


async def lags(primary: str, replica: str, label: bytes, bodies: list[bytes]) -> list[float]:
    """Return the lag of each message in milliseconds, ascending."""
    sent: dict[int, float] = {}
    seen: dict[int, float] = {}
    async with asyncio.timeout(SECONDS * 3 + 30):
        await asyncio.gather(_send(primary, bodies, sent), _follow(replica, label, len(bodies), seen))
    return sorted(max(0.0, seen[seq] - sent[seq]) * 1_000 for seq in sent)


def measure(say: Say) -> bool:
    """Measure the lag and print its 99th percentile; return whether the target was met."""
    key = SigningKey(SigningSeed(H(b"hub")))
    with tempfile.TemporaryDirectory() as folder:
        hub_id = create(Path(folder) / "primary", key, UnixTime(int(time.time()))).hub_id
        label = stream.label(stream.routing_key(hub_id), stream.stream_id("orders"), Epoch(0))
        signer = MessageSigner(SigningKey(SigningSeed(H(b"c"))), DEFAULT_PROFILE, None, b"x" * BODY_BYTES)
        bodies = signer.bodies(label, round(RATE * SECONDS) // TOGETHER * TOGETHER)
        with (
            hub_process(Path(folder) / "primary", "--open") as primary,
            hub_process(Path(folder) / "replica", f"--replica-of={primary}") as replica,
        ):
            found = uvloop.run(lags(primary, replica, label, bodies))
    p50, p99 = found[len(found) // 2], found[len(found) * 99 // 100]
    details = f"replica: {len(found)} messages at {RATE}/s, lag p50 {p50:.1f} ms, p99 {p99:.1f} ms"
    print(details, file=sys.stderr)  # noqa: T201
    return say("replica.lag_ms", p99, LIMIT_MS, p99 <= LIMIT_MS)


def _print(name: str, value: float, limit: float, met: bool) -> bool:
    print(f"{name} {value:.1f} (target ≤ {limit:g}) {'ok' if met else 'MISSED'}")  # noqa: T201
    return met


if __name__ == "__main__":
    sys.exit(0 if measure(_print) else 1)
