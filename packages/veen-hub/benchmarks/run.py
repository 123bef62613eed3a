"""Measure the hub against what cryptography and the disk cost in the same run; one JSON line per figure.

    python packages/veen-hub/benchmarks/run.py            10^6 messages, 10^5 labels; half an hour
    python packages/veen-hub/benchmarks/run.py --quick    a tenth of that; about a minute
    python packages/veen-hub/benchmarks/run.py --only client.send    one figure, with those measured together

The hub is a process of its own, on loopback, with gating on and real files; this process makes the load.

- The crypto floor is one thread that does nothing but one Ed25519 verification and one signature per message,
  alone on the machine. Figures ending in ``_shared`` use the same thread while the other cores are busy.
- ``hub.plain`` divides the rate of an ordinary aiohttp client by the rate of the raw generator.
- ``verify.batch`` divides the rate of core's batch verifier by that of two threads that only call PyNaCl.
- ``client.*`` are figures of the client that ships; see ``client_load``.
- ``trust.*`` are figures of the hub log and its witnesses; see ``trust`` and ``trust_growth``;
  ``hub.trust_overhead`` and ``trust.cosign_p99_ms`` are in ``trust_overhead``.
- ``hub.p99_ms``, ``hub.overload_p99_ms`` and ``hub.fairness`` are figures of a hub near its limit and beyond;
  see ``overload``. ``hub.overload_shards`` names the same group with two shards.
- ``hub.followers`` and ``hub.catch_up`` are figures of many followers and of readers beside writers; see
  ``followers``.
- ``hub.shards`` and ``hub.p50_shards`` compare a hub with two shards with one that has one; see ``shards``.
- Three lines with ``client`` instead of ``name`` are messages per second of the client that ships, of a plain
  HTTP client and of the raw generator; see ``veen_hub.load``.
- ``hub.growth7`` is measured only if ``--only`` names it; see ``long_history``.
- ``hub.p50_hot`` uses crypto and disk in a busy loop; a message that comes alone meets colder caches.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import client_load
import followers
import history
import long_history
import overload
import shards
import trust
import trust_growth
import trust_overhead
import uvloop
from nacl.bindings import crypto_sign_open

from veen_core import DEFAULT_PROFILE, H, SigningKey, SigningSeed, mint
from veen_core.api import StreamRequest, wrap_submit
from veen_core.cap import CapToken
from veen_core.ciphertext import Binding
from veen_core.hub_identity import HubIdentity
from veen_core.ids import (
    AuthRef,
    ClientId,
    ClientSeq,
    Epoch,
    Label,
    Signature,
    StreamId,
    StreamSeq,
    UnixTime,
)
from veen_core.keys import refused, verify
from veen_core.msg import sign_msg
from veen_core.signatures import SignatureClaim, verify_all
from veen_core.status import Status
from veen_core.stream import label, routing_key, stream_id
from veen_hub.load import (
    LoadSizes,
    LoadTarget,
    RawConnection,
    measure_clients,
    open_plain,
    open_raw,
    request_of,
)
from veen_storage import create
from veen_storage.shards.reshard import reshard

HOST = "127.0.0.1"
HUB = SigningKey(SigningSeed(b"\x01" * 32))
ADMIN = SigningKey(SigningSeed(b"\x02" * 32))
ROUNDS = 5
SEALED = (
    H(b"enc")
    + (16).to_bytes(4, "big")
    + (984).to_bytes(4, "big")
    + b"".join(H(bytes([n])) for n in range(32))[:1_000]
)


def bench_label(root: Path) -> Label:
    """Return the label of the stream that most figures write to."""
    return label(routing_key(identity_of(root).hub_id), stream_id("bench"), Epoch(0))


def writer(number: int) -> SigningKey:
    return SigningKey(SigningSeed(H(b"writer" + number.to_bytes(4, "big"))))


@dataclass(frozen=True)
class Sizes:
    """Sizes of one run."""

    single: int
    batch: int
    alone: int
    history: int
    labels: int
    follow_sec: int
    long_history: int
    """Messages in the long label of ``hub.growth7``; a thousandth in the short one, but at least 200."""
    client: int
    """Messages that the client sends in one stream."""
    client_memory: int
    """Messages that a client sends and reads while its memory is measured."""
    clients: LoadSizes
    """Messages of the three clients that are compared."""
    witness: int
    """Requests to a witness."""
    heads: int
    """Heads in a large hub log, ten of each label."""
    overload: overload.OverloadSizes
    followers: int
    """Followers of one label."""
    floor_sec: float = 0.5
    """How long the crypto floor is measured before and after each round."""
    rounds: int = ROUNDS
    """Rounds of which a figure is the median; the messages are shared between them."""


FULL = Sizes(
    single=40_000,
    batch=60_000,
    alone=2_000,
    history=1_000_000,
    labels=100_000,
    long_history=10_000_000,
    follow_sec=10,
    client=20_000,
    client_memory=1_000_000,
    clients=LoadSizes(one_by_one=300, per_sender=8, batches=10_240),
    witness=32_000,
    heads=1_000_000,
    overload=overload.OverloadSizes(reach=40_000, seconds=20.0, lanes=10_240),
    followers=5_000,
)
TINY = Sizes(
    single=256,
    batch=1_024,
    alone=10,
    history=1_200,
    labels=40,
    long_history=1_200,
    follow_sec=1,
    client=128,
    client_memory=128,
    clients=LoadSizes(one_by_one=2, per_sender=1, batches=32, senders=16, rounds=1),
    witness=128,
    heads=200,
    overload=overload.OverloadSizes(reach=512, seconds=0.3, lanes=384),
    followers=20,
    floor_sec=0.02,
    rounds=1,
)
QUICK = Sizes(
    single=25_600,  # 20 messages per connection and round: connecting must not count for much
    batch=26_000,
    alone=400,
    history=100_000,
    labels=10_000,
    long_history=1_000_000,
    follow_sec=4,
    client=4_000,
    client_memory=10_000,
    clients=LoadSizes(one_by_one=40, per_sender=4, batches=2_048),
    witness=9_600,
    heads=100_000,
    overload=overload.OverloadSizes(reach=10_240, seconds=5.0, lanes=10_240),
    followers=1_000,
)


# --- messages


def signed(key: SigningKey, where: Label, seq: int, auth_ref: AuthRef) -> bytes:
    binding = Binding(
        profile_id=DEFAULT_PROFILE.profile_id,
        label=where,
        client_id=ClientId(key.public),
        client_seq=ClientSeq(seq),
        prev_ack=StreamSeq(0),
        auth_ref=auth_ref,
    )
    return wrap_submit(sign_msg(key, binding, SEALED).encode())


def identity_of(root: Path) -> HubIdentity:
    return HubIdentity.decode((root / "hub-identity.cbor").read_bytes())


# --- a hub, and raw HTTP to it


@dataclass
class Running:
    """A hub process, and what its clients need to know."""

    process: subprocess.Popen[str]
    port: int
    where: Label
    auth: dict[int, AuthRef]

    @property
    def pids(self) -> list[int]:
        """The hub and its helper processes."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
        return [self.process.pid, *children]

    @property
    def rss_mb(self) -> float:
        """Resident memory of the hub and its helper processes."""
        return sum(map(_rss_mb, self.pids))


