"""The rates of the client that ships, against what its cryptography costs in the same run.

- ``client.send`` sends one message after the other. Its ideal is the cryptography of both sides and one sync
  of each side's disk.
- ``client.send_64`` (64 streams, one message each at a time), ``client.send_many`` and ``client.read`` are
  measured against one core that does nothing but the client's cryptography.
- ``client.loop_block_ms`` is measured after ``gc.freeze()``, as in ``veen`` and ``veen-hub``: a full garbage
  collection over all imported modules stops a process for 15 to 30 ms.
- ``client.rss_mb`` is the peak memory of a process that only sends many messages and reads them. This file is
  the program of that process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from veen_core import DEFAULT_PROFILE, H, HubId, SigningKey, SigningSeed, mint
from veen_core.ciphertext import Binding
from veen_core.hub_identity import HubIdentity
from veen_core.ids import ClientSeq, Label, StreamSeq
from veen_core.keys import DhSecret, verify
from veen_core.msg import SealedMsg, seal_msg, verify_signature
from veen_core.payload import PayloadHeader
from veen_core.stream import stream_id
from veen_hub.client import TEXT, Hub, Identity, connect
from veen_hub.load import BODY, ShippedClient

STREAMS = 64
TOKEN_SECONDS = 10_000_000


@dataclass(frozen=True, slots=True)
class Floors:
    """Seconds of one core per message."""

    send: float
    """Seal, sign, and verify the receipt."""
    read: float
    """Open, and verify message and receipt."""


def floors(count: int = 300) -> Floors:
    """Measure the client's cryptography alone."""
    alice = Identity.generate()
    header = PayloadHeader(schema=TEXT)

    def seal(number: int) -> SealedMsg:
        binding = Binding(
            profile_id=DEFAULT_PROFILE.profile_id,
            label=Label(H(b"label")),
            client_id=alice.client_id,
            client_seq=ClientSeq(number),
            prev_ack=StreamSeq(0),
            auth_ref=None,
        )
        return seal_msg(
            alice.signing_key,
            alice.recipient,
            binding,
            header,
            BODY.encode(),
            profile=DEFAULT_PROFILE,
            ephemeral=DhSecret(H(number.to_bytes(4, "big"))),
        )

    sealed = [seal(number) for number in range(1, count + 1)]
    digest = H(b"receipt")
    signature = alice.signing_key.sign(digest)

    def open_(number: int) -> None:
        one = sealed[number - 1]
        verify_signature(one.msg, one.wire)
        verify(alice.signing_key.public, digest, signature, "receipt")
        one.msg.open(alice.dh_keys[0])

    def send(number: int) -> None:
        seal(number)
        verify(alice.signing_key.public, digest, signature, "receipt")

    return Floors(_seconds(send, count), _seconds(open_, count))


def _seconds(work: Callable[[int], object], count: int) -> float:
    started = time.perf_counter()
    for number in range(1, count + 1):
        work(number)
    return (time.perf_counter() - started) / count


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages per second of the client that ships, and the longest block of its event loop in ms."""

    send: float
    send_64: float
    send_many: float
    read: float
    loop_block_ms: float
    follow_p99_ms: float


@contextlib.asynccontextmanager
async def connected(port: int, trust: HubId, admin: SigningKey, folder: Path) -> AsyncIterator[Hub]:
    alice = Identity.generate()
    numbered = (f"{kind} {number}" for kind in ("stream", "memory") for number in range(STREAMS))
    names = ["one", "many", "follow", *numbered]
    token = mint(admin, alice.client_id, map(stream_id, names), TOKEN_SECONDS)
    async with connect(f"http://127.0.0.1:{port}", alice, trust=trust, state=folder) as hub:
        await hub.authorize(token)
        yield hub


async def rates(port: int, identity: HubIdentity, admin: SigningKey, place: Path, count: int) -> Rates:
    """Measure the client; ``count`` messages are sent in one stream, a tenth of them one by one."""
    gc.collect()
    gc.freeze()
    with TemporaryDirectory(dir=place) as folder:
        async with connected(port, identity.hub_id, admin, Path(folder)) as hub:
            client = ShippedClient(hub)
            one = count // 10 / await client.one_by_one("one", count // 10)
            streams = [f"stream {number}" for number in range(STREAMS)]
            await client.many_streams(streams, 1)
            each = max(1, count // 2 // STREAMS)
            together = each * STREAMS / await client.many_streams(streams, each)
            async with _longest_block() as block:
                many = count / await client.batches("many", count)
                read = count / await client.reading("many", count)
            delay = await _follow_p99(hub, max(100, count // 10))
    return Rates(one, together, many, read, block.milliseconds, delay)


async def _follow_p99(hub: Hub, count: int) -> float:
    """Return the 99th percentile, in ms, from ``send`` to the opened message at a follower, at 200/s."""
    stream, sent, delays = hub.stream("follow"), [], []

    async def follow() -> None:
        async for _message in stream.follow():
            delays.append(time.perf_counter() - sent[len(delays)])
            if len(delays) == count:
                return

    follower = asyncio.create_task(follow())
    await asyncio.sleep(0.3)
    began = time.perf_counter()
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number / 200 - time.perf_counter()))
        sent.append(time.perf_counter())
        await stream.send(BODY)
    await asyncio.wait_for(follower, 30)
    return sorted(delays)[int(count * 0.99)] * 1_000


@dataclass(slots=True)
class Block:
    """The longest time that the event loop was busy without a pause."""

    milliseconds: float = 0.0


@contextlib.asynccontextmanager
async def _longest_block() -> AsyncIterator[Block]:
    block = Block()

    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0)
            block.milliseconds = max(block.milliseconds, (time.perf_counter() - before) * 1_000)
            await asyncio.sleep(0.001)

    watcher = asyncio.create_task(watch())
    try:
        yield block
    finally:
        watcher.cancel()


# --- memory

PER_STREAM = 50_000
"""Messages of one stream: fewer than a client_id may send on a label (KEX1+ 4.1)."""


def peak_rss_mb(port: int, identity: HubIdentity, admin: SigningKey, place: Path, count: int) -> float:
    """Return the peak resident memory of a process that sends ``count`` messages and reads them."""
    arguments = [str(port), identity.hub_id.hex(), admin.seed.hex(), str(place), str(count)]
    ran = subprocess.run(  # noqa: S603 - this very file
        [sys.executable, __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return float(ran.stdout)


async def _send_and_read(port: int, trust: HubId, admin: SigningKey, place: Path, count: int) -> None:
    with TemporaryDirectory(dir=place) as folder:
        async with connected(port, trust, admin, Path(folder)) as hub:
            client = ShippedClient(hub)
            for number, sent in enumerate(range(0, count, PER_STREAM)):
                some = min(PER_STREAM, count - sent)
                await client.batches(f"memory {number}", some)
                await client.reading(f"memory {number}", some)


def main() -> None:
    parser = argparse.ArgumentParser(description="Send and read messages; print the peak memory in MB.")
    parser.add_argument("port", type=int)
    parser.add_argument("trust", type=HubId.from_hex)
    parser.add_argument("admin", type=SigningSeed.from_hex)
    parser.add_argument("place", type=Path)
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    uvloop.run(
        _send_and_read(options.port, options.trust, SigningKey(options.admin), options.place, options.count)
    )
    # VmHWM and not ru_maxrss, which a process inherits from its parent.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    print(int(peak.split()[1]) / 1_024)  # noqa: T201


if __name__ == "__main__":
    main()
