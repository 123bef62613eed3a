"""Load on a hub: raw HTTP on connections that stay open, so that the client costs as little as it can."""

from __future__ import annotations

import asyncio
import contextlib
import re
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from typing import cast

from veen_core import cbor
from veen_core.api import ErrorEnvelope, StreamRequest, wrap_submit
from veen_core.hashing import H
from veen_core.ids import Label, StreamSeq
from veen_selftest.hubs.http_hub import CBOR, CBOR_SEQ, Hub, outcome_of
from veen_selftest.peers.writer import Writer, laid_out
from veen_selftest.runner.check import Skip, Violation

TOGETHER = 64
LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)
SEALED = laid_out(b"".join(H(bytes([n])) for n in range(32))[:1_000])
"""Every message has a kilobyte in it."""


class Line(asyncio.Protocol):
    """One connection, one request at a time: as little as a client can do beside the hub it measures."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._transport: asyncio.Transport | None = None
        self._got = b""
        self._answered: asyncio.Future[bytes] | None = None
        self._last = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._got += data
        if (end := self._got.find(b"\r\n\r\n")) < 0 or self._answered is None:
            return
        length = LENGTH.search(self._got, 0, end)
        size = end + 4 + (int(length[1]) if length else 0)
        if len(self._got) < size:
            return
        answer, self._got = self._got[:size], self._got[size:]
        if answer.startswith(b"HTTP/1.1 200"):
            self._answered.set_result(answer[end + 4 :])
        else:
            self._answered.set_exception(self._refusal(answer[:40], answer[end + 4 :]))

    def _refusal(self, head: bytes, body: bytes) -> Skip | Violation:
        try:
            self._hub.excuse(body)
        except Skip as why:
            return why
        return Violation(f"refused under load: {head!r} {body[:200]!r}")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(exc or ConnectionError("the hub closed the connection under load"))

    async def post(self, path: str, body: bytes, kind: str = CBOR) -> bytes:
        about = f"Host: hub\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        assert self._transport is not None
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(f"POST {self._hub.prefix}{path} HTTP/1.1\r\n{about}".encode() + body)
        return await self._answered

    async def submit(self, body: bytes) -> None:
        await self.post("/v1/submit", body)

    async def submit_many(self, body: bytes) -> None:
        self._last = await self.post("/v1/submit", body, CBOR_SEQ)

    def must_have_been_taken(self) -> None:
        """Sequences of one writer: with one message, all after it are refused (I9), so the last answer tells.

        Asked when the clock has stopped: to decode costs more than to send.
        """
        for item in cbor.split_sequence(self._last):
            if isinstance(outcome_of(item), ErrorEnvelope):
                raise self._refusal(b"a message", item)


@contextlib.asynccontextmanager
async def line(hub: Hub) -> AsyncIterator[Line]:
    transport, made = await asyncio.get_running_loop().create_connection(
        lambda: Line(hub), *hub.address, ssl=hub.context
    )
    try:
        yield made
    finally:
        transport.close()


async def arrivals(hub: Hub, label: Label, start: int, marker: bytes) -> AsyncIterator[float]:
    """Moments at which entries of a live stream came."""
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
    """The writer's next messages, each an envelope."""
    return [wrap_submit(writer.next(ciphertext=SEALED)) for _ in range(count)]


def batched(envelopes: Sequence[bytes], size: int = TOGETHER) -> list[bytes]:
    return [b"".join(envelopes[at : at + size]) for at in range(0, len(envelopes), size)]


async def authorize(hub: Hub, tokens: Sequence[bytes], lanes: int = 32) -> None:
    """Many tokens at once: the hub makes them durable in groups."""

    async def some(mine: Sequence[bytes]) -> None:
        async with line(hub) as connection:
            for token in mine:
                await connection.post("/tooling/authorize", token)

    await asyncio.gather(*(some(tokens[lane::lanes]) for lane in range(lanes) if tokens[lane::lanes]))


async def drive(hub: Hub, prepared: Sequence[Sequence[bytes]], *, sequences: bool) -> float:
    """Seconds until all are answered: a connection a lane, one body a request, a message or a sequence."""

    async def one(mine: Sequence[bytes]) -> Line:
        async with line(hub) as connection:
            send = connection.submit_many if sequences else connection.submit
            for body in mine:
                await send(body)
        return connection

    started = time.perf_counter()
    lanes = await asyncio.gather(*(one(mine) for mine in prepared))
    seconds = time.perf_counter() - started
    for lane in lanes:
        lane.must_have_been_taken()
    return seconds


async def alone(hub: Hub, prepared: Sequence[bytes]) -> float:
    """Seconds of one submit while nothing else goes on, at the median."""
    times = []
    async with line(hub) as connection:
        for body in prepared:
            started = time.perf_counter()
            await connection.submit(body)
            times.append(time.perf_counter() - started)
    return statistics.median(times)


async def read_pages(hub: Hub, label: Label, upto: int, page: int) -> float:
    """Seconds to read all entries by pages, without verifying; that all came is seen afterwards."""
    pages: list[bytes] = []
    async with line(hub) as connection:
        started = time.perf_counter()
        for start in range(1, upto + 1, page):
            asked = StreamRequest(
                label=label, from_seq=StreamSeq(start), max_items=page, with_receipts=True
            ).encode()
            pages.append(await connection.post("/v1/stream", asked))
        seconds = time.perf_counter() - started
    came = sum(each.count(marker_of(hub)) for each in pages)
    if came != upto:
        raise Skip(f"its pages are shorter than asked for: {came:,} of {upto:,} entries came in {len(pages)}")
    return seconds


def marker_of(hub: Hub) -> bytes:
    """How every MSG of this hub begins (§4.1)."""
    return b"\x8a\x01\x58\x20" + hub.known.profile.profile_id


async def follow_delays(hub: Hub, writer: Writer, seconds: int, per_second: int = 1_000) -> list[float]:
    """Seconds from each submit's answer (so: durable) to its arrival at a follower, sorted."""
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
        async with line(hub) as connection:
            began = time.perf_counter()
            for at, body in enumerate(prepared):
                await asyncio.sleep(max(0.0, began + at * 10 / per_second - time.perf_counter()))
                await connection.submit_many(body)
                answered.extend([time.perf_counter()] * 10)
        connection.must_have_been_taken()

    follower = asyncio.create_task(take())
    try:
        await send()
        await asyncio.wait_for(follower, 20)
    finally:
        follower.cancel()
    return sorted(max(0.0, there - here) for here, there in zip(answered, arrived, strict=True))
