"""The client against a real hub: sending, reading, following, attachments, tokens, evidence (§9)."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web

from veen_core import LogReader, LogWriter, StreamSeq
from veen_core.api import ErrorEnvelope, ReceiptRequest
from veen_core.cap import Rate
from veen_core.client_state import ClientBounds
from veen_core.entry import verify_authorize
from veen_core.errors import DecodeError, OpenError, StateError
from veen_core.hashing import H
from veen_core.ids import ClientId, SchemaId, StreamId, UnixTime
from veen_core.keys import DhKey, DhSecret, SigningKey, SigningSeed
from veen_core.msg import operation_id
from veen_core.receipt import Receipt
from veen_core.rejection import Code
from veen_hub.client import (
    BYTES,
    TEXT,
    AttachmentRef,
    BoundsReached,
    CapRefused,
    Denied,
    NotFound,
    OutOfTime,
    RateLimited,
    Refused,
    Retry,
    Unreachable,
    connect,
)
from veen_hub.client.reading.message import Message
from veen_hub.client.sending.batches_ahead import MAX_BATCHES
from veen_hub.client.sending.batching import MAX_HELD_BYTES
from veen_hub.client.wire.endpoints import Endpoints
from veen_hub.client.wire.shared_submits import MAX_REQUEST_BYTES, SharedSubmits

from .client_fixtures import ADMIN, QUICK, HubProcess, person, run, serving, token_for
from .client_proxy import Proxy, between

ALICE, BOB = person("alice"), person("bob")


@pytest.fixture(scope="module")
def open_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with serving(tmp_path_factory.mktemp("open")) as hub:
        yield hub


@pytest.fixture(scope="module")
def gated_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with serving(tmp_path_factory.mktemp("gated"), gated=True) as hub:
        yield hub


async def collect(messages: AsyncIterator[Message], count: int) -> list[Message]:
    found: list[Message] = []
    async for message in messages:
        found.append(message)
        if len(found) == count:
            break
    return found


# --- sending and reading


def test_only_the_recipient_opens_a_message(open_hub: HubProcess) -> None:
    async def story() -> None:
        async with (
            connect(open_hub.url, ALICE, trust=open_hub.hub_id) as alice,
            connect(open_hub.url, BOB, trust=open_hub.hub_id) as bob,
        ):
            receipt = await alice.stream("letters").send("dear Bob", to=BOB.card)
            assert receipt.stream_seq == 1
            (at_bob,) = [m async for m in bob.stream("letters").read()]
            (at_alice,) = [m async for m in alice.stream("letters").read()]
            assert (at_bob.text, at_bob.schema, at_bob.id) == ("dear Bob", TEXT, receipt.leaf_hash)
            assert not at_alice.is_open
            with pytest.raises(OpenError):
                _ = at_alice.body

    run(story())


def test_readers_of_a_stream_share_its_reader_key(open_hub: HubProcess) -> None:
    shared = DhKey(DhSecret(H(b"the readers of shared")))

    async def story() -> None:
        async with (
            connect(open_hub.url, ALICE, trust=open_hub.hub_id) as alice,
            connect(open_hub.url, BOB, trust=open_hub.hub_id) as bob,
        ):
            await alice.stream("shared", readers=[shared]).send(b"for all of us")
            await bob.stream("shared", to=shared.public).send(b"from bob")
            for hub in (alice, bob):
                bodies = [m.body async for m in hub.stream("shared", readers=[shared]).read()]
                assert bodies == [b"for all of us", b"from bob"]

    run(story())


@dataclass(frozen=True)
class Order:
    what: str

    @property
    def schema_id(self) -> SchemaId:
        return SchemaId(H(b"order.v1"))

    def encode(self) -> bytes:
        return self.what.encode()


def test_bodies_are_bytes_text_or_records_and_headers_arrive(open_hub: HubProcess) -> None:
    async def story() -> None:
        async with connect(open_hub.url, ALICE, trust=open_hub.hub_id) as hub:
            stream = hub.stream("bodies")
            first = await stream.send(b"\x00\x01")
            await stream.send(Order("tea"), parent=first.leaf_hash, expires_at=UnixTime(7))
            await stream.send("named", schema="other.v1")
            raw, order, named = [m async for m in stream.read()]
            assert (raw.body, raw.schema) == (b"\x00\x01", BYTES)
            assert (order.text, order.schema) == ("tea", Order("").schema_id)
            assert (order.header.parent_id, order.header.expires_at) == (first.leaf_hash, 7)
            assert named.schema == SchemaId(H(b"other.v1"))
            assert operation_id(raw.id) != operation_id(order.id)

    run(story())


def test_many_messages_keep_their_order_and_get_one_receipt_each(open_hub: HubProcess) -> None:
    bodies = [f"message {n}".encode() for n in range(300)]

    async def slowly() -> AsyncIterator[bytes]:
        for body in bodies:
            yield body

    async def story() -> None:
        async with connect(open_hub.url, ALICE, trust=open_hub.hub_id) as hub:
            stream = hub.stream("many")
            receipts = [r async for r in stream.send_many(bodies)]
            assert [r.stream_seq for r in receipts] == list(range(1, 301))
            receipts = [r async for r in stream.send_many(slowly())]
            assert [r.stream_seq for r in receipts] == list(range(301, 601))
            assert [m.body async for m in stream.read()] == bodies * 2
            assert [m.stream_seq async for m in stream.read(50, 52)] == [50, 51, 52]

    run(story())


def test_sending_inside_the_loop_over_receipts_does_not_deadlock(open_hub: HubProcess) -> None:
    async def story() -> None:
        async with connect(open_hub.url, ALICE, trust=open_hub.hub_id, batch=4) as hub:
            stream = hub.stream("nested")
            async for _ in stream.send_many([b"outer"] * 8):
                await stream.send(b"inner")
            assert (await stream.head()).stream_seq == 16  # type: ignore[union-attr]

    run(story())


def test_a_source_that_fills_batches_partly_sends_each_message_once(open_hub: HubProcess) -> None:
    """A batch sealed ahead may be smaller than what is available when its turn comes."""
    texts = [str(n) for n in range(600)]

    async def trickle() -> AsyncIterator[str]:
        for n, text in enumerate(texts):
            if n % 7 < 2:
                await asyncio.sleep(n % 5 / 5_000)  # a slow source: up to a millisecond between its items
            yield text

    async def main() -> list[str]:
        async with connect(open_hub.url, ALICE, trust=open_hub.hub_id) as hub:
            stream = hub.stream("trickle")
            receipts = [r async for r in stream.send_many(trickle())]
            assert len(receipts) == len(texts)
            return [message.text async for message in stream.read()]

    assert run(main()) == texts


def test_a_single_message_does_not_wait_for_all_batches_of_send_many(open_hub: HubProcess) -> None:
    async def story() -> None:
        async with connect(open_hub.url, ALICE, trust=open_hub.hub_id, batch=4) as hub:
            stream, begun = hub.stream("turns"), asyncio.Event()

            def bodies() -> Iterator[bytes]:
                for number in range(400):
                    if number == 40:
                        begun.set()
                    yield b"many"

            async def many() -> list[int]:
                return [r.stream_seq async for r in stream.send_many(bodies())]

            sending = asyncio.create_task(many())
            await begun.wait()
            assert (await stream.send(b"single")).stream_seq < 80
            assert len(await sending) == 400
            assert [m.body async for m in stream.read()].count(b"many") == 400

    run(story())


def test_a_large_source_is_held_in_parts_of_a_few_megabytes(open_hub: HubProcess) -> None:
    body, taken, acknowledged = bytes(500_000), 0, 0

    def bodies() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(60):
            assert (taken - acknowledged) * len(body) < MAX_HELD_BYTES + MAX_BATCHES * MAX_REQUEST_BYTES
            taken += 1
            yield body

    async def story() -> None:
        nonlocal acknowledged
        async with connect(open_hub.url, ALICE, trust=open_hub.hub_id) as hub:
            async for _ in hub.stream("large").send_many(bodies()):
                acknowledged += 1

    run(story())
    assert acknowledged == 60


def test_an_error_of_a_plain_source_and_a_message_that_cannot_be_sealed_follow_the_receipts(
    open_hub: HubProcess,
) -> None:
    def broken() -> Iterator[bytes]:
        yield from [b"one"] * 10
        raise LookupError("the file ended")

    async def story() -> None:
        async with connect(open_hub.url, ALICE, trust=open_hub.hub_id, batch=4) as hub:
            stream, came = hub.stream("broken plainly"), 0

            async def consume(source: Iterable[bytes]) -> None:
                nonlocal came
                async for _ in stream.send_many(source):
                    came += 1

            too_long = [b"two"] * 10 + [bytes(2_000_000)] + [b"never"] * 10
            for source, error in ((broken(), LookupError), (too_long, DecodeError)):
                with pytest.raises(error):
                    await consume(source)
            assert came == 18  # the batch of four with the long message is not sent
            assert [m.body async for m in stream.read()] == [b"one"] * 10 + [b"two"] * 8

    run(story())


def test_an_error_of_the_source_follows_the_receipts(open_hub: HubProcess) -> None:
    async def source() -> AsyncIterator[bytes]:
        yield b"one"
        raise LookupError("the file ended")

    async def story() -> None:
        async with connect(open_hub.url, ALICE, trust=open_hub.hub_id) as hub:
            with pytest.raises(LookupError):
                async for _ in hub.stream("broken source").send_many(source()):
                    pass

    run(story())


def test_interleaved_writers_close_gaps_by_proofs(open_hub: HubProcess) -> None:
    async def story() -> None:
        async with (
            connect(open_hub.url, ALICE, trust=open_hub.hub_id) as alice,
            connect(open_hub.url, BOB, trust=open_hub.hub_id) as bob,
        ):
            streams = [alice.stream("both"), bob.stream("both")]

            async def write(which: int) -> None:
                for n in range(5):
                    await streams[which].send(f"{which}/{n}")
                async for _ in streams[which].send_many([f"{which}/{n}" for n in range(5, 100)]):
                    pass

            await asyncio.gather(write(0), write(1))
            heads = [await stream.head() for stream in streams]
            assert heads[0] == heads[1]
            assert heads[0] is not None
            assert heads[0].stream_seq == 200
            assert len([m async for m in streams[0].read()]) == 200

    run(story())


def test_follow_yields_existing_and_new_messages(open_hub: HubProcess) -> None:
    async def story() -> None:
        async with (
            connect(open_hub.url, ALICE, trust=open_hub.hub_id) as alice,
            connect(open_hub.url, BOB, trust=open_hub.hub_id) as bob,
        ):
            stream = alice.stream("live", to=BOB.recipient)
            await stream.send("before")
            following = asyncio.create_task(collect(bob.stream("live").follow(), 4))
            for n in range(3):
                await stream.send(f"after {n}")
            assert [m.text for m in await following] == ["before", "after 0", "after 1", "after 2"]

    run(story())


def test_a_client_that_follows_its_own_stream_gets_receipts_and_messages(open_hub: HubProcess) -> None:
    async def story() -> None:
        async with connect(open_hub.url, ALICE, trust=open_hub.hub_id) as hub:
            stream = hub.stream("mirror")
            following = asyncio.create_task(collect(stream.follow(), 150))
            for n in range(20):
                await stream.send(str(n))
            sent = [r.stream_seq async for r in stream.send_many(str(n) for n in range(20, 150))]
            assert sent == list(range(21, 151))
            assert [m.text for m in await following] == [str(n) for n in range(150)]

    run(story())


# --- attachments


def test_attachments_are_returned_unchanged(open_hub: HubProcess, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(range(256)) * 4_096 * 2)

    async def story() -> None:
        async with (
            connect(open_hub.url, ALICE, trust=open_hub.hub_id) as alice,
            connect(open_hub.url, BOB, trust=open_hub.hub_id) as bob,
        ):
            await alice.stream("files").send("see below", to=BOB.card, attachments=[b"small", large])
            (message,) = [m async for m in bob.stream("files").read()]
            assert (message.text, message.schema) == ("see below", TEXT)
            assert [ref.size for ref in message.attachments] == [5, 2_097_152]
            assert await bob.stream("files").attachment(message, 0) == b"small"
            assert await bob.stream("files").attachment(message, message.attachments[1]) == large.read_bytes()

    run(story())


def test_a_body_may_be_composed_around_its_attachments(open_hub: HubProcess) -> None:
    async def story() -> None:
        async with connect(open_hub.url, ALICE, trust=open_hub.hub_id) as hub:
            stream = hub.stream("composed")

            def compose(refs: object) -> bytes:
                assert isinstance(refs, tuple)
                assert isinstance(refs[0], AttachmentRef)
                return bytes(refs[0].coid)

            await stream.send(compose, attachments=[b"content"], schema="mine.v1")
            (message,) = [m async for m in stream.read()]
            ciphertext = await hub.fetch(type(message.header.att_root)(message.body))  # type: ignore[arg-type,misc]
            assert message.opened.attachment(0, ciphertext) == b"content"

    run(story())


def test_a_missing_attachment_is_not_found(open_hub: HubProcess) -> None:
    async def story() -> None:
        async with connect(open_hub.url, ALICE, trust=open_hub.hub_id) as hub:
            with pytest.raises(NotFound):
                await hub.fetch(AttachmentRef.codec.fields[0].kind.read(bytes(32)))

    run(story())


# --- authority


def test_a_refusal_without_a_token_names_the_stream_and_the_next_step(gated_hub: HubProcess) -> None:
    async def story() -> None:
        async with connect(gated_hub.url, ALICE, trust=gated_hub.hub_id) as hub:
            for attachments in ([], [b"attached"]):
                with pytest.raises(CapRefused, match=r"stream orders: .*; authorize a token") as caught:
                    await hub.stream("orders").send("hello", attachments=attachments)
            assert (caught.value.code, caught.value.detail_enum) == (Code.CAP, "CAP_MISSING")
            assert caught.value.request_id
            assert isinstance(caught.value, Denied | Refused)

    run(story())


def test_a_token_for_the_identity_opens_the_gate(gated_hub: HubProcess, tmp_path: Path) -> None:
    token = token_for(ALICE.client_id, "orders", "parcels")

    async def story() -> None:
        async with connect(gated_hub.url, ALICE, trust=gated_hub.hub_id, state=tmp_path) as hub:
            receipt = await hub.authorize(token)
            assert (await hub.cap_status(token.auth_ref)).issued_at == receipt.hub_ts
            assert await hub.authorize(token) == receipt  # H5: never renewed
            await hub.stream("orders").send("hello")
            await hub.stream("parcels").send("with", attachments=[b"a box"])
            (message,) = [m async for m in hub.stream("orders").read()]
            assert (message.client_id, message.header.cap_ref) == (ALICE.client_id, token.auth_ref)
            with pytest.raises(CapRefused) as caught:
                await hub.stream("elsewhere").send("hello", cap=token)
            assert caught.value.detail_enum == "CAP_SCOPE"
        async with connect(gated_hub.url, ALICE, trust=gated_hub.hub_id, state=tmp_path) as hub:
            await hub.stream("orders").send("the token was kept")

    run(story())


def test_a_token_for_a_drawn_client_id_opens_the_gate(gated_hub: HubProcess, tmp_path: Path) -> None:
    async def story() -> None:
        async with connect(gated_hub.url, ALICE, trust=gated_hub.hub_id, state=tmp_path) as hub:
            client_id = await hub.stream("drawn").client_id()
        token = token_for(client_id, "drawn")
        async with connect(gated_hub.url, ALICE, trust=gated_hub.hub_id, state=tmp_path) as hub:
            await hub.stream("drawn").send("hello", cap=token)
        async with connect(gated_hub.url, BOB, trust=gated_hub.hub_id) as hub:
            with pytest.raises(StateError, match="does not have its key"):
                await hub.stream("drawn").send("hello", cap=token)

    run(story())


def test_a_lost_state_is_rebuilt_from_the_log(gated_hub: HubProcess) -> None:
    """The token names the identity's key, whose last client_seq is known only from the log."""
    token = token_for(ALICE.client_id, "lost state")

    async def story() -> None:
        for expected in (1, 2, 3):
            async with connect(gated_hub.url, ALICE, trust=gated_hub.hub_id) as hub:
                assert (await hub.stream("lost state").send("again", cap=token)).stream_seq == expected

    run(story())


