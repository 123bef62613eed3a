"""A hub with two shards compared with a hub with one, in one run: ``hub.shards`` and ``hub.p50_shards``.

- ``hub.shards_floor`` is printed first: what two processes that only verify and sign do together, divided by
  what one does alone. Two virtual cores may share one physical core, and the generator of the load needs a
  part of them.
- ``hub.shards`` is the batch rate with two shards divided by that with one, in alternating rounds. Its target
  is 0.8 times the floor.
- ``hub.p50_shards`` is the median time of one submit alone with two shards divided by that with one. With two
  shards, half of the connections end at the shard that owns the label, and half one hop away from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvloop

from veen_core import DEFAULT_PROFILE, SigningKey, mint
from veen_core.api import wrap_submit
from veen_core.cap import CapToken
from veen_core.ciphertext import Binding
from veen_core.ids import AuthRef, ClientId, ClientSeq, Epoch, HubId, Label, StreamSeq
from veen_core.msg import sign_msg
from veen_core.stream import label, routing_key, stream_id
from veen_hub.load import open_raw, request_of
from veen_storage.shards.reshard import reshard

HOST = "127.0.0.1"
LANES = 16
SIZE = 64
"""Messages in a request."""
CONNECTIONS = 16
"""Connections over which single submits are sent, so that both shards accept some."""

Say = Callable[[str, float, float, bool], bool]


@dataclass
class _Lane:
    """One writer on a label of its own."""

    key: SigningKey
    where: Label
    token: CapToken
    sealed: bytes
    seq: int = 0

    def next(self) -> bytes:
        self.seq += 1
        binding = Binding(
            profile_id=DEFAULT_PROFILE.profile_id,
            label=self.where,
            client_id=ClientId(self.key.public),
            client_seq=ClientSeq(self.seq),
            prev_ack=StreamSeq(0),
            auth_ref=AuthRef(self.token.auth_ref),
        )
        return wrap_submit(sign_msg(self.key, binding, self.sealed).encode())


def measure(
    place: Path,
    new: Callable[[Path], Path],
    hub_id: Callable[[Path], HubId],
    writer: Callable[[int], SigningKey],
    *,
    admin: SigningKey,
    sealed: bytes,
    count: int,
    rounds: int,
    samples: int,
    floor_sec: float,
    say: Say,
) -> bool:
    """Measure both figures; ``count`` messages in all rounds of each hub, ``samples`` single submits."""
    floor = _floor_ratio(floor_sec)
    say("hub.shards_floor", floor, 1.0, ok=floor >= 1)
    one, two = new(place / "one shard"), new(place / "before sharding")
    identity = hub_id(one)
    reshard(two, place / "two shards", 2)

    def lanes(first: int) -> list[_Lane]:
        return [_lane(identity, writer(first + n), f"bench/{n}", admin, sealed) for n in range(LANES + 1)]

    lanes_one, lanes_two = lanes(2_000), lanes(2_000)
    with (
        running(one, 1, [lane.token for lane in lanes_one]) as port_one,
        running(place / "two shards", 2, [lane.token for lane in lanes_two]) as port_two,
    ):
        ratios, each = [], max(SIZE, count // rounds // LANES // SIZE * SIZE)
        for _ in range(rounds):
            single = uvloop.run(_rate(port_one, lanes_one[:LANES], each))
            double = uvloop.run(_rate(port_two, lanes_two[:LANES], each))
            ratios.append(double / single)
        ratio = statistics.median(ratios)
        ok = say("hub.shards", ratio, round(0.8 * floor, 3), ok=ratio >= 0.8 * floor)
        doubles, singles = list[float](), list[float]()
        for _ in range(CONNECTIONS):  # in turns: what else the machine does slows both
            doubles += _alone(port_two, lanes_two[-1], samples // CONNECTIONS)
            singles += _alone(port_one, lanes_one[-1], samples // CONNECTIONS)
        p50 = statistics.median(doubles) / statistics.median(singles)
        return say("hub.p50_shards", p50, 1.3, ok=p50 <= 1.3) and ok


def _floor_ratio(seconds: float) -> float:
    """Return the crypto floor of two processes at once divided by that of one."""
    here = Path(__file__).with_name("run.py")
    program = (
        f"import runpy, sys; sys.path.insert(0, {str(here.parent)!r})\n"
        f"bench = runpy.run_path({str(here)!r})\nprint(flush=True)\nsys.stdin.readline()\n"
        f"print(bench['crypto_floor']({seconds}), flush=True)"
    )

    def together(count: int) -> float:
        processes = [
            subprocess.Popen(  # noqa: S603 - this very benchmark
                [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(count)
        ]
        total = 0.0
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()  # printed after its imports
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in processes:
            total += float(process.communicate()[0])
        return total

    alone = together(1)
    both = together(2)
    return both / statistics.mean([alone, together(1)])


def _lane(hub: HubId, key: SigningKey, name: str, admin: SigningKey, sealed: bytes) -> _Lane:
    stream = stream_id(name)
    token = mint(admin, ClientId(key.public), [stream], 10_000_000)
    return _Lane(key, label(routing_key(hub), stream, Epoch(0)), token, sealed)


@contextlib.contextmanager
def running(root: Path, shards: int, tokens: list[CapToken]) -> Iterator[int]:
    """Start a hub with tokens, and yield its port."""
    config = root.parent / f"{shards}.yaml"
    config.write_text(f"shards: {shards}\nlog_level: error\n")
    process = subprocess.Popen(  # noqa: S603 - this very hub
        [
            *(sys.executable, "-m", "veen_hub.main", f"--data-dir={root}", f"--config={config}"),
            *("--port=0", "--probes-port=0"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().partition(",")[0].rsplit(":", 1)[1])
        uvloop.run(_authorize(port, tokens))
        yield port
    finally:
        process.terminate()
        process.wait(60)


async def _authorize(port: int, tokens: list[CapToken]) -> None:
    async with open_raw(HOST, port) as connection:
        for token in tokens:
            await connection.post("/tooling/authorize", token.encode())


async def _rate(port: int, lanes: list[_Lane], each: int) -> float:
    """Return the durable submits per second of one round, over connections that are open."""
    prepared = [[b"".join(lane.next() for _ in range(SIZE)) for _ in range(each // SIZE)] for lane in lanes]
    async with contextlib.AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(open_raw(HOST, port)) for _ in lanes]

        async def one(at: int) -> None:
            for body in prepared[at]:
                await opened[at].post("/v1/submit", body, "application/cbor-seq")

        started = time.perf_counter()
        await asyncio.gather(*map(one, range(len(lanes))))
        return each * len(lanes) / (time.perf_counter() - started)


def _alone(port: int, lane: _Lane, count: int) -> list[float]:
    """Return the times of single submits over one connection, while nothing else happens."""
    times = []
    with socket.create_connection((HOST, port)) as connection:
        for _ in range(max(2, count)):
            request = request_of("/v1/submit", lane.next())
            started = time.perf_counter()
            connection.sendall(request)
            answer = connection.recv(65_536)  # a receipt comes in one piece
            times.append(time.perf_counter() - started)
            assert answer.startswith(b"HTTP/1.1 200"), answer
    return times