def _rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1_024


@contextlib.contextmanager
def running(root: Path, writers: int, config: Path | None = None) -> Iterator[Running]:
    stream: StreamId = stream_id("bench")
    identity = identity_of(root)
    where = label(routing_key(identity.hub_id), stream, Epoch(0))
    process = subprocess.Popen(  # noqa: S603 - this very hub
        [
            sys.executable,
            "-m",
            "veen_hub.main",
            "--data-dir",
            str(root),
            "--port",
            "0",
            "--log-level",
            "error",
            *([f"--config={config}"] if config is not None else []),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().partition(",")[0].rsplit(":", 1)[1])
        _wait_until_signing(port)
        tokens = {n: mint(ADMIN, ClientId(writer(n).public), [stream], 10_000_000) for n in range(writers)}
        asyncio.run(_authorize(port, list(tokens.values())))
        yield Running(process, port, where, {n: token.auth_ref for n, token in tokens.items()})
    finally:
        process.terminate()
        process.wait(30)


def _wait_until_signing(port: int) -> None:
    """Wait until the hub's memories have answered, if it has any."""
    while True:
        with contextlib.closing(http.client.HTTPConnection(HOST, port)) as connection:
            connection.request("GET", "/v1/status")
            if Status.decode(connection.getresponse().read()).not_signing is None:
                return
        time.sleep(0.05)


async def _authorize(port: int, tokens: list[CapToken]) -> None:
    async with open_raw(HOST, port) as connection:
        for token in tokens:
            await connection.post("/tooling/authorize", token.encode())


async def live(port: int, path: str) -> AsyncIterator[float]:
    """Yield the time at which each item of a live stream arrived."""
    reader, sender = await asyncio.open_connection(HOST, port, limit=2**24)
    try:
        sender.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        while True:
            size = int((await reader.readuntil(b"\r\n"))[:-2], 16)
            data = await reader.readexactly(size + 2)
            for _ in range(data.count(wrapped_marker())):
                yield time.perf_counter()
    finally:
        sender.close()


def wrapped_marker() -> bytes:
    """Return bytes that occur once in every item: the profile id that follows a MSG's ver."""
    return b"\x8a\x01\x58\x20" + DEFAULT_PROFILE.profile_id


# --- the yardsticks


def crypto_floor(seconds: float) -> float:
    """Return the messages per second that one thread can verify and sign."""
    messages = [(digest, HUB.sign(digest)) for digest in (H(n.to_bytes(2, "big")) for n in range(400))]
    began, count = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - began) < seconds:
        for digest, signature in messages:
            verify(HUB.public, digest, signature, "")
            HUB.sign(digest)
        count += len(messages)
    return count / elapsed