@pytest.mark.parametrize("ends_stale", [False, True], ids=["lost state", "restored state"])
def test_a_batch_from_an_old_state_arrives_whole_and_in_order(
    gated_hub: HubProcess, tmp_path: Path, ends_stale: bool
) -> None:
    """The first client_seqs of the batch were used, and the hub would accept the later ones alone."""
    name = f"old state {ends_stale}"
    token = token_for(ALICE.client_id, name)

    async def send(state: Path, texts: Sequence[str]) -> None:
        async with connect(gated_hub.url, ALICE, trust=gated_hub.hub_id, state=state) as hub:
            async for _ in hub.stream(name).send_many(texts, cap=token):
                pass

    async def story() -> None:
        first, second = [f"{n}" for n in range(30)], [f"{n}" for n in range(30, 130)]
        await send(tmp_path / "a", first[:10])
        if ends_stale:
            shutil.copytree(tmp_path / "a", tmp_path / "b")
        await send(tmp_path / "a", first[10:])
        await send(tmp_path / "b", second)
        async with connect(gated_hub.url, ALICE, trust=gated_hub.hub_id) as hub:
            assert [message.text async for message in hub.stream(name).read()] == first + second

    run(story())


def test_refusals_have_types(gated_hub: HubProcess) -> None:
    slow = token_for(ALICE.client_id, "slow", rate=Rate(per_sec=0, burst=1))

    async def story() -> None:
        patience = Retry(max_attempts=2, first_delay=0.01, deadline=3)
        async with connect(gated_hub.url, ALICE, trust=gated_hub.hub_id, retry=patience) as hub:
            await hub.stream("slow").send("once", cap=slow)
            with pytest.raises(RateLimited) as caught:
                await hub.stream("slow").send("twice", cap=slow)
            assert caught.value.retry_after == 1
            with pytest.raises(NotFound):
                await hub.stream("nothing here").receipt(1)
            stranger = SigningKey(SigningSeed(H(b"stranger")))
            with pytest.raises(Denied):
                await hub.admin(stranger).retention()
            short = token_for(ALICE.client_id, "short", ttl=0)
            await hub.authorize(short)
            await asyncio.sleep(1.1)
            with pytest.raises(OutOfTime) as late:
                await hub.stream("short").send("late", cap=short)
            assert late.value.detail_enum == "CAP_TTL"

    run(story())


