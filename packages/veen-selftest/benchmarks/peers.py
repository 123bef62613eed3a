"""Compare VEEN with servers that people know, in one run on one disk; durable messages per second.

    uv run --isolated --only-group peers python packages/veen-selftest/benchmarks/peers.py --quick

Every server makes each message durable before it acknowledges it; see ``peer_servers``. They run at the same
time and are loaded in turns, so that a slow phase of the machine affects all of them. A server or client that
is not installed is left out, and the output says what to install. The dependency group does not bring
PostgreSQL's server: it is used if the system has one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from peer_servers import PEERS, Peer, PeerError, Write

from veen_selftest.command.selftest import stop_once

SYNC_BYTES = 500
"""Approximate size of a message on disk."""
VEEN_EXTRA_WORK = (
    "VEEN does more per message than the others: its client seals, signs and syncs a journal on the same "
    "disk; its hub verifies and signs a receipt; its client verifies the receipt."
)


@dataclass(frozen=True)
class Times:
    """Length of one run: in every round, each server is loaded with one writer, then with many."""

    rounds: int
    seconds: float
    in_flight: int = 256
    """Writers that have one message in flight each."""


FULL, QUICK, TINY = Times(5, 6.0), Times(3, 2.0), Times(1, 0.2, in_flight=8)


@dataclass
class PeerRates:
    """The rates of one server, one per round, or why it was left out."""

    peer: str
    about: str = ""
    absent: str | None = None
    one_writer: list[float] = field(default_factory=list)
    in_flight: list[float] = field(default_factory=list)

    def as_object(self) -> dict[str, object]:
        if self.absent is not None:
            return {"peer": self.peer, "absent": self.absent}
        return {
            "peer": self.peer,
            "about": self.about,
            "one_writer": round(statistics.median(self.one_writer), 1),
            "in_flight": round(statistics.median(self.in_flight), 1),
        }

    def line(self) -> str:
        name = f"{self.peer} ({self.about})" if self.about else self.peer
        if self.absent is not None:
            return f"{name:<52}  absent: {self.absent}"
        one, many = statistics.median(self.one_writer), statistics.median(self.in_flight)
        return f"{name:<52}{one:>12,.0f}{many:>16,.0f}"


async def rate(write: Write, writers: int, seconds: float) -> float:
    """Return the acknowledged messages per second of writers that have one message in flight each."""
    started, acknowledged = time.perf_counter(), 0

    async def one(number: int) -> None:
        nonlocal acknowledged
        while time.perf_counter() - started < seconds:
            await write(number)
            acknowledged += 1

    async with asyncio.TaskGroup() as group:
        for number in range(writers):
            group.create_task(one(number))
    return acknowledged / (time.perf_counter() - started)


async def measure(running: Sequence[tuple[Peer, PeerRates]], times: Times) -> None:
    async with contextlib.AsyncExitStack() as stack:
        loaded = []
        for peer, rates in running:
            write = await stack.enter_async_context(peer.writers(times.in_flight))
            await asyncio.gather(*map(write, range(times.in_flight)))  # opens connections and streams
            loaded.append((write, rates))
        for turn in range(times.rounds):
            first = turn % len(loaded)  # a server may still be writing when the next one starts
            for write, rates in loaded[first:] + loaded[:first]:
                rates.one_writer.append(await rate(write, 1, times.seconds))
                rates.in_flight.append(await rate(write, times.in_flight, times.seconds))


def syncs_per_second(folder: Path, seconds: float) -> float:
    """Return how many small writes with ``fdatasync`` the disk completes, one after the other."""
    path = folder / "sync"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        started, count = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - started) < seconds:
            os.pwrite(fd, bytes(SYNC_BYTES), count * SYNC_BYTES)
            os.fdatasync(fd)
            count += 1
        return count / elapsed
    finally:
        os.close(fd)
        path.unlink()


def start(folder: Path, stack: contextlib.ExitStack) -> Iterator[tuple[Peer, PeerRates]]:
    """Start every server that is installed."""
    for make in PEERS:
        peer = make()
        rates = PeerRates(peer.name, absent=peer.absent())
        if rates.absent is None:
            own = folder / make.__name__.lower()
            own.mkdir()
            try:
                rates.about = peer.start(own, stack)
            except PeerError as failed:
                rates.absent = str(failed)
        yield peer, rates


def compare(place: Path | None, times: Times) -> tuple[list[PeerRates], float]:
    """Return the rates of all servers, and the syncs per second of their disk; no process is left behind."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="veen-peers-", dir=place)))
        folder.chmod(0o711)  # PostgreSQL's server runs as another user if this is root
        started = list(start(folder, stack))
        before = syncs_per_second(folder, times.seconds / 2)
        uvloop.run(measure([(peer, rates) for peer, rates in started if rates.absent is None], times))
        syncs = (before + syncs_per_second(folder, times.seconds / 2)) / 2
    return [rates for _peer, rates in started], syncs


def table(rows: Sequence[PeerRates], syncs: float, in_flight: int) -> Iterator[str]:
    heading = "messages/s, durable before they are acknowledged"
    yield f"{heading:<52}{'1 writer':>12}{f'{in_flight} in flight':>16}"
    for row in rows:
        yield row.line()
    yield f"{'the disk alone (write and fdatasync, one by one)':<52}{syncs:>12,.0f}"
    yield VEEN_EXTRA_WORK


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a minute or two instead of five")
    parser.add_argument("--tiny", action="store_true", help="check that it runs; ignore the rates")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument("--place", type=Path, help="folder on the disk to measure [default: the system's]")
    options = parser.parse_args()
    times = TINY if options.tiny else QUICK if options.quick else FULL
    try:
        with stop_once():
            rows, syncs = compare(options.place, times)
    except KeyboardInterrupt:
        return 130
    if options.json:
        disk = {"disk": "write and fdatasync", "one_by_one": round(syncs, 1)}
        lines = [json.dumps(each) for each in (*(row.as_object() for row in rows), disk)]
    else:
        lines = list(table(rows, syncs, times.in_flight))
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