def batch_ratio(count: int) -> float:
    """Return the rate of core's batch verifier on two threads, divided by that of two bare PyNaCl threads."""
    digests = [H(number.to_bytes(4, "big")) for number in range(count)]
    signed = [(HUB.sign(digest), digest) for digest in digests]
    claims = [
        SignatureClaim((HUB.public,), digest, signature, partial(refused, HUB.public, ""))
        for signature, digest in signed
    ]

    def bare(part: list[tuple[Signature, bytes]]) -> None:
        for signature, digest in part:
            crypto_sign_open(signature + digest, HUB.public)

    def two_threads() -> None:
        threads = [threading.Thread(target=bare, args=(signed[at::2],)) for at in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    pairs = [(_timed(two_threads), _timed(lambda: verify_all(claims, threads=2))) for _ in range(ROUNDS)]
    return statistics.median(alone / batched for alone, batched in pairs)


def shared_floor(seconds: float) -> float:
    """Return the crypto floor while every other core does the same work, as when a hub is busy.

    If two cores are hardware threads of one, both together hardly do more than one alone.
    """
    here = Path(__file__)
    spin = (
        f"import runpy, sys; sys.path.insert(0, {str(here.parent)!r})\n"
        f"bench = runpy.run_path({str(here)!r})\nprint(flush=True)\nwhile True: bench['crypto_floor'](1)"
    )
    others = [
        subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE)  # noqa: S603 - this very file
        for _ in range(len(os.sched_getaffinity(0)) - 1)
    ]
    try:
        for other in others:
            assert other.stdout is not None
            other.stdout.readline()  # printed after its imports
        return crypto_floor(seconds)
    finally:
        for other in others:
            other.kill()
            other.communicate()


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def lone_seconds(place: Path) -> float:
    """Return the median time of one verification, one signature, one small write and ``fdatasync``.

    A pause precedes each, as between the messages of one client, so that caches are as cold as the hub's.
    """
    fd = os.open(place / "lone", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    messages = [(digest, HUB.sign(digest)) for digest in (H(bytes([n])) for n in range(200))]

    def work(at: int, digest: bytes, signature: Signature) -> None:
        verify(HUB.public, digest, signature, "")
        HUB.sign(digest)
        os.pwrite(fd, bytes(1_500), at * 1_500)
        os.fdatasync(fd)

    times = []
    for at, message in enumerate(messages):
        time.sleep(0.001)
        times.append(_timed(partial(work, at, *message)))
    os.close(fd)
    return statistics.median(times)


def sync_seconds(place: Path) -> float:
    """Return the median time of one small write and ``fdatasync``; the file grows as a journal does."""
    fd = os.open(place / "sync", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    times = []
    for at in range(200):
        os.pwrite(fd, bytes(1_500), at * 1_500)
        times.append(_timed(lambda: os.fdatasync(fd)))
    os.close(fd)
    return statistics.median(times)


# --- the figures


@dataclass(frozen=True)
class Load:
    """Writers, each with its own connection, that send ``size`` messages per request."""

    first: int
    lanes: int
    size: int

    def sent(self, count: int) -> int:
        """Return the number of messages in one round of about ``count``."""
        return count // self.lanes // self.size * self.size * self.lanes

    async def rate(self, hub: Running, count: int, turn: int) -> float:
        """Return the durable submits per second of round ``turn``, over connections that are open."""
        each = self.sent(count) // self.lanes
        begin = 1 + turn * each
        prepared = []
        for n in range(self.first, self.first + self.lanes):
            lane = [signed(writer(n), hub.where, seq, hub.auth[n]) for seq in range(begin, begin + each)]
            prepared.append([b"".join(lane[at : at + self.size]) for at in range(0, each, self.size)])
        kind = "application/cbor-seq" if self.size > 1 else "application/cbor"

        async with contextlib.AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(open_raw(HOST, hub.port)) for _ in prepared]

            async def one(connection: RawConnection, mine: list[bytes]) -> None:
                for body in mine:
                    await connection.post("/v1/submit", body, kind)

            started = time.perf_counter()
            await asyncio.gather(*map(one, opened, prepared))
            return each * self.lanes / (time.perf_counter() - started)


SINGLE = Load(first=0, lanes=256, size=1)
BATCH = Load(first=1_000, lanes=16, size=64)
PLAIN_FIRST, PLAIN_LANES = 300, 256
"""The first writer of ``hub.plain`` and the number of writers, different from those of ``SINGLE``."""


def against_floor(hub: Running, load: Load, count: int, sizes: Sizes) -> tuple[float, float, float]:
    """Return submits per second, the crypto floor and their ratio, each the median of all rounds.

    The machine's speed varies over seconds, so the floor is measured before and after each round.
    """
    rates, floors, before = [], [], crypto_floor(sizes.floor_sec)
    for turn in range(sizes.rounds):
        rates.append(uvloop.run(load.rate(hub, count // sizes.rounds, turn)))
        after = crypto_floor(sizes.floor_sec)
        floors.append((before + after) / 2)
        before = after
    ratios = [rate / floor for rate, floor in zip(rates, floors, strict=True)]
    return statistics.median(rates), statistics.median(floors), statistics.median(ratios)


async def plain_rate(hub: Running, count: int, turn: int) -> float:
    """Return the submits per second of an ordinary aiohttp client, 256 in flight, without special headers.

    As for the raw generator, the time begins when the connections are open.
    """
    each = count // PLAIN_LANES
    begin = 1 + turn * each
    prepared = [
        [signed(writer(n), hub.where, seq, hub.auth[n]) for seq in range(begin, begin + each)]
        for n in range(PLAIN_FIRST, PLAIN_FIRST + PLAIN_LANES)
    ]
    async with open_plain(f"http://{HOST}:{hub.port}", connections=PLAIN_LANES) as session:

        async def one(bodies: list[bytes]) -> None:
            for body in bodies:
                await session.post("/v1/submit", body)

        async def open_connection() -> None:
            async with session.session.get(f"{session.url}/healthz") as answer:
                await answer.read()

        await asyncio.gather(*(open_connection() for _ in prepared))
        started = time.perf_counter()
        await asyncio.gather(*map(one, prepared))
        return each * PLAIN_LANES / (time.perf_counter() - started)


def against_raw(hub: Running, count: int, rounds: int) -> float:
    """Return the rate of the plain client divided by the raw generator's, the median of all rounds."""
    ratios = []
    for turn in range(rounds):
        raw_rate = uvloop.run(SINGLE.rate(hub, count // rounds, rounds + turn))
        ratios.append(uvloop.run(plain_rate(hub, count // rounds, turn)) / raw_rate)
    return statistics.median(ratios)


def alone(hub: Running, count: int, number: int, start: int = 1) -> float:
    """Return the median time of one submit while nothing else happens, over a plain socket."""
    bodies = [signed(writer(number), hub.where, seq, hub.auth[number]) for seq in range(start, start + count)]
    times = []
    with socket.create_connection((HOST, hub.port)) as connection:
        for request in [request_of("/v1/submit", body) for body in bodies]:
            started = time.perf_counter()
            connection.sendall(request)
            answer = connection.recv(65_536)  # a receipt comes in one piece
            times.append(time.perf_counter() - started)
            assert answer.startswith(b"HTTP/1.1 200"), answer
    return statistics.median(times)


async def read_rate(hub: Running, upto: int) -> float:
    """Return the entries per second of one reader that takes pages and does not verify."""
    pages = range(1, upto - 1_000, 1_000)
    async with open_raw(HOST, hub.port) as connection:
        started = time.perf_counter()
        for start in pages:
            asked = StreamRequest(
                label=hub.where, from_seq=StreamSeq(start), max_items=1_000, with_receipts=True
            ).encode()
            await connection.post("/v1/stream", asked)
        return len(pages) * 1_000 / (time.perf_counter() - started)


async def follow_p99(hub: Running, number: int, seconds: int, start: int) -> float:
    """Return the 99th percentile, in ms, from a submit's answer to its arrival at a follower, at 1,000/s."""
    count = seconds * 1_000
    bodies = [signed(writer(number), hub.where, seq, hub.auth[number]) for seq in range(1, count + 1)]
    answered: list[float] = []
    arrived: list[float] = []

    async def take() -> None:
        async for moment in live(hub.port, f"/v1/stream/{hub.where.hex()}?from={start}"):
            arrived.append(moment)
            if len(arrived) == count:
                return

    async def send() -> None:
        async with open_raw(HOST, hub.port) as connection:
            began = time.perf_counter()
            for at in range(0, count, 10):
                await asyncio.sleep(max(0.0, began + at / 1_000 - time.perf_counter()))
                await connection.post("/v1/submit", b"".join(bodies[at : at + 10]), "application/cbor-seq")
                answered.extend([time.perf_counter()] * 10)

    follower = asyncio.create_task(take())
    await asyncio.sleep(0.2)
    await send()
    await asyncio.wait_for(follower, 10)
    delays = sorted(max(0.0, b - a) for a, b in zip(answered, arrived, strict=True))
    return delays[int(len(delays) * 0.99)] * 1_000


def say(name: str, value: float, target: float, ok: bool) -> bool:
    print(json.dumps({"name": name, "value": round(value, 3), "target": target, "ok": ok}), flush=True)  # noqa: T201
    return ok


def new(root: Path) -> Path:
    create(root, HUB, UnixTime(0), admin_pk=ADMIN.public)
    return root


def measure_hub(place: Path, sizes: Sizes) -> bool:
    """Measure a hub under load, and one message at a time."""
    ok = True
    with running(new(place / "busy"), 1_016) as hub:
        rate, floor, ratio = against_floor(hub, SINGLE, sizes.single, sizes)
        ok &= say("hub.single", ratio, 0.35, ratio >= 0.35)
        ratio = against_raw(hub, sizes.single, sizes.rounds)
        ok &= say("hub.plain", ratio, 0.7, ratio >= 0.7)
        batched, floor, ratio = against_floor(hub, BATCH, sizes.batch, sizes)
        ok &= say("hub.batch", ratio, 0.9, ratio >= 0.9)
        shared = shared_floor(2 * sizes.floor_sec)
        say("hub.single_shared", rate / shared, 0.35, rate / shared >= 0.35)
        say("hub.batch_shared", batched / shared, 0.8, batched / shared >= 0.8)
        disk, before = sync_seconds(place), lone_seconds(place)
        p50 = alone(hub, sizes.alone, 999)
        ideal = (before + lone_seconds(place)) / 2
        ok &= say("hub.p50", p50 / ideal, 2.0, p50 / ideal <= 2)
        hot = 1 / floor + min(disk, sync_seconds(place))
        say("hub.p50_hot", p50 / hot, 3.0, p50 / hot <= 3)
        single, batch = sizes.single // sizes.rounds, sizes.batch // sizes.rounds
        sent = 2 * SINGLE.sent(single) + single // PLAIN_LANES * PLAIN_LANES + BATCH.sent(batch)
        stored = sizes.rounds * sent + sizes.alone
        read = uvloop.run(read_rate(hub, stored))
        ok &= say("hub.read", read, 20_000, read >= 20_000)
        delay = uvloop.run(follow_p99(hub, 998, sizes.follow_sec, stored + 1))
        ok &= say("hub.follow_p99_ms", delay, 20.0, delay <= 20)
    return ok


def measure_followers(place: Path, sizes: Sizes) -> bool:
    """Measure many followers, and readers beside writers; see ``followers``."""
    each = BATCH.sent(sizes.batch // sizes.rounds)
    with running(new(place / "followed"), 1_016) as hub:

        def rate(turn: int) -> float:
            return uvloop.run(BATCH.rate(hub, each, turn))

        for turn in range(sizes.rounds):
            rate(turn)
        stored, turns, samples = sizes.rounds * each, 2 * followers.ROUNDS, sizes.alone
        ok = followers.measure_catch_up(
            hub.port,
            hub.where,
            stored,
            rate=lambda turn: rate(sizes.rounds + turn),
            alone=lambda turn: alone(hub, samples, 999, 1 + turn * samples),
            say=say,
        )
        stored += turns * (each + samples)
        bodies = [signed(writer(998), hub.where, seq, hub.auth[998]) for seq in range(1, 41)]
        return (
            followers.measure_followers(
                hub.port,
                hub.where,
                bodies,
                rss_mb=lambda: hub.rss_mb,
                count=sizes.followers,
                start=stored + 1,
                say=say,
            )
            and ok
        )


def measure_verify(_place: Path, sizes: Sizes) -> bool:
    """Measure core's batch verifier."""
    batch = batch_ratio(sizes.batch // 10)
    return say("verify.batch", batch, 0.9, batch >= 0.9)


def measure_overhead(place: Path, sizes: Sizes) -> bool:
    """Measure what hub log and witnesses cost; see ``trust_overhead``."""
    load = dataclasses.replace(BATCH, first=0)

    def make(root: Path) -> tuple[Path, HubIdentity]:
        return new(root), identity_of(root)

    return trust_overhead.measure(
        place,
        make,
        running,
        lambda hub, count, turn: uvloop.run(load.rate(hub, count, turn)),
        lambda hub, seq: signed(writer(0), hub.where, seq, hub.auth[0]),
        count=2 * sizes.batch,
        rounds=sizes.rounds + 1,  # even, because the two hubs alternate
        samples=sizes.alone,
        writers=load.lanes,
        say=say,
    )


def measure_client(place: Path, sizes: Sizes) -> bool:
    """Measure the client that ships; see ``client_load``."""
    root = new(place / "client")
    with running(root, 0) as hub:
        before, waits_before = client_load.floors(), lone_seconds(place) + sync_seconds(place)
        found = uvloop.run(client_load.rates(hub.port, identity_of(root), ADMIN, place, sizes.client))
        after, waits_after = client_load.floors(), lone_seconds(place) + sync_seconds(place)
    send, read = (before.send + after.send) / 2, (before.read + after.read) / 2
    lone = (waits_before + waits_after) / 2
    ratios = {
        "client.send": (found.send * (send + lone), 0.5),
        "client.send_64": (found.send_64 * send, 0.5),
        "client.send_many": (found.send_many * send, 0.75),
        "client.read": (found.read * read, 0.8),
    }
    said = [say(name, value, target, value >= target) for name, (value, target) in ratios.items()]
    ok = all(said)
    ok &= say("client.follow_p99_ms", found.follow_p99_ms, 20, found.follow_p99_ms <= 20)
    return say("client.loop_block_ms", found.loop_block_ms, 10, found.loop_block_ms <= 10) and ok


def measure_client_memory(place: Path, sizes: Sizes) -> bool:
    """Measure the memory of the client that ships; see ``client_load``."""
    root = new(place / "client-memory")
    with running(root, 0) as hub:
        memory = client_load.peak_rss_mb(hub.port, identity_of(root), ADMIN, place, sizes.client_memory)
    return say("client.rss_mb", memory, 200, memory < 200)


def compare_clients(place: Path, all_sizes: Sizes) -> bool:
    """Print the messages per second of three clients, one line for each; they have no target."""
    sizes = all_sizes.clients
    root = new(place / "clients")
    with running(root, 0) as hub:
        target = LoadTarget(url=f"http://{HOST}:{hub.port}", hub_id=identity_of(root).hub_id, admin=ADMIN)
        for row in uvloop.run(measure_clients(target, sizes, place / "clients-state")):
            print(json.dumps(dataclasses.asdict(row)), flush=True)  # noqa: T201
    return True


def measure_shards(place: Path, sizes: Sizes) -> bool:
    """Measure a hub with two shards against one with a single shard; see ``shards``."""
    return shards.measure(
        place,
        new,
        lambda root: identity_of(root).hub_id,
        writer,
        admin=ADMIN,
        sealed=SEALED,
        count=2 * sizes.batch,
        rounds=sizes.rounds,
        samples=sizes.alone,
        floor_sec=4 * sizes.floor_sec,
        say=say,
    )


def measure_overload(place: Path, sizes: Sizes, shards_count: int = 1) -> bool:
    """Measure a hub near its limit and beyond; see ``overload``."""

    def made(root: Path) -> overload.Load:
        whole = new(root if shards_count == 1 else root.with_name("before sharding it"))
        load = overload.Load(identity_of(whole).hub_id, ADMIN, sizes.overload.lanes)
        if shards_count > 1:
            reshard(whole, root, shards_count)
        return load

    return overload.measure(
        place,
        shards.running,
        made,
        sizes=sizes.overload,
        say=say,
        shards=shards_count,
    )


def measure_growth(place: Path, sizes: Sizes) -> bool:
    """Compare a long history with a short one, and measure the hub's memory over both."""
    long_root, short_root, wide_root = new(place / "long"), new(place / "short"), new(place / "wide")
    where, seed = bench_label(long_root), writer(0).seed
    history.fill(long_root, [where], sizes.history, seed)
    history.fill(short_root, [where], 1_000, seed)
    history.fill(wide_root, [Label(H(n.to_bytes(8, "big"))) for n in range(sizes.labels)], 1, seed)
    with running(long_root, 2) as deep, running(short_root, 2) as shallow:
        best_deep = best_shallow = float("inf")
        for turn in range(5):
            start = 1 + turn * sizes.alone
            best_deep = min(best_deep, alone(deep, sizes.alone, 1, start))
            best_shallow = min(best_shallow, alone(shallow, sizes.alone, 1, start))
        uvloop.run(read_rate(deep, min(sizes.history, 100_000)))
        heavy = deep.rss_mb
    with running(wide_root, 2) as wide:
        alone(wide, sizes.alone, 1)
        heavy = max(heavy, wide.rss_mb)
    growth = best_deep / best_shallow
    ok = say("hub.growth", growth, 1.3, growth <= 1.3)
    return say("hub.rss_mb", heavy, 400, heavy < 400) and ok


def measure_long_history(place: Path, sizes: Sizes, keep: Path | None) -> bool:
    """Compare ten million messages with ten thousand; see ``long_history``."""
    return long_history.measure(
        keep or place / "histories",
        short=max(200, sizes.long_history // 1_000),
        long=sizes.long_history,
        labels=sizes.labels,
        samples=sizes.alone,
        tools=long_history.Tools(
            new=new,
            label=bench_label,
            running=lambda root: running(root, 2),
            submits=lambda hub, count, first: alone(hub, count, 1, first),
            seed=writer(0).seed,
            say=say,
        ),
    )


PARTS: tuple[tuple[tuple[str, ...], Callable[[Path, Sizes], bool]], ...] = (
    (("hub.single", "hub.plain", "hub.batch", "hub.p50", "hub.read", "hub.follow_p99_ms"), measure_hub),
    (
        (
            "hub.followers",
            "hub.followers_p99_ms",
            "hub.follower_kb",
            "hub.catch_up",
            "hub.catch_up_p50",
            "hub.catch_up_reads",
        ),
        measure_followers,
    ),
    (("hub.shards", "hub.p50_shards"), measure_shards),
    (("hub.p99_ms", "hub.overload_p99_ms", "hub.fairness"), measure_overload),
    (("hub.overload_shards",), lambda place, sizes: measure_overload(place, sizes, 2)),
    (("verify.batch",), measure_verify),
    (
        (
            "client.send",
            "client.send_64",
            "client.send_many",
            "client.read",
            "client.follow_p99_ms",
            "client.loop_block_ms",
        ),
        measure_client,
    ),
    (("client.rss_mb",), measure_client_memory),
    (("clients",), compare_clients),
    (("trust.witness_rate",), lambda place, sizes: trust.measure(place, sizes.witness, sizes.rounds, say)),
    (("hub.trust_overhead", "trust.cosign_p99_ms"), measure_overhead),
    (
        ("trust.growth", "trust.evidence_bytes"),
        lambda place, sizes: trust_growth.measure(place, sizes.heads // 10, sizes.heads, say),
    ),
    (("hub.growth", "hub.rss_mb"), measure_growth),
)
"""The figures, in groups that are measured together."""
ON_DEMAND = "hub.growth7"
"""Takes half an hour and 10 GB, so it is measured only if ``--only`` names it."""
NAMES = [name for names, _measure in PARTS for name in names]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="run with a tenth of the messages")
    parser.add_argument("--tiny", action="store_true", help="check that it runs; ignore the figures")
    parser.add_argument("--directory", type=Path, help="folder for the data directories")
    parser.add_argument(
        "--only",
        action="append",
        choices=[*NAMES, ON_DEMAND],
        help="measure only the group of this figure; repeat",
    )
    parser.add_argument(
        "--keep", type=Path, help="hub.growth7: folder that keeps its histories for the next run"
    )
    options = parser.parse_args()
    wanted = set(options.only or NAMES)
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        sizes = TINY if options.tiny else QUICK if options.quick else FULL
        met = [measure(Path(place), sizes) for names, measure in PARTS if wanted.intersection(names)]
        if ON_DEMAND in wanted:
            met.append(measure_long_history(Path(place), sizes, options.keep))
        return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