def test_client_ids_rotate_at_their_bounds(open_hub: HubProcess, tmp_path: Path) -> None:
    bounds = ClientBounds(max_msgs_per_client_id_per_label=5)

    async def story() -> None:
        async with connect(open_hub.url, ALICE, trust=open_hub.hub_id, state=tmp_path, bounds=bounds) as hub:
            stream = hub.stream("rotating ids")
            for _ in range(7):
                await stream.send("x")
            async for _ in stream.send_many(["y"] * 16):
                pass
            used = [m.client_id async for m in stream.read()]
            assert len(used) == 23
            assert all(used.count(one) <= 5 for one in used)
            assert len(set(used)) == 5
            assert ALICE.client_id not in used  # KEX0.2: never in the open

    run(story())


def test_a_token_source_gives_each_fresh_client_id_its_token(gated_hub: HubProcess) -> None:
    asked: list[ClientId] = []

    async def source(client_id: ClientId, _stream: StreamId) -> object:
        asked.append(client_id)
        return token_for(client_id, "sourced")

    async def story() -> None:
        bounds = ClientBounds(max_msgs_per_client_id_per_label=3)
        async with connect(
            gated_hub.url,
            ALICE,
            trust=gated_hub.hub_id,
            tokens=source,
            bounds=bounds,  # type: ignore[arg-type]
        ) as hub:
            for _ in range(4):
                await hub.stream("sourced").send("x")
            async for _ in hub.stream("sourced").send_many(["y"] * 5):
                pass
            assert len([m async for m in hub.stream("sourced").read()]) == 9
        assert len(asked) == len(set(asked)) >= 3

    run(story())


