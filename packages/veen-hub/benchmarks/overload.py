"""A hub near its limit and beyond: ``hub.p99_ms``, ``hub.overload_p99_ms`` and ``hub.fairness``.

Every latency counts from the moment at which the message was due to be sent, so waiting in the generator
counts too. Messages are due at random moments (a Poisson process with a fixed seed), whatever the hub
answers. A refused message leaves again with a later due moment.

- ``hub.p99_ms``: the 99th percentile at 80 % of the rate that 256 connections reach.
- ``hub.overload_p99_ms``: the 99th percentile of accepted messages while three times that rate is due. 64
  writers have so many connections that one rests for at least 0.3 s after a refusal.
- ``hub.overload_offered``: the requests that really left in that time, divided by the rate reached.
- ``hub.overload_accepted``: the messages accepted per second in that time, divided by the rate reached.
- ``hub.recovery_ms``: from the end of the overload until the median of 20 single submits in a row is at most
  twice that of an idle hub.
- ``hub.fairness``: the 99th percentile of a modest writer (25 messages/s over one connection, from a process
  of its own) beside a flood, divided by that of the same writer alone. One writer floods: 1,024 connections
  with a label each, three times the rate reached, and refused requests are repeated at once.

Names that end in ``_shards`` are the same figures with two shards; they do not fail a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import uvloop

from veen_core import DEFAULT_PROFILE, SigningKey, SigningSeed, mint
from veen_core.cap import CapToken
from veen_core.hashing import H
from veen_core.ids import ClientId, Epoch, HubId, Label
from veen_core.stream import label, routing_key, stream_id
from veen_hub.load import MessageSigner, RawConnection, open_raw, request_of

HOST = "127.0.0.1"
REACHING_LANES = 256
REST_SEC = 0.3
"""How long a connection rests after a refusal; the hub does not read from it for 0.25 s."""
WRITERS = 64
"""Writers of the overload; the flood beside the modest writer has one."""
NEAR, BEYOND = 0.8, 3.0
MODEST_RATE = 25.0
MIN_OFFERED, MIN_ACCEPTED = 2.5, 0.5
CALM_SUBMITS = 20
MAX_RECOVERY_SEC = 10.0
PACE_SEC = 0.0005
"""A message may leave this much early; the latency counts from the moment at which it was due."""

Say = Callable[[str, float, float, bool], bool]


@dataclass(frozen=True)
class OverloadSizes:
    """How long the parts of one run take."""

    reach: int
    """Messages while the rate is measured."""
    seconds: float
    """Time of each open-loop part."""
    lanes: int
    """Connections of the overload; at most a sixth of them flood beside the modest writer."""


class RefusedError(Exception):
    """An answer other than 200: its first bytes."""

    def __init__(self, head: bytes, _body: bytes) -> None:
        super().__init__(head)
        self.status = int(head.split(b" ", 2)[1])


@dataclass
class Lane:
    """One label of one writer, over one connection; its messages leave in order."""

    signer: MessageSigner
    where: Label
    bodies: list[bytes] = field(default_factory=list)
    at: int = 0

    def prepare(self, count: int) -> None:
        """Sign messages until ``count`` are ready."""
        missing = count - (len(self.bodies) - self.at)
        self.bodies = self.bodies[self.at :] + self.signer.bodies(self.where, max(0, missing))
        self.at = 0


@dataclass
class Found:
    """What one open-loop part has seen."""

    seconds: float = 0.0
    late: int = 0
    """Messages that were due and for which no connection was free."""
    latencies: list[float] = field(default_factory=list)
    """Of accepted messages, in seconds from the moment at which each was due."""
    refusals: Counter[int] = field(default_factory=Counter)

    @property
    def sent(self) -> int:
        return len(self.latencies) + self.refusals.total()

    @property
    def p99_ms(self) -> float:
        return p99_ms(self.latencies)


def p99_ms(seconds: Sequence[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)] * 1_000 if seconds else float("inf")


def due_moments(rate: float, seconds: float) -> Iterator[float]:
    """Yield the moments of a Poisson process, in seconds from its start."""
    source, moment = random.Random(1), 0.0  # noqa: S311 - arrival times, the same in each run
    while (moment := moment + source.expovariate(rate)) < seconds:
        yield moment


async def open_lanes(stack: contextlib.AsyncExitStack, port: int, count: int) -> list[RawConnection]:
    return [await stack.enter_async_context(open_raw(HOST, port, refused=RefusedError)) for _ in range(count)]


async def closed_loop(port: int, lanes: Sequence[Lane], each: int) -> float:
    """Return the messages per second that these lanes reach, each with one message in flight."""
    for lane in lanes:
        lane.prepare(each)
    async with contextlib.AsyncExitStack() as stack:
        opened = await open_lanes(stack, port, len(lanes))

        async def one(lane: Lane, connection: RawConnection) -> None:
            for _ in range(each):
                await connection.post("/v1/submit", lane.bodies[lane.at])
                lane.at += 1

        started = time.perf_counter()
        await asyncio.gather(*map(one, lanes, opened))
        return len(lanes) * each / (time.perf_counter() - started)


class OpenLoop:
    """Sends messages when they are due, each over the lane that has been idle longest."""

    def __init__(self, lanes: Sequence[Lane], connections: Sequence[RawConnection], rest_sec: float) -> None:
        """``rest_sec``: how long a lane waits after a refusal."""
        self._rest_sec = rest_sec
        self._idle = deque(zip(lanes, connections, strict=True))
        self._late: deque[float] = deque()
        """Due moments that no lane was idle for."""
        self._under_way = 0
        self._ended = asyncio.Event()
        self.found = Found()

    async def run(self, rate: float, seconds: float) -> Found:
        """Return what was seen; messages for which no lane was idle until the end are not sent."""
        started = time.perf_counter()
        for moment in due_moments(rate, seconds):
            due = started + moment
            if (wait := due - time.perf_counter()) > PACE_SEC:
                await asyncio.sleep(wait)
            if self._idle:
                self._send(due)
            else:
                self._late.append(due)
            if len(self._late) % 64 == 63:  # let answers arrive
                await asyncio.sleep(0)
        self.found.late = len(self._late)
        self._late.clear()
        while self._under_way:
            self._ended.clear()
            await self._ended.wait()
        self.found.seconds = time.perf_counter() - started
        return self.found

    def _send(self, due: float) -> None:
        lane, connection = self._idle.popleft()
        self._under_way += 1
        answer = connection.send("/v1/submit", lane.bodies[lane.at])
        answer.add_done_callback(partial(self._answered, lane, connection, due))

    def _answered(
        self, lane: Lane, connection: RawConnection, due: float, answer: asyncio.Future[bytes]
    ) -> None:
        now = time.perf_counter()
        match answer.exception():
            case None:
                self.found.latencies.append(now - due)
                lane.at += 1
            case RefusedError() as refusal:
                self.found.refusals[refusal.status] += 1
            case exc:
                raise exc
        self._under_way -= 1
        self._ended.set()
        if lane.at == len(lane.bodies):
            return
        if self._rest_sec and answer.exception() is not None:
            asyncio.get_running_loop().call_later(self._rest_sec, self._is_idle, lane, connection)
        else:
            self._is_idle(lane, connection)

    def _is_idle(self, lane: Lane, connection: RawConnection) -> None:
        self._idle.append((lane, connection))
        if self._late:
            self._send(self._late.popleft())


async def open_loop(
    port: int,
    lanes: Sequence[Lane],
    rate: float,
    seconds: float,
    room: float,
    *,
    rest_sec: float = 0.0,
    meanwhile: Callable[[], None] = lambda: None,
) -> Found:
    """Send messages at ``rate``, whatever the hub answers.

    ``room``: most messages accepted per second. ``meanwhile`` is called once the load has run for a moment.
    """
    for lane in lanes:
        lane.prepare(int(room * seconds / len(lanes) * 1.3) + 20)
    async with contextlib.AsyncExitStack() as stack:
        opened = await open_lanes(stack, port, len(lanes))
        asyncio.get_running_loop().call_later(seconds / 10, meanwhile)
        return await OpenLoop(lanes, opened, rest_sec).run(rate, seconds)


def modest(port: int, bodies: list[bytes], rate: float, ready: Callable[[], None]) -> list[float]:
    """Send single messages at ``rate`` over one connection; return their latencies, without the first one's.

    ``ready`` is called once the first one is accepted, and returns when the others may leave.
    """
    latencies = []
    first, *requests = [request_of("/v1/submit", body) for body in bodies]
    with socket.create_connection((HOST, port)) as connection:
        connection.sendall(first)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")  # an answer comes in one piece
        ready()
        started = time.perf_counter()
        moments = due_moments(rate, len(bodies) / rate * 10)
        for request in requests:
            due = started + next(moments)
            time.sleep(max(0.0, due - time.perf_counter()))
            while True:
                connection.sendall(request)
                answer = connection.recv(65_536)
                if answer.startswith(b"HTTP/1.1 200"):
                    break
                assert answer.startswith(b"HTTP/1.1 503"), answer
                time.sleep(0.01)
            latencies.append(time.perf_counter() - due)
    return latencies


@contextlib.contextmanager
def modest_process(port: int, bodies: list[bytes]) -> Iterator[subprocess.Popen[str]]:
    """Start the modest writer, which waits for a line when its first message is accepted."""
    process = subprocess.Popen(  # noqa: S603 - this very file
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        asked = {"port": port, "bodies": [body.hex() for body in bodies], "rate": MODEST_RATE}
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def latencies_of(process: subprocess.Popen[str]) -> list[float]:
    printed, _ = process.communicate()
    return list(json.loads(printed))


def recovery_ms(port: int, lane: Lane, calm: float) -> float:
    """Return the time until single submits are as fast as before; ``calm`` is their median on an idle hub."""
    lane.prepare(5_000)
    started, recent = time.perf_counter(), list[float]()
    with socket.create_connection((HOST, port)) as connection:
        while (elapsed := time.perf_counter() - started) < MAX_RECOVERY_SEC:
            sent = time.perf_counter()
            connection.sendall(request_of("/v1/submit", lane.bodies[lane.at]))
            if connection.recv(65_536).startswith(b"HTTP/1.1 200"):
                lane.at += 1
                recent.append(time.perf_counter() - sent)
            else:
                recent.clear()
            if len(recent) >= CALM_SUBMITS and statistics.median(recent[-CALM_SUBMITS:]) <= 2 * calm:
                return elapsed * 1_000
    return MAX_RECOVERY_SEC * 1_000


class Load:
    """Writers with their tokens, on the labels of one hub."""

    def __init__(self, hub: HubId, admin: SigningKey, lanes: int) -> None:
        self._hub = hub
        self._admin = admin
        self.tokens: list[CapToken] = []
        self.reaching = self._lanes("reach", REACHING_LANES, 64)
        self.over = self._lanes("over", lanes, WRITERS)
        self.flood = self._lanes("flood", lanes // 6, 1)
        self.modest = self._lanes("modest", 1, 1)[0]
        self.calm = self._lanes("calm", 1, 1)[0]

    def _lanes(self, name: str, count: int, writers: int) -> list[Lane]:
        lanes, each = [], count // writers
        for number in range(writers):
            key = SigningKey(SigningSeed(H(f"{name}/{number}".encode())))
            streams = [stream_id(f"{name}/{number}/{at}") for at in range(each)]
            token = mint(self._admin, ClientId(key.public), streams, 10_000_000)
            self.tokens.append(token)
            signer = MessageSigner(key, DEFAULT_PROFILE, token.auth_ref, b"x" * 1_000)
            lanes += [Lane(signer, label(routing_key(self._hub), one, Epoch(0))) for one in streams]
        return lanes


def measure(
    place: Path,
    running: Callable[[Path, int, list[CapToken]], contextlib.AbstractContextManager[int]],
    make: Callable[[Path], Load],
    *,
    sizes: OverloadSizes,
    say: Say,
    shards: int = 1,
) -> bool:
    """Measure all figures on one hub; ``make`` makes its directory. See the module."""
    root = place / f"overload {shards}"
    load = make(root)
    suffix = "" if shards == 1 else "_shards"

    def printed(name: str, value: float, target: float, *, ok: bool) -> bool:
        return say(f"hub.{name}{suffix}", value, target, ok) or shards != 1

    with running(root, shards, load.tokens) as port:
        each = sizes.reach // REACHING_LANES
        reached = statistics.median(uvloop.run(closed_loop(port, load.reaching, each)) for _ in range(3))
        near = uvloop.run(open_loop(port, load.reaching, NEAR * reached, sizes.seconds, reached))
        ok = printed("p99_ms", near.p99_ms, 25, ok=near.p99_ms <= 25)
        load.calm.prepare(200)
        calm = statistics.median(_alone(port, load.calm, 100))
        over = uvloop.run(
            open_loop(port, load.over, BEYOND * reached, sizes.seconds, 1.2 * reached, rest_sec=REST_SEC)
        )
        recovery = recovery_ms(port, load.calm, calm)
        assert set(over.refusals) <= {503}, over.refusals
        ok &= printed("overload_p99_ms", over.p99_ms, 200, ok=over.p99_ms <= 200)
        offered = over.sent / over.seconds / reached
        printed("overload_offered", offered, MIN_OFFERED, ok=offered >= MIN_OFFERED)
        accepted = len(over.latencies) / over.seconds / reached
        printed("overload_accepted", accepted, MIN_ACCEPTED, ok=accepted >= MIN_ACCEPTED)
        ok &= printed("recovery_ms", recovery, 3_000, ok=recovery <= 3_000)
        alone, beside = _beside_flood(port, load, reached, sizes.seconds)
        fairness = p99_ms(beside) / p99_ms(alone)
        return printed("fairness", fairness, 4, ok=fairness <= 4) and ok


def _beside_flood(port: int, load: Load, reached: float, seconds: float) -> tuple[list[float], list[float]]:
    """Return the modest writer's latencies alone and beside the flood."""
    count = int(MODEST_RATE * seconds)
    load.modest.prepare(2 * count)
    bodies = load.modest.bodies
    with modest_process(port, bodies[:count]) as process:
        go(process)
        alone = latencies_of(process)
    with modest_process(port, bodies[count : 2 * count]) as process:
        flood = open_loop(
            port, load.flood, BEYOND * reached, seconds + 1, 1.2 * reached, meanwhile=partial(go, process)
        )
        uvloop.run(flood)
        beside = latencies_of(process)
    return alone, beside


def _alone(port: int, lane: Lane, count: int) -> Iterator[float]:
    with socket.create_connection((HOST, port)) as connection:
        for body in itertools.islice(lane.bodies, lane.at, lane.at + count):
            started = time.perf_counter()
            connection.sendall(request_of("/v1/submit", body))
            answer = connection.recv(65_536)
            yield time.perf_counter() - started
            assert answer.startswith(b"HTTP/1.1 200"), answer
    lane.at += count


def main() -> None:
    """Be the modest writer's process."""
    asked = json.loads(sys.stdin.readline())

    def ready() -> None:
        print("ready", flush=True)  # noqa: T201
        sys.stdin.readline()

    found = modest(asked["port"], [bytes.fromhex(body) for body in asked["bodies"]], asked["rate"], ready)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
