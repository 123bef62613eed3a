"""A real hub, real sockets, and several times what it can take: early refusals, and nothing else is lost.

The loads are the raw generator and the client that ships. Times are bounded by a generous constant only; what
must hold on a slow machine too is compared within one run.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvloop

from veen_core import cbor
from veen_core.api import ErrorEnvelope, StreamRequest, StreamResponse, SubmitResponse
from veen_core.ids import ClientId, Label, StreamSeq
from veen_core.keys import SigningKey
from veen_core.profile import DEFAULT_PROFILE
from veen_hub.client import Identity, Retry, connect
from veen_hub.load import CBOR, CBOR_SEQ, LoadTarget, MessageSigner, RawConnection, open_raw
from veen_storage.shards.reshard import reshard

from .people import ADMIN, envelope, signing_key
from .serving import HubProcess, make_directory

FLOODERS = 48
"""Connections of the flood, each with a label of its own; together they have 3,072 messages in flight."""
BATCH = 64
ENOUGH = 60
"""Batches that must be accepted, and refusals that must be seen, before the flood ends."""
ERROR_ENVELOPE = b"\xa5"
"""How an error envelope begins that has five fields; a response has three."""
MAX_SECONDS = 120.0
MAX_WAIT_SECONDS = 10.0
"""Longest time of an accepted batch, on a machine however slow."""


class RefusedError(Exception):
    """An answer other than 200."""

    def __init__(self, head: bytes, body: bytes) -> None:
        super().__init__(head)
        self.status = int(head.split(b" ", 2)[1])
        self.body = body


@dataclass
class Lane:
    """The next batches of one writer on one label, over one connection."""

    signer: MessageSigner
    label: Label
    connection: RawConnection
    size: int = BATCH
    sent: list[bytes] = field(default_factory=list)
    """The envelopes of accepted messages, in order."""
    seqs: list[StreamSeq] = field(default_factory=list)
    """The stream_seq in the receipt of each."""
    took: list[float] = field(default_factory=list)
    """Seconds of each accepted request."""
    refused_after: list[float] = field(default_factory=list)
    refusals: list[ErrorEnvelope] = field(default_factory=list)

    async def send(self, bodies: Sequence[bytes]) -> bool:
        """Send one request; return whether it was accepted."""
        started = time.perf_counter()
        try:
            kind = CBOR_SEQ if len(bodies) > 1 else CBOR
            answer = await self.connection.post("/v1/submit", b"".join(bodies), kind)
        except RefusedError as refused:
            if refused.status != 503:
                raise
            self.refused_after.append(time.perf_counter() - started)
            self.refusals.append(ErrorEnvelope.decode(refused.body))
            return False
        seconds, items = time.perf_counter() - started, list(cbor.split_sequence(answer))
        assert len(items) == len(bodies)
        if items[0].startswith(ERROR_ENVELOPE):  # one shard has refused what another one has passed on
            self.refused_after.append(seconds)
            self.refusals += [ErrorEnvelope.decode(item) for item in items]
            return False
        self.took.append(seconds)
        receipts = [SubmitResponse.decode(item).receipt for item in items]
        self.sent += bodies
        self.seqs += [receipt.stream_seq for receipt in receipts]
        return True

    def next(self) -> list[bytes]:
        """Return the envelopes of the next request."""
        return self.signer.bodies(self.label, self.size)

    async def flood(self, has_ended: Callable[[], bool]) -> None:
        """Send batch after batch, and repeat a refused one at once, whatever Retry-After says."""
        bodies = self.next()
        while not has_ended():
            if await self.send(bodies):
                bodies = self.next()


@pytest.fixture(params=[1, 2], ids=["one shard", "two shards"])
def hub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HubProcess]:
    shards, root = request.param, tmp_path / "data"
    make_directory(root, born=int(time.time()) - 100)
    if shards > 1:
        reshard(root, tmp_path / "sharded", shards)
        root = tmp_path / "sharded"
    config = tmp_path / "hub.yaml"
    config.write_text(f"shards: {shards}\nmax_wait_ms: 50\n")
    process = HubProcess(root, f"--config={config}", log=tmp_path / "hub.log")
    yield process
    process.kill()


@contextlib.asynccontextmanager
async def lanes_of(
    hub: HubProcess, key: SigningKey, count: int, size: int = BATCH
) -> AsyncIterator[list[Lane]]:
    target = LoadTarget(url=hub.url, hub_id=hub.status().identity.hub_id, admin=ADMIN, refused=RefusedError)
    streams = [f"{ClientId(key.public).hex()[:8]}/{n}" for n in range(count)]
    token = target.token(ClientId(key.public), streams)
    hub.authorize(token)
    signer = MessageSigner(key, DEFAULT_PROFILE, token.auth_ref, b"x" * 100)
    async with contextlib.AsyncExitStack() as stack:
        yield [
            Lane(
                signer,
                target.label(stream),
                await stack.enter_async_context(open_raw("127.0.0.1", hub.port, refused=RefusedError)),
                size,
            )
            for stream in streams
        ]


def stored(hub: HubProcess, label: Label) -> list[bytes]:
    """Return the messages of a label."""
    found: list[bytes] = []
    cursor: StreamSeq | None = StreamSeq(1)
    while cursor is not None:
        asked = StreamRequest(label=label, from_seq=cursor, max_items=1_000)
        answer = hub.post("/v1/stream", asked)
        if answer.status == 404:  # a label without entries
            return found
        page = answer.read(StreamResponse)
        found += [item.msg.encode() for item in page.items]
        cursor = page.next_cursor
    return found


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(MAX_SECONDS):
            await story()

    uvloop.run(bounded())


# --- the raw generator, which ignores Retry-After


def test_a_flood_is_refused_early_and_nothing_that_was_acknowledged_is_lost(hub: HubProcess) -> None:
    async def story() -> None:
        async with (
            lanes_of(hub, signing_key("flood"), FLOODERS) as flood,
            lanes_of(hub, signing_key("modest"), 1, size=1) as [modest],
        ):
            assert await modest.send(modest.next())

            def has_ended() -> bool:
                accepted = sum(len(lane.took) for lane in flood)
                return accepted >= ENOUGH and sum(len(lane.refusals) for lane in flood) >= ENOUGH

            async def write_modestly() -> None:
                while not has_ended():
                    await modest.send(modest.next())

            await asyncio.gather(write_modestly(), *(lane.flood(has_ended) for lane in flood))
            took = [seconds for lane in flood for seconds in lane.took]
            refusals = [one for lane in flood for one in lane.refusals]
            assert all(one.code == "E.UNAVAILABLE" and (one.retry_after or 0) >= 1 for one in refusals)
            assert max(took) < MAX_WAIT_SECONDS
            early = [seconds for lane in flood for seconds in lane.refused_after]
            assert statistics.median(early) < 5 * statistics.median(took)

            assert not modest.refusals, "one flooding writer keeps nothing from another one"
            assert statistics.median(modest.took) < statistics.median(took)

            assert await modest.send(modest.next()), "the hub has recovered once the flood has ended"
            assert hub.metric("veen_queue_depth") == 0
            assert sum(hub.metric("veen_overload_refused_total", why=why) for why in ("wait", "share")) > 0
        for lane in [*flood, modest]:
            assert lane.seqs == list(range(1, len(lane.sent) + 1))
            assert [envelope(wire) for wire in stored(hub, lane.label)] == lane.sent
        assert hub.stop() == 0

    run(story)


# --- the client that ships


def test_the_client_waits_as_it_is_told_and_neither_loses_nor_repeats_a_message(tmp_path: Path) -> None:
    """Four clients at a hub with room for one batch at a time."""
    root = tmp_path / "data"
    hub_id = make_directory(root, born=int(time.time()) - 100)
    config = tmp_path / "hub.yaml"
    config.write_text(f"gating: false\nmax_waiting: {BATCH}\n")
    hub = HubProcess(root, f"--config={config}", log=tmp_path / "hub.log")

    async def story() -> None:
        bodies = [str(n) for n in range(2 * BATCH)]

        async def one(number: int) -> None:
            retry = Retry(max_attempts=1_000, deadline=MAX_SECONDS)
            identity = Identity.generate()
            async with connect(
                hub.url, identity, trust=hub_id, state=tmp_path / f"state {number}", retry=retry, batch=BATCH
            ) as client:
                stream = client.stream(f"lane/{number}")
                seqs = [receipt.stream_seq async for receipt in stream.send_many(bodies)]
                assert seqs == list(range(1, len(bodies) + 1))
                assert [message.text async for message in stream.read(to_seq=len(bodies))] == bodies

        await asyncio.gather(*(one(number) for number in range(4)))
        refused = sum(
            hub.metric("veen_overload_refused_total", why=why) for why in ("messages", "wait", "share")
        )
        assert refused > 0

    try:
        run(story)
    finally:
        hub.kill()