def test_an_exhausted_client_id_of_a_token_is_not_used(gated_hub: HubProcess) -> None:
    token = token_for(ALICE.client_id, "worn")

    async def story() -> None:
        bounds = ClientBounds(max_msgs_per_client_id_per_label=1)
        async with connect(gated_hub.url, ALICE, trust=gated_hub.hub_id, bounds=bounds) as hub:
            await hub.stream("worn").send("x", cap=token)
            with pytest.raises(BoundsReached, match="reached its bounds"):
                await hub.stream("worn").send("x", cap=token)

    run(story())


# --- evidence


def test_receipts_proofs_and_checkpoints_are_verified(open_hub: HubProcess) -> None:
    async def story() -> None:
        async with connect(open_hub.url, ALICE, trust=open_hub.hub_id) as hub:
            stream = hub.stream("evidence")
            assert await stream.head() is None
            assert await stream.checkpoint() is None
            sent = [r async for r in stream.send_many(["x"] * 37)]
            assert await stream.receipt(20) == sent[19]
            assert (await stream.proof(5)).leaf_hash == sent[4].leaf_hash
            assert (await stream.proof(5, 30)).leaf_hash == sent[4].leaf_hash
            assert (await stream.consistency(3, 29)).to_seq == 29
            (made,) = await hub.admin(ADMIN).checkpoint(stream.label())
            assert await stream.checkpoint() == made
            await stream.send("one more")
            assert await stream.checkpoint() == made
            assert await stream.checkpoint(37) == made
            assert await hub.admin(ADMIN).retention() == (0, 0)
            assert (await hub.status()).identity == open_hub.identity

    run(story())


