"""Load for the figures: messages that are signed beforehand, sent over raw connections."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager

from veen_core import cbor
from veen_core.api import ErrorEnvelope, StreamRequest, wrap_submit
from veen_core.hashing import H
from veen_core.ids import Label, StreamSeq
from veen_hub.load import RawConnection, batched, open_raw
from veen_selftest.hubs.http_hub import CBOR, CBOR_SEQ, HttpHub, outcome_of
from veen_selftest.peers.writer import Writer, ciphertext_layout
from veen_selftest.runner.check import ClauseViolation, Skip

SEALED = ciphertext_layout(b"".join(H(bytes([n])) for n in range(32))[:1_000])
"""The ciphertext of every message, one kilobyte."""


class RefusedUnderLoad:
    """Makes the finding of a refused request: ``Skip`` if the hub's status announces the refusal."""

    def __init__(self, hub: HttpHub) -> None:
        self._hub = hub

    def __call__(self, head: bytes, body: bytes) -> Exception:
        try:
            self._hub.skip_if_announced(body)
        except Skip as why:
            return why
        return ClauseViolation(f"refused under load: {head!r} {body[:200]!r}")


def open_connection(hub: HttpHub) -> AbstractAsyncContextManager[RawConnection]:
    """Open a connection for load."""
    host, port = hub.address
    return open_raw(host, port, tls=hub.context, prefix=hub.prefix, refused=RefusedUnderLoad(hub))


def require_accepted(hub: HttpHub, answer: bytes) -> None:
    """Raise if a message was refused. The last answer shows it: a refusal entails all later ones (I9).

    Call it after the measurement: decoding costs more than sending.
    """
    for item in cbor.split_sequence(answer):
        if isinstance(outcome_of(item), ErrorEnvelope):
            raise RefusedUnderLoad(hub)(b"a message", item)


async def arrivals(hub: HttpHub, label: Label, start: int, marker: bytes) -> AsyncIterator[float]:
    """Yield the time of arrival of each entry of a live stream."""
    reader, sender = await asyncio.open_connection(*hub.address, limit=2**24, ssl=hub.context)
    try:
        path = f"{hub.prefix}/v1/stream/{label.hex()}?from={start}"
        sender.write(f"GET {path} HTTP/1.1\r\nHost: hub\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        while True:
            size = int((await reader.readuntil(b"\r\n"))[:-2], 16)
            data = await reader.readexactly(size + 2)
            for _ in range(data.count(marker)):
                yield time.perf_counter()
    finally:
        sender.close()


def bodies(writer: Writer, count: int) -> list[bytes]:
    """Return the writer's next messages, each in a submit envelope."""
    return [wrap_submit(writer.next(ciphertext=SEALED)) for _ in range(count)]


async def authorize(hub: HttpHub, tokens: Sequence[bytes], lanes: int = 32) -> None:
    """Authorize many tokens concurrently: the hub makes them durable in groups."""

    async def some(mine: Sequence[bytes]) -> None:
        async with open_connection(hub) as connection:
            for token in mine:
                await connection.post("/tooling/authorize", token)

    await asyncio.gather(*(some(tokens[lane::lanes]) for lane in range(lanes) if tokens[lane::lanes]))


async def drive(hub: HttpHub, prepared: Sequence[Sequence[bytes]], *, sequences: bool) -> float:
    """Return the seconds until all requests are answered, with one connection per lane.

    Each body is one request: a message, or a sequence of messages.
    """
    kind = CBOR_SEQ if sequences else CBOR

    async def one(mine: Sequence[bytes]) -> bytes:
        answer = b""
        async with open_connection(hub) as connection:
            for body in mine:
                answer = await connection.post("/v1/submit", body, kind)
        return answer

    started = time.perf_counter()
    last = await asyncio.gather(*(one(mine) for mine in prepared))
    seconds = time.perf_counter() - started
    for answer in last if sequences else ():
        require_accepted(hub, answer)
    return seconds


async def alone(hub: HttpHub, prepared: Sequence[bytes]) -> float:
    """Return the median seconds of a submit while the hub is otherwise idle."""
    times = []
    async with open_connection(hub) as connection:
        for body in prepared:
            started = time.perf_counter()
            await connection.post("/v1/submit", body)
            times.append(time.perf_counter() - started)
    return statistics.median(times)


async def read_pages(hub: HttpHub, label: Label, upto: int, page: int) -> float:
    """Return the seconds to read all entries by pages, unverified; their number is checked afterwards."""
    pages: list[bytes] = []
    async with open_connection(hub) as connection:
        started = time.perf_counter()
        for start in range(1, upto + 1, page):
            asked = StreamRequest(
                label=label, from_seq=StreamSeq(start), max_items=page, with_receipts=True
            ).encode()
            pages.append(await connection.post("/v1/stream", asked))
        seconds = time.perf_counter() - started
    came = sum(each.count(marker_of(hub)) for each in pages)
    if came != upto:
        raise Skip(
            f"the hub's pages are shorter than asked for: {came:,} of {upto:,} entries in {len(pages)} pages"
        )
    return seconds


def marker_of(hub: HttpHub) -> bytes:
    """Return the bytes with which every MSG of this hub begins (core §4.1)."""
    return b"\x8a\x01\x58\x20" + hub.known.profile.profile_id


async def follow_delays(hub: HttpHub, writer: Writer, seconds: int, per_second: int = 1_000) -> list[float]:
    """Return the sorted delays, in seconds, from a submit's answer to its arrival at a follower."""
    prepared = batched(bodies(writer, seconds * per_second), 10)
    count = seconds * per_second
    marker = marker_of(hub)
    answered: list[float] = []
    arrived: list[float] = []

    async def take() -> None:
        async for moment in arrivals(hub, writer.label, 1, marker):
            arrived.append(moment)
            if len(arrived) == count:
                return

    async def send() -> None:
        answer = b""
        async with open_connection(hub) as connection:
            began = time.perf_counter()
            for at, body in enumerate(prepared):
                await asyncio.sleep(max(0.0, began + at * 10 / per_second - time.perf_counter()))
                answer = await connection.post("/v1/submit", body, CBOR_SEQ)
                answered.extend([time.perf_counter()] * 10)
        require_accepted(hub, answer)

    follower = asyncio.create_task(take())
    try:
        await send()
        await asyncio.wait_for(follower, 20)
    finally:
        follower.cancel()
    return sorted(max(0.0, there - here) for here, there in zip(answered, arrived, strict=True))
