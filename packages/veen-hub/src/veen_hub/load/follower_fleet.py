"""Many followers of one label, each with a socket of its own, in one process (H15).

    python -m veen_hub.load.follower_fleet PORT LABEL FOLLOWERS ENTRIES [FROM]

The process prints ``ready`` when every follower has the head of its answer. When every follower has ENTRIES
items, it prints one line of JSON, a ``FleetReport``. Bytes are compared, so each item is parsed once only.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import select
import socket
import sys
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from veen_core import cbor

HOST: Final = "127.0.0.1"
CONNECTING_AT_ONCE: Final = 256
"""Connections that are opened before the heads of their answers are awaited; a listener's queue is finite."""
PATIENCE_SEC: Final = 120.0
"""Longest time without any data."""
READ_BYTES: Final = 262_144


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReport:
    """What a fleet has received; times are those of the system's monotonic clock, in seconds."""

    followers: int
    entries: int
    digests: int
    """Different streams of bytes among the followers: 1 if all of them received the same."""
    digest: str
    """SHA-256 of what the first follower received, in hex."""
    arrivals: list[list[float]]
    """For each entry: when the first, the median and the last follower had it, and 99 of 100."""


@dataclass(slots=True)
class _Follower:
    connection: socket.socket
    held: bytes = b""
    """Bytes that do not make a whole chunk of HTTP yet."""
    has_head: bool = False
    items: int = 0
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)


@lru_cache(maxsize=64)
def _items_in(part: bytes) -> int:
    """Return the number of items in a part; cached, because all followers get the same parts."""
    return sum(1 for _item in cbor.split_sequence(part))


class FollowerFleet:
    """Followers of one label that read until each has a number of items."""

    def __init__(self, port: int, label: str, followers: int, entries: int, start: int = 1) -> None:
        self._request = f"GET /v1/stream/{label}?from={start} HTTP/1.1\r\nHost: hub\r\n\r\n".encode()
        self._port = port
        self._entries = entries
        self._epoll = select.epoll()
        self._followers: dict[int, _Follower] = {}
        self._arrivals: list[list[float]] = [[] for _ in range(entries)]
        self._open(followers)

    def _open(self, count: int) -> None:
        for first in range(0, count, CONNECTING_AT_ONCE):
            for _ in range(min(CONNECTING_AT_ONCE, count - first)):
                connection = socket.create_connection((HOST, self._port), timeout=PATIENCE_SEC)
                connection.sendall(self._request)
                connection.setblocking(False)
                self._followers[connection.fileno()] = _Follower(connection)
                self._epoll.register(connection.fileno(), select.EPOLLIN)
            self._read_until(lambda one: one.has_head)

    def read(self) -> FleetReport:
        """Read until every follower has all entries, and close their connections."""
        self._read_until(lambda one: one.items >= self._entries)
        digests = [one.digest.hexdigest() for one in self._followers.values()]
        for one in self._followers.values():
            one.connection.close()
        return FleetReport(
            followers=len(digests),
            entries=self._entries,
            digests=len(set(digests)),
            digest=digests[0],
            arrivals=[
                [times[0], times[len(times) // 2], times[-1], times[len(times) * 99 // 100]]
                for times in self._arrivals
            ],
        )

    def _read_until(self, is_done: object) -> None:
        assert callable(is_done)
        waiting = {number for number, one in self._followers.items() if not is_done(one)}
        while waiting:
            ready = self._epoll.poll(PATIENCE_SEC)
            if not ready:
                raise TimeoutError(f"{len(waiting)} followers have received nothing for {PATIENCE_SEC} s")
            for number, _event in ready:
                one = self._followers[number]
                if not (data := one.connection.recv(READ_BYTES)):
                    raise ConnectionError(f"the hub has ended a live stream after {one.items} items")
                self._take(one, data)
                if is_done(one):
                    waiting.discard(number)

    def _take(self, one: _Follower, data: bytes) -> None:
        one.held += data
        if not one.has_head:
            head, found, rest = one.held.partition(b"\r\n\r\n")
            if not found:
                return
            if not head.startswith(b"HTTP/1.1 200"):
                raise ConnectionError(f"the hub has refused a follower: {one.held[:300]!r}")
            one.has_head, one.held = True, rest
        at = 0
        while (line := one.held.find(b"\r\n", at)) >= 0:
            start = line + 2
            end = start + int(one.held[at:line], 16)
            if len(one.held) < end + 2:
                break
            part, at = one.held[start:end], end + 2
            one.digest.update(part)
            now = time.monotonic()
            for _ in range(_items_in(part)):
                if one.items < self._entries:
                    self._arrivals[one.items].append(now)
                one.items += 1
        one.held = one.held[at:]


def main() -> None:
    port, label, followers, entries, *start = sys.argv[1:]
    fleet = FollowerFleet(int(port), label, int(followers), int(entries), *map(int, start))
    print("ready", flush=True)  # noqa: T201 - the program that started this one waits for it
    print(json.dumps(dataclasses.asdict(fleet.read())), flush=True)  # noqa: T201 - the report


if __name__ == "__main__":
    main()