@pytest.mark.parametrize("hub_knows_its_head", [True, False], ids=["newest receipt", "by search"])
def test_the_head_costs_few_requests(open_hub: HubProcess, hub_knows_its_head: bool) -> None:
    """The hub returns its newest receipt; another hub is searched with 2·log2(n) requests."""

    def no_newest(path: str, request: bytes, answer: bytes) -> bytes | web.Response:
        if hub_knows_its_head or path != "/v1/receipt" or ReceiptRequest.decode(request).stream_seq:
            return answer
        return web.Response(
            status=404, body=ErrorEnvelope(code=Code.NOT_FOUND, message="no entry 0").encode()
        )

    async def story() -> None:
        name = f"head {hub_knows_its_head}"
        async with (
            between(open_hub.url) as proxy,
            connect(open_hub.url, ALICE, trust=open_hub.hub_id, retry=QUICK) as alice,
            connect(proxy.url, ALICE, trust=open_hub.hub_id, retry=QUICK) as bob,
        ):
            proxy.lie = no_newest
            assert await bob.stream(name).head() is None
            *_, last = [r async for r in alice.stream(name).send_many(f"{n}" for n in range(300))]
            proxy.requests.clear()
            assert await bob.stream(name).head() == last
            assert len(proxy.requests) <= (3 if hub_knows_its_head else 22), proxy.requests
            proxy.requests.clear()
            assert await bob.stream(name).head() == last
            assert len(proxy.requests) <= (1 if hub_knows_its_head else 2), proxy.requests

    run(story())


