"""Many followers of one label, and readers that catch up while others write.

- ``hub.followers`` is the number of deliveries per second (one entry to one follower) while a writer sends
  one message after the other.
- ``hub.followers_p99_ms`` is the median, over messages sent with pauses, of the time from a message's receipt
  until 99 of 100 followers have it.
- ``hub.follower_kb`` is the memory that the hub needs for each follower.
- ``hub.catch_up`` is the rate of writers in batches beside four readers that read a long label again and
  again, divided by their rate alone; ``hub.catch_up_p50`` is the median time of a lone submit beside them,
  divided by that alone. Each is the median of rounds in turns.
- ``hub.catch_up_reads`` is what those readers read meanwhile, in entries per second.

Followers and readers are processes of their own. They share the machine with the hub.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

import uvloop

from veen_core.api import StreamRequest
from veen_core.ids import Label, StreamSeq
from veen_hub.load import follower_fleet, open_raw, request_of

HOST: Final = "127.0.0.1"
PAUSE_SEC: Final = 0.25
"""Time between messages whose delay is measured."""
ROUNDS: Final = 3
READERS: Final = 4
PAGE_ENTRIES: Final = 1_000

Say = Callable[[str, float, float, bool], bool]


def measure_followers(
    port: int,
    where: Label,
    bodies: list[bytes],
    *,
    rss_mb: Callable[[], float],
    count: int,
    start: int,
    say: Say,
) -> bool:
    """Measure ``count`` followers of a label from entry ``start`` on; ``bodies`` are the messages to send."""
    before = rss_mb()
    numbers = (str(port), where.hex(), str(count), str(len(bodies)), str(start))
    command = [sys.executable, follower_fleet.__file__, *numbers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as fleet:  # noqa: S603 - ours
        assert fleet.stdout is not None
        assert fleet.stdout.readline() == "ready\n"
        calm = len(bodies) // 2
        with socket.create_connection((HOST, port)) as connection:
            durable = [_submit(connection, body, PAUSE_SEC) for body in bodies[:calm]]
            began = time.monotonic()
            for body in bodies[calm:]:
                _submit(connection, body, 0)
        report = json.loads(fleet.stdout.read())
        kilobytes = max(0.0, rss_mb() - before) * 1_024 / count
    assert report["digests"] == 1
    ended = max(last for _first, _median, last, _p99 in report["arrivals"])
    rate = count * (len(bodies) - calm) / (ended - began)
    late = [max(0.0, p99 - at) for (_1, _2, _3, p99), at in zip(report["arrivals"], durable, strict=False)]
    delay = statistics.median(late) * 1_000
    ok = say("hub.followers", rate, 20_000, rate >= 20_000)
    ok &= say("hub.followers_p99_ms", delay, 250, delay <= 250)
    return say("hub.follower_kb", kilobytes, 40, kilobytes <= 40) and ok


def _submit(connection: socket.socket, body: bytes, pause_sec: float) -> float:
    """Send a message, return the time of its receipt, and pause."""
    connection.sendall(request_of("/v1/submit", body))
    answer = connection.recv(65_536)  # a receipt comes in one piece
    durable = time.monotonic()
    assert answer.startswith(b"HTTP/1.1 200"), answer
    time.sleep(pause_sec)
    return durable


def measure_catch_up(
    port: int,
    where: Label,
    upto: int,
    *,
    rate: Callable[[int], float],
    alone: Callable[[int], float],
    say: Say,
) -> bool:
    """Measure writers beside readers; ``rate`` and ``alone`` measure a round, by its number."""
    rates, times, reads = [], [], []
    for turn in range(0, 2 * ROUNDS, 2):
        undisturbed = rate(turn), alone(turn)
        with _readers(port, where, upto) as read:
            disturbed = rate(turn + 1), alone(turn + 1)
        rates.append(disturbed[0] / undisturbed[0])
        times.append(disturbed[1] / undisturbed[1])
        reads.append(read[0])
    ratio, p50 = statistics.median(rates), statistics.median(times)
    ok = say("hub.catch_up", ratio, 0.6, ratio >= 0.6)
    ok &= say("hub.catch_up_p50", p50, 4, p50 <= 4)
    return say("hub.catch_up_reads", statistics.median(reads), 0, ok=True) and ok


@contextlib.contextmanager
def _readers(port: int, where: Label, upto: int) -> Iterator[list[float]]:
    """Run readers; afterwards the yielded list has their entries per second."""
    command = [sys.executable, __file__, str(port), where.hex(), str(upto)]
    found: list[float] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - ours
        assert process.stdout is not None
        process.stdout.readline()  # printed when all of them have read a page
        began = time.monotonic()
        yield found
        taken = time.monotonic() - began
        found.append(int(process.communicate("\n")[0]) / taken)


async def _read_again_and_again(port: int, where: Label, upto: int) -> int:
    """Read pages until a line arrives on stdin; return the number of entries read."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, stopped.set)
    pages, reading = [0] * READERS, False

    async def one(number: int) -> None:
        nonlocal reading
        async with open_raw(HOST, port) as connection:
            while True:
                for start in range(1, max(2, upto - PAGE_ENTRIES), PAGE_ENTRIES):
                    if stopped.is_set():
                        return
                    asked = StreamRequest(
                        label=where, from_seq=StreamSeq(start), max_items=PAGE_ENTRIES, with_receipts=True
                    )
                    await connection.post("/v1/stream", asked.encode())
                    pages[number] += 1
                    if not reading and all(pages):
                        reading = True
                        print("reading", flush=True)  # noqa: T201 - the program that started this one waits for it

    await asyncio.gather(*map(one, range(READERS)))
    return (sum(pages) - READERS) * PAGE_ENTRIES


if __name__ == "__main__":
    _port, _where, _upto = sys.argv[1:]
    print(uvloop.run(_read_again_and_again(int(_port), Label.from_hex(_where), int(_upto))))  # noqa: T201
