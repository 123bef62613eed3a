"""The two clients that send signed messages over HTTP: a plain one (aiohttp) and the raw generator.

They differ in their connections only, so that their rates compare the connections.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from veen_core import cbor
from veen_core.api import StreamRequest, StreamResponse, SubmitResponse
from veen_core.errors import DecodeError
from veen_core.ids import Label, StreamSeq
from veen_hub.load.raw import CBOR, CBOR_SEQ, RefusalFactory
from veen_hub.load.signer import MessageSigner

MESSAGES_PER_BATCH: Final = 64
"""Messages per request in a batch."""
CONCURRENT_BATCHES: Final = 16
"""Requests in flight while batches are measured."""


class LoadConnection(Protocol):
    """A connection of one of the two clients."""

    async def post(self, path: str, body: bytes, kind: str = CBOR) -> bytes:
        """Send a request and return the body of its answer."""


def lanes_of(stream: str, count: int) -> list[str]:
    """Return names of streams that are written to at once.

    The messages of one writer must reach a stream in order (I9), so requests in flight need a stream each.
    """
    return [f"{stream}/{lane}" for lane in range(count)]


def batched(envelopes: Sequence[bytes], size: int = MESSAGES_PER_BATCH) -> list[bytes]:
    """Join envelopes to sequences of at most ``size`` messages (H14)."""
    return [b"".join(envelopes[at : at + size]) for at in range(0, len(envelopes), size)]


class HttpClient:
    """Work for one client; each method returns the seconds that it took, without signing and decoding."""

    def __init__(
        self,
        connections: Sequence[LoadConnection],
        signer: MessageSigner,
        *,
        label_of: Callable[[str], Label],
        page: int,
        refused: RefusalFactory,
    ) -> None:
        self._connections = connections
        self._signer = signer
        self._label_of = label_of
        self._page = page
        self._refused = refused

    async def one_by_one(self, stream: str, count: int) -> float:
        """Send each message after the answer to the one before."""
        return await self._drive([self._next(stream, count)], CBOR)

    async def in_flight(self, stream: str, senders: int, each: int) -> float:
        """Send on many streams at once, one message per stream at a time."""
        return await self._drive([self._next(lane, each) for lane in lanes_of(stream, senders)], CBOR)

    async def batches(self, stream: str, count: int) -> float:
        """Send batches on several streams at once, one batch per stream at a time."""
        lanes = lanes_of(stream, CONCURRENT_BATCHES)
        return await self._drive([batched(self._next(lane, count // len(lanes))) for lane in lanes], CBOR_SEQ)

    async def reading(self, stream: str, count: int) -> float:
        """Read ``count`` entries by pages, with receipts; nothing is verified."""
        label = self._label_of(stream)
        asked = [
            StreamRequest(label=label, from_seq=StreamSeq(start), max_items=self._page, with_receipts=True)
            for start in range(1, count + 1, self._page)
        ]
        started = time.perf_counter()
        pages = [await self._connections[0].post("/v1/stream", one.encode()) for one in asked]
        seconds = time.perf_counter() - started
        came = sum(len(StreamResponse.decode(page).items) for page in pages)
        if came != count:
            raise self._refused(b"short pages", f"{came} of {count} entries".encode())
        return seconds

    def _next(self, stream: str, count: int) -> list[bytes]:
        return self._signer.bodies(self._label_of(stream), count)

    async def _drive(self, lanes: Sequence[Sequence[bytes]], kind: str) -> float:
        async def send(connection: LoadConnection, bodies: Sequence[bytes]) -> bytes:
            answer = b""
            for body in bodies:
                answer = await connection.post("/v1/submit", body, kind)
            return answer

        started = time.perf_counter()
        last = await asyncio.gather(
            *(send(connection, lane) for connection, lane in zip(self._connections, lanes, strict=False))
        )
        seconds = time.perf_counter() - started
        for answer in last:
            self._require_receipts(answer)
        return seconds

    def _require_receipts(self, answer: bytes) -> None:
        """Raise if a message was refused. The last answer shows it: a refusal entails all later ones (I9)."""
        for item in cbor.split_sequence(answer):
            try:
                SubmitResponse.decode(item)
            except DecodeError:
                raise self._refused(b"a message", item) from None