def test_a_reader_may_start_anywhere(open_hub: HubProcess) -> None:
    async def story() -> None:
        async with connect(open_hub.url, ALICE, trust=open_hub.hub_id) as hub:
            async for _ in hub.stream("anywhere").send_many(str(n) for n in range(1, 51)):
                pass
        async with connect(open_hub.url, ALICE, trust=open_hub.hub_id) as hub:
            stream = hub.stream("anywhere")
            assert [m.text async for m in stream.read(40)] == [str(n) for n in range(40, 51)]
            assert [m.text async for m in stream.read(10, 12)] == ["10", "11", "12"]
            assert [m.text async for m in stream.read(1, 2)] == ["1", "2"]
            assert [m async for m in stream.read(60)] == []
            assert (await stream.receipt(3)).stream_seq == 3

    run(story())


def test_overlays_get_a_log_reader_and_a_log_writer(open_hub: HubProcess) -> None:
    async def story() -> None:
        async with (
            connect(open_hub.url, ALICE, trust=open_hub.hub_id) as alice,
            connect(open_hub.url, BOB, trust=open_hub.hub_id) as bob,
        ):
            stream = alice.stream("logs")
            async for _ in stream.send_many(["x"] * 20):
                pass
            reader, writer = bob.log_reader(), bob.log_writer()
            assert isinstance(reader, LogReader)
            assert isinstance(writer, LogWriter)
            label = stream.label()
            entries = await reader.page(label, StreamSeq(3), 10)
            assert [entry.stream_seq for entry in entries] == list(range(3, 13))
            assert len(await reader.page(label, StreamSeq(15), 10)) == 6
            assert await reader.head(label) == await stream.head()
            assert await writer.submit(entries[0].msg) == entries[0].receipt  # the same again
            first = await anext(reader.follow(label, StreamSeq(7)))
            assert first.stream_seq == 7
            assert await reader.receipt(label, StreamSeq(2)) == await stream.receipt(2)
            assert await reader.proof(label, StreamSeq(2), StreamSeq(9))
            assert await reader.consistency(label, StreamSeq(2), StreamSeq(9))
            assert await reader.checkpoint(label) is None

    run(story())


def test_the_control_label_is_read_and_verified_like_any_other(tmp_path: Path) -> None:
    """The control label shows when each token was authorized (H5)."""
    few = token_for(ALICE.client_id, "a")
    many = token_for(ALICE.client_id, *(f"stream {number}" for number in range(500)))

    async def story(hub: HubProcess) -> None:
        async with (
            connect(hub.url, ALICE, trust=hub.hub_id) as alice,
            connect(hub.url, BOB, trust=hub.hub_id) as bob,
        ):
            receipts = [await alice.authorize(token) for token in (few, many)]
            reader, control = bob.log_reader(), bob.connection.status.control_label
            page = await reader.page(control, StreamSeq(1), 10)
            assert [entry.receipt for entry in page] == receipts
            assert [verify_authorize(entry) for entry in page] == [few, many]
            live = reader.follow(control, StreamSeq(1))
            assert [await anext(live), await anext(live)] == list(page)
            assert await reader.head(control) == receipts[-1]

    with serving(tmp_path, gated=True) as hub:
        run(story(hub))


def test_a_closed_connection_refuses_calls(open_hub: HubProcess) -> None:
    async def story() -> None:
        async with connect(open_hub.url, ALICE, trust=open_hub.hub_id) as client:
            pass
        for step in (client.stream("closed").head, client.status):
            with pytest.raises(StateError, match="connect again"):
                await step()

    run(story())


def hold_submits(proxy: Proxy) -> asyncio.Event:
    """Hold all submits back until the event is set."""
    released = asyncio.Event()

    async def hold(path: str) -> None:
        if path == "/v1/submit":
            await released.wait()

    proxy.before = hold
    return released


# --- streams that send at the same time


def test_streams_that_send_at_the_same_time_share_requests(open_hub: HubProcess, tmp_path: Path) -> None:
    submits: list[str] = []

    async def count(path: str) -> None:
        if path == "/v1/submit":
            submits.append(path)

    async def story() -> None:
        async with (
            between(open_hub.url) as proxy,
            connect(proxy.url, ALICE, trust=open_hub.hub_id, state=tmp_path) as client,
        ):
            streams = [client.stream(f"together {n}") for n in range(32)]
            await asyncio.gather(*(stream.send("first") for stream in streams))
            proxy.before = count
            receipts = await asyncio.gather(*(stream.send("second") for stream in streams))
            assert len(submits) < 8
            assert [receipt.label for receipt in receipts] == [stream.label() for stream in streams]
            assert {receipt.stream_seq for receipt in receipts} == {2}
            for stream in streams:
                assert [m.text async for m in stream.read()] == ["first", "second"]

    run(story())


def test_a_message_that_is_cancelled_before_it_left_does_not_leave() -> None:
    """Its stream may have given up on it; another stream's message in the queue leaves."""
    sent: list[list[bytes]] = []
    gate = asyncio.Event()

    class Slow:
        async def submit(self, wires: list[bytes]) -> list[bytes]:
            sent.append(wires)
            await gate.wait()
            return wires

    async def story() -> None:
        submits = SharedSubmits(cast(Endpoints, Slow()), 64)
        first = [asyncio.create_task(submits.submit([wire])) for wire in (b"1",)]
        await asyncio.sleep(0.01)
        first.append(asyncio.create_task(submits.submit([b"2"])))
        await asyncio.sleep(0.01)
        given_up, other = (asyncio.create_task(submits.submit([wire])) for wire in (b"3", b"4"))
        await asyncio.sleep(0.01)
        given_up.cancel()
        gate.set()
        assert await other == [b"4"]
        assert [await task for task in first] == [[b"1"], [b"2"]]
        assert sent == [[b"1"], [b"2"], [b"4"]]

    run(story())


def test_a_refusal_on_one_stream_does_not_concern_streams_that_share_its_request(
    gated_hub: HubProcess,
) -> None:
    async def story() -> None:
        async with connect(gated_hub.url, ALICE, trust=gated_hub.hub_id) as client:
            names = [f"shared {n}" for n in range(8)]
            streams = [client.stream(name) for name in names]
            await client.authorize(token_for(ALICE.client_id, *names[1:]))
            outcomes = await asyncio.gather(*(stream.send("x") for stream in streams), return_exceptions=True)
            assert isinstance(outcomes[0], CapRefused)
            assert all(isinstance(outcome, Receipt) for outcome in outcomes[1:])

    run(story())


# --- messages that are sent at the same time on one stream


def test_messages_sent_at_the_same_time_on_one_stream_share_requests(open_hub: HubProcess) -> None:
    submits: list[str] = []

    async def count(path: str) -> None:
        if path == "/v1/submit":
            submits.append(path)

    async def story() -> None:
        async with (
            between(open_hub.url) as proxy,
            connect(proxy.url, ALICE, trust=open_hub.hub_id) as client,
        ):
            stream = client.stream("one stream, many senders")
            proxy.before = count
            receipts = await asyncio.gather(*(stream.send(f"{n}") for n in range(150)))
            assert len(submits) < 10
            assert [receipt.stream_seq for receipt in receipts] == list(range(1, 151))
            assert [m.text async for m in stream.read()] == [f"{n}" for n in range(150)]

    run(story())


def test_one_bad_message_does_not_concern_those_that_are_sent_with_it(open_hub: HubProcess) -> None:
    async def story() -> None:
        async with connect(open_hub.url, ALICE, trust=open_hub.hub_id) as client:
            stream = client.stream("one is too long")
            bodies = [b"a", b"b", bytes(2_000_000), b"c"]
            outcomes = await asyncio.gather(*map(stream.send, bodies), return_exceptions=True)
            assert [isinstance(outcome, Receipt) for outcome in outcomes] == [True, True, False, True]
            assert isinstance(outcomes[2], DecodeError)
            assert "max_body_bytes" in str(outcomes[2])
            assert [m.body async for m in stream.read()] == [b"a", b"b", b"c"]

    run(story())


def test_a_message_that_is_cancelled_while_others_are_on_their_way_does_not_leave(
    open_hub: HubProcess,
) -> None:
    async def story() -> None:
        async with (
            between(open_hub.url) as proxy,
            connect(proxy.url, ALICE, trust=open_hub.hub_id) as client,
        ):
            stream = client.stream("given up in the queue")
            await stream.send("0")
            held = hold_submits(proxy)
            first = asyncio.create_task(stream.send("1"))
            await asyncio.sleep(0.1)
            given_up, last = (asyncio.create_task(stream.send(text)) for text in ("2", "3"))
            await asyncio.sleep(0.1)
            given_up.cancel()
            held.set()
            await asyncio.gather(first, last)
            assert [m.text async for m in stream.read()] == ["0", "1", "3"]

    run(story())


def test_a_message_that_is_cancelled_on_its_way_is_settled_by_the_next(open_hub: HubProcess) -> None:
    async def story() -> None:
        async with (
            between(open_hub.url) as proxy,
            connect(proxy.url, ALICE, trust=open_hub.hub_id) as client,
        ):
            stream = client.stream("given up on its way")
            await stream.send("0")
            held = hold_submits(proxy)
            given_up = asyncio.create_task(stream.send("1"))
            await asyncio.sleep(0.1)
            given_up.cancel()
            held.set()
            assert (await stream.send("2")).stream_seq == 3
            assert [m.text async for m in stream.read()] == ["0", "1", "2"]

    run(story())


def test_closing_the_connection_ends_a_send_under_way(open_hub: HubProcess) -> None:
    async def story() -> None:
        async with between(open_hub.url) as proxy:
            async with connect(proxy.url, ALICE, trust=open_hub.hub_id) as client:
                hold_submits(proxy)
                waiting = [asyncio.create_task(client.stream("closed").send(text)) for text in "ab"]
                await asyncio.sleep(0.2)
            outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
            assert all(isinstance(outcome, StateError) for outcome in outcomes)

    run(story())


def test_all_who_send_while_the_hub_is_away_are_told_at_once(open_hub: HubProcess) -> None:
    """Each waits for the deadline of the retry policy once, not for everybody else's."""

    async def story() -> None:
        async with (
            between(open_hub.url) as proxy,
            connect(
                proxy.url, ALICE, trust=open_hub.hub_id, retry=Retry(deadline=1.0, max_attempts=2)
            ) as client,
        ):
            stream = client.stream("the hub is away")
            await stream.send("0")
            proxy.lie = lambda *_: None
            started = time.monotonic()
            outcomes = await asyncio.gather(*(stream.send(f"{n}") for n in range(20)), return_exceptions=True)
            assert all(isinstance(outcome, Unreachable) for outcome in outcomes)
            assert time.monotonic() - started < 10

    run(story())


def test_a_message_that_is_cancelled_while_send_many_has_the_turn_does_not_leave(
    open_hub: HubProcess,
) -> None:
    async def story() -> None:
        async with (
            between(open_hub.url) as proxy,
            connect(proxy.url, ALICE, trust=open_hub.hub_id) as client,
        ):
            stream = client.stream("the turn is taken")
            await stream.send("0")
            held = hold_submits(proxy)

            async def many() -> None:
                async for _receipt in stream.send_many(["1", "2"]):
                    pass

            others = [asyncio.create_task(many())]
            await asyncio.sleep(0.1)
            given_up, last = (asyncio.create_task(stream.send(text)) for text in ("given up", "3"))
            await asyncio.sleep(0.1)
            given_up.cancel()
            held.set()
            await asyncio.gather(*others, last)
            assert [m.text async for m in stream.read()] == ["0", "1", "2", "3"]

    run(story())


def test_messages_that_are_cancelled_after_their_batch_failed_do_not_leave(open_hub: HubProcess) -> None:
    async def story() -> None:
        async with connect(open_hub.url, ALICE, trust=open_hub.hub_id) as client:
            stream = client.stream("their batch failed")
            too_long = asyncio.create_task(stream.send(bytes(2_000_000)))
            others = [asyncio.create_task(stream.send(text)) for text in "ab"]
            too_long.add_done_callback(lambda _: [task.cancel() for task in others])
            outcomes = await asyncio.gather(too_long, *others, return_exceptions=True)
            assert isinstance(outcomes[0], DecodeError)
            assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes[1:])
            assert (await stream.send("c")).stream_seq == 1
            assert [m.text async for m in stream.read()] == ["c"]

    run(story())


def test_senders_at_the_same_time_share_the_next_client_id_at_the_bounds(gated_hub: HubProcess) -> None:
    asked: list[ClientId] = []

    async def source(client_id: ClientId, _stream: StreamId) -> object:
        asked.append(client_id)
        return token_for(client_id, "many at the bounds")

    async def story() -> None:
        bounds = ClientBounds(max_msgs_per_client_id_per_label=8)
        async with connect(
            gated_hub.url,
            ALICE,
            trust=gated_hub.hub_id,
            tokens=source,  # type: ignore[arg-type]
            bounds=bounds,
        ) as hub:
            stream = hub.stream("many at the bounds")
            receipts = await asyncio.gather(*(stream.send(f"{n}") for n in range(20)))
            assert sorted(receipt.stream_seq for receipt in receipts) == list(range(1, 21))
            assert len({m.client_id async for m in stream.read()}) == 3
        assert len(asked) == len(set(asked)) == 3

    run(story())
