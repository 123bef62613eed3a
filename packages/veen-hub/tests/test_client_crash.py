"""The client survives kills, lost answers, cancellations and outages of the hub (RESYNC0, H2)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from aiohttp import web

from veen_core.api import ErrorDetail, ErrorEnvelope
from veen_core.errors import ConfigError, StateError
from veen_core.hashing import H
from veen_core.ids import HubId
from veen_core.keys import DhKey, DhSecret, SigningKey, SigningSeed
from veen_core.rejection import Code
from veen_hub.client import (
    Conflict,
    FileStateStore,
    Identity,
    MemoryStateStore,
    Message,
    PinOnFirstUse,
    Retry,
    Sending,
    Stream,
    Timeouts,
    Unavailable,
    Unreachable,
    connect,
)
from veen_hub.client.sending.searching import from_both_ends
from veen_hub.client.state.store import update

from .client_fixtures import ADMIN, QUICK, HubProcess, person, run, serving, token_for
from .client_proxy import between, honest

ALICE = person("alice")
VICTIM = Identity(
    signing_key=SigningKey(SigningSeed(H(b"victim/sign"))), dh_keys=(DhKey(DhSecret(H(b"victim/dh"))),)
)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with serving(tmp_path_factory.mktemp("hub")) as one:
        yield one


async def texts(stream: Stream) -> list[str]:
    return [m.text async for m in stream.read()]


# --- kill -9


def test_a_killed_client_leaves_no_gap_and_no_duplicate(hub: HubProcess, tmp_path: Path) -> None:
    dice, state, acknowledged = random.Random(7), tmp_path / "state", []
    until = time.monotonic() + 20
    for number in range(60):
        if number >= 12 and len(acknowledged) > 20:
            break
        if time.monotonic() > until and len(acknowledged) > 20:
            break
        acknowledged += _die(hub, state, number, dice.uniform(0.0, 0.5))

    async def survivors() -> list[str]:
        async with connect(hub.url, VICTIM, trust=hub.hub_id, state=state) as client:
            await client.stream("crash").settle()
            await client.stream("crash").send("last")
            return await texts(client.stream("crash"))

    found = Counter(run(survivors()))
    assert set(found.values()) == {1}, "a message is in the log twice"
    assert set(acknowledged) <= set(found), "an acknowledged message is not in the log"
    assert len(acknowledged) > 20


def _die(hub: HubProcess, state: Path, number: int, after: float) -> list[str]:
    victim = subprocess.Popen(
        [
            sys.executable,
            Path(__file__).with_name("client_victim.py"),
            hub.url,
            hub.hub_id.hex(),
            state,
            str(number),
        ],
        stdout=subprocess.PIPE,
    )
    assert victim.stdout is not None
    with victim.stdout as output:
        assert output.readline() == b"ready\n"
        time.sleep(after)
        victim.kill()
        lines = output.read().decode().splitlines(keepends=True)
    victim.wait()
    return [line.strip() for line in lines if line.endswith("\n")]


# --- answers that are lost


def test_a_lost_answer_is_settled_without_sending_twice(hub: HubProcess, tmp_path: Path) -> None:
    async def story() -> None:
        async with between(hub.url) as proxy:
            lost = 0

            def lose_every_other(path: str, _request: bytes, answer: bytes) -> bytes | None:
                nonlocal lost
                lost += path == "/v1/submit"
                return None if path == "/v1/submit" and lost % 2 else answer

            proxy.lie = lose_every_other
            async with connect(proxy.url, ALICE, trust=hub.hub_id, state=tmp_path, retry=QUICK) as client:
                stream = client.stream("lost")
                for n in range(5):
                    assert (await stream.send(str(n))).stream_seq == n + 1
                seqs = [r.stream_seq async for r in stream.send_many(str(n) for n in range(5, 205))]
                assert seqs == list(range(6, 206))
                assert await texts(stream) == [str(n) for n in range(205)]
            assert lost > 10

    run(story())


def test_a_message_whose_answer_never_comes_is_confirmed_by_the_next_client(
    hub: HubProcess, tmp_path: Path
) -> None:
    impatient = Retry(max_attempts=2, first_delay=0.01, deadline=1.0)

    async def story() -> None:
        async with between(hub.url) as proxy:
            async with connect(proxy.url, ALICE, trust=hub.hub_id, state=tmp_path, retry=impatient) as client:
                stream = client.stream("silent")
                await stream.send("one")
                proxy.lie = lambda path, _r, a: None if path == "/v1/submit" else a
                with pytest.raises(Unreachable, match="a pending message is settled first"):
                    await stream.send("two")
            proxy.lie = honest
            async with connect(proxy.url, ALICE, trust=hub.hub_id, state=tmp_path, retry=QUICK) as client:
                assert (await client.stream("silent").send("three")).stream_seq == 3
                assert await texts(client.stream("silent")) == ["one", "two", "three"]

    run(story())


def test_pending_messages_are_settled_if_only_the_first_of_them_reached_the_log(
    hub: HubProcess, tmp_path: Path
) -> None:
    """The hub refuses the first two as duplicates and accepts the others, all in one answer."""

    async def never_arrives(path: str) -> web.Response | None:
        return web.Response(status=502) if path == "/v1/submit" else None

    async def story() -> None:
        async with between(hub.url) as proxy:
            at_proxy = partial(connect, proxy.url, ALICE, trust=hub.hub_id, retry=Retry(max_attempts=1))
            proxy.before = never_arrives
            async with at_proxy(state=tmp_path) as client:
                with pytest.raises(Unavailable):
                    _ = [r async for r in client.stream("some").send_many(["a", "b", "c", "d"])]
            proxy.before = None
            proxy.lie = lambda path, _request, answer: None if path == "/v1/submit" else answer
            async with at_proxy(state=tmp_path, batch=2) as client:
                with pytest.raises(Unreachable):
                    await client.stream("some").settle()
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=tmp_path, retry=QUICK) as client:
            receipts = (await client.stream("some").settle()).receipts
            assert [receipt.stream_seq for receipt in receipts] == [1, 2, 3, 4]
            assert await texts(client.stream("some")) == ["a", "b", "c", "d"]

    run(story())


@pytest.mark.parametrize("others", ["before", "after"])
def test_the_search_for_a_lost_answer_does_not_read_the_whole_label(
    hub: HubProcess, tmp_path: Path, others: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search is short however many messages other writers sent before or after the lost answer."""
    monkeypatch.setattr("veen_hub.client.sending.searching.SEARCH_PAGE_ENTRIES", 10)
    name = f"long {others}"

    async def write() -> None:
        async with connect(hub.url, person("bob"), trust=hub.hub_id) as bob:
            async for _ in bob.stream(name).send_many(["x"] * 200):
                pass

    async def story() -> list[str]:
        state = tmp_path / others
        async with (
            between(hub.url) as proxy,
            connect(proxy.url, ALICE, trust=hub.hub_id, state=state, retry=Retry(max_attempts=1)) as alice,
        ):
            await alice.stream(name).send("first")
            if others == "before":
                await write()
            proxy.lie = lambda path, _request, answer: None if path == "/v1/submit" else answer
            with pytest.raises(Unreachable):
                await alice.stream(name).send("lost")
            if others == "after":
                await write()
        async with (
            between(hub.url) as proxy,
            connect(proxy.url, ALICE, trust=hub.hub_id, state=state) as alice,
        ):
            delivery = await alice.stream(name).settle()
            assert [r.stream_seq for r in delivery.receipts] == [202 if others == "before" else 2]
            assert (await alice.stream(name).send("next")).stream_seq == 203
            return [path for path in proxy.requests if path == "/v1/stream"]

    assert 1 <= len(run(story())) <= 2


def test_a_search_from_both_ends_covers_every_entry_once() -> None:
    for last in range(40):
        pieces = list(from_both_ends(5, last, 4))
        assert sorted(n for start, end in pieces for n in range(start, end + 1)) == list(range(5, last + 1))
    assert pieces[:3] == [(5, 8), (36, 39), (9, 12)]


def test_a_message_that_never_arrived_is_sent_by_the_next_client(hub: HubProcess, tmp_path: Path) -> None:
    impatient = Retry(max_attempts=2, first_delay=0.01, deadline=1.0)

    async def unavailable(path: str) -> web.Response | None:
        return web.Response(status=503) if path == "/v1/submit" else None

    async def story() -> None:
        async with between(hub.url) as proxy:
            async with connect(proxy.url, ALICE, trust=hub.hub_id, state=tmp_path, retry=impatient) as client:
                proxy.before = unavailable
                with pytest.raises(Unavailable):
                    await client.stream("unsent").send("one")
            proxy.before = None
            async with connect(proxy.url, ALICE, trust=hub.hub_id, state=tmp_path, retry=QUICK) as client:
                (receipt,) = (await client.stream("unsent").settle()).receipts
                assert receipt.stream_seq == 1
                assert await texts(client.stream("unsent")) == ["one"]
                assert (await client.stream("unsent").settle()).receipts == []

    run(story())


def test_the_client_takes_a_fresh_client_id_if_its_client_seq_was_used(
    hub: HubProcess, tmp_path: Path
) -> None:
    """The state was restored from a backup, so its next client_seqs were used already."""

    async def story() -> None:
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=tmp_path / "a") as client:
            await client.stream("restored").send("one")
            store = client.connection.store
            record = store.load(hub.hub_id, client.stream("restored").label().hex())
            assert record is not None
            await client.stream("restored").send("two")
            FileStateStore(tmp_path / "b").save(hub.hub_id, client.stream("restored").label().hex(), record)
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=tmp_path / "b") as client:
            await client.stream("restored").send("three")
            messages = [m async for m in client.stream("restored").read()]
            assert [m.text for m in messages] == ["one", "two", "three"]
            assert messages[2].client_id != messages[0].client_id

    run(story())


def test_retry_after_is_respected_until_the_deadline(hub: HubProcess) -> None:
    answered: list[float] = []

    async def busy(path: str) -> web.Response | None:
        if path != "/v1/submit":
            return None
        answered.append(time.monotonic())
        if len(answered) > 2:
            return None
        envelope = ErrorEnvelope(code=Code.UNAVAILABLE, message="later", retry_after=1)
        return web.Response(status=503, body=envelope.encode(), headers={"Retry-After": "1"})

    async def story() -> None:
        async with between(hub.url) as proxy:
            proxy.before = busy
            async with connect(proxy.url, ALICE, trust=hub.hub_id, retry=QUICK) as client:
                await client.stream("busy").send("x")
            assert len(answered) == 3
            assert all(later - sooner >= 1 for sooner, later in pairwise(answered))
            answered.clear()
            patience = Retry(deadline=0.5)
            async with connect(proxy.url, ALICE, trust=hub.hub_id, retry=patience) as client:
                given_up = r"later; gave up after 1 attempt in .* wait 1 s; repeat the operation"
                with pytest.raises(Unavailable, match=given_up) as caught:
                    await client.stream("busy").send("x")
                assert caught.value.retry_after == 1
            assert len(answered) == 1

    run(story())


@pytest.mark.parametrize("silent_from", ["the start", "the send on"])
def test_a_silent_hub_is_given_up_at_the_deadline(
    hub: HubProcess, silent_from: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("proof_of_work", "shared_sends"):
        monkeypatch.setattr(f"veen_hub.client.sending.{module}.MIN_ANSWER_SECONDS", 0.5)

    async def story() -> float:
        silent = asyncio.Event()

        async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection("127.0.0.1", hub.port)
            with contextlib.closing(writer), contextlib.closing(back):
                while data := await reader.read(65_536):
                    if not silent.is_set():
                        back.write(data)
                        writer.write(await there.read(65_536))

        server = await asyncio.start_server(swallow, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        if silent_from == "the start":
            silent.set()
        began = time.monotonic()

        async def send() -> None:
            nonlocal began
            async with connect(url, ALICE, trust=hub.hub_id, retry=Retry(deadline=1.0)) as client:
                stream = client.stream("silence")
                await stream.send("heard")
                silent.set()
                began = time.monotonic()
                await stream.send("not heard")

        with pytest.raises(Unreachable, match="no answer in"):
            await send()
        server.close()
        return time.monotonic() - began

    assert run(story()) < 5  # and not the thirty seconds that a request may take


def test_a_refusal_by_a_proxy_is_not_believed_without_a_search(hub: HubProcess, tmp_path: Path) -> None:
    """The hub accepts a message, a proxy answers 504, then refuses for good: the message is in the log."""
    expired = ErrorEnvelope(code=Code.TIME, message="epoch", detail=ErrorDetail(detail_enum="EPOCH"))

    async def story() -> None:
        async with between(hub.url) as proxy:
            count = 0

            def late(path: str, _request: bytes, answer: bytes) -> bytes | web.Response:
                nonlocal count
                if path != "/v1/submit":
                    return answer
                count += 1
                if count % 2:
                    return web.Response(status=504)
                return web.Response(status=400, body=expired.encode())

            proxy.lie = late
            async with connect(proxy.url, ALICE, trust=hub.hub_id, state=tmp_path, retry=QUICK) as client:
                stream = client.stream("late")
                assert (await stream.send("one")).stream_seq == 1
                assert [r.stream_seq async for r in stream.send_many(["two", "three"])] == [2, 3]
                assert await texts(stream) == ["one", "two", "three"]

    run(story())


def test_the_retry_after_of_a_proxy_is_respected(hub: HubProcess) -> None:
    answered: list[float] = []

    async def busy(path: str) -> web.Response | None:
        if path != "/v1/receipt":
            return None
        answered.append(time.monotonic())
        return web.Response(status=429, headers={"Retry-After": "1"}) if len(answered) == 1 else None

    async def story() -> None:
        async with between(hub.url) as proxy:
            async with connect(proxy.url, ALICE, trust=hub.hub_id, retry=QUICK) as client:
                await client.stream("slow down").send("x")
                proxy.before = busy
                assert (await client.stream("slow down").receipt(1)).stream_seq == 1
            assert answered[1] - answered[0] >= 1

    run(story())


# --- cancelling


def test_cancelling_anywhere_leaves_nothing_half_done(hub: HubProcess, tmp_path: Path) -> None:
    dice = random.Random(11)

    async def story() -> None:
        done: set[str] = set()
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=tmp_path, retry=QUICK, batch=4) as client:
            stream = client.stream("cancelled")

            async def many(number: int) -> None:
                bodies = [f"{number}/{n}" for n in range(20)]
                at = 0
                async for _ in stream.send_many(bodies):
                    done.add(bodies[at])
                    at += 1

            async def one(number: int) -> None:
                await stream.send(f"{number}")
                done.add(f"{number}")

            for number in range(60):
                task = asyncio.create_task(one(number) if number % 3 else many(number))
                await asyncio.sleep(dice.uniform(0.0, 0.03))
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            last = await stream.send("last")
            found = Counter(await texts(stream))
            assert set(found.values()) == {1}
            assert done <= set(found)
            assert last.stream_seq == sum(found.values())
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=tmp_path, retry=QUICK) as client:
            assert (await client.stream("cancelled").send("after")).stream_seq == last.stream_seq + 1

    run(story())


def test_an_interrupted_batch_is_settled_and_counted_exactly(hub: HubProcess, tmp_path: Path) -> None:
    """The second request reaches the hub, its answer does not reach the client before the interruption."""
    arrived, release = asyncio.Event(), asyncio.Event()
    submits = 0

    async def hold_second_answer(path: str) -> None:
        nonlocal submits
        submits += path == "/v1/submit"
        if submits == 2:
            arrived.set()
            await release.wait()

    async def story() -> None:
        async with (
            between(hub.url) as proxy,
            connect(proxy.url, ALICE, trust=hub.hub_id, state=tmp_path, retry=QUICK, batch=64) as client,
        ):
            proxy.after = hold_second_answer
            stream = client.stream("interrupted")
            sending = stream.send_many(f"{n}" for n in range(1, 1_001))

            async def consume() -> None:
                async for _ in sending:
                    pass

            task = asyncio.create_task(consume())
            await arrived.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            proxy.after = None
            release.set()
            assert (sending.acknowledged, sending.unanswered) == (64, 64)
            await sending.settle()
            assert (sending.acknowledged, sending.unanswered) == (128, 0)
            assert sending.last == await stream.receipt(128)
            assert [m.text async for m in stream.read()] == [f"{n}" for n in range(1, 129)]

    run(story())


def test_a_batch_cancelled_at_any_moment_counts_its_acknowledged_messages(
    hub: HubProcess, tmp_path: Path
) -> None:
    async def story() -> None:
        total = 0
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=tmp_path, retry=QUICK) as client:
            stream = client.stream("any moment")
            for attempt in range(12):
                sending = stream.send_many([f"{attempt}"] * 400)

                async def consume(sending: Sending = sending) -> None:
                    async for _ in sending:
                        pass

                task = asyncio.create_task(consume())
                await asyncio.sleep(0.007 * attempt)
                while attempt == 11 and not sending.acknowledged:
                    await asyncio.sleep(0.01)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await sending.settle()
                total += sending.acknowledged
                head = await stream.head()
                assert (head.stream_seq if head is not None else 0) == total, attempt
            assert total

    run(story())


def test_a_message_is_not_sent_if_the_state_cannot_be_written(hub: HubProcess) -> None:
    class Full(MemoryStateStore):
        full = False

        def save(self, hub: HubId, name: str, content: bytes, *, durable: bool = True) -> None:
            self.check_space()
            super().save(hub, name, content, durable=durable)

        def commit(self, hub: HubId, records: Mapping[str, bytes]) -> None:
            self.check_space()
            super().commit(hub, records)

        def check_space(self) -> None:
            if self.full:
                raise StateError("no space left on device")

    async def story() -> None:
        store = Full()
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=store) as client:
            stream = client.stream("full")
            await stream.send("one")
            store.full = True
            with pytest.raises(StateError, match="no space left"):
                await stream.send("two")
            store.full = False
            await stream.send("three")
            assert await texts(stream) == ["one", "three"]

    run(story())


# --- outages


def test_follow_and_send_survive_a_restart_of_the_hub(tmp_path: Path) -> None:
    async def story() -> None:
        with serving(tmp_path / "hub") as hub:
            async with connect(hub.url, ALICE, trust=hub.hub_id, retry=QUICK) as client:
                stream = client.stream("outage")
                found: list[Message] = []
                arrived = asyncio.Event()

                async def follow() -> None:
                    async for message in stream.follow():
                        found.append(message)
                        arrived.set()

                following = asyncio.create_task(follow())
                for number, end in enumerate((hub.kill, hub.stop)):
                    for n in range(5):
                        await stream.send(f"{number}/{n}")
                    end()
                    sending = asyncio.create_task(stream.send(f"{number}/during"))
                    await asyncio.sleep(0.2)
                    await asyncio.to_thread(hub.start)
                    await sending
                while len(found) < 12:
                    arrived.clear()
                    await arrived.wait()
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
                expected = [f"{n}/{k}" for n in range(2) for k in (0, 1, 2, 3, 4, "during")]
                assert [m.text for m in found] == expected

    run(story())


@pytest.mark.parametrize("known", ["something", "nothing"])
def test_follow_gives_up_after_max_outage(tmp_path: Path, known: str) -> None:
    patience = Retry(first_delay=0.01, max_delay=0.2, max_outage=1.0)

    async def story() -> None:
        with serving(tmp_path / "hub") as hub:
            async with connect(hub.url, ALICE, trust=hub.hub_id, retry=patience) as client:
                following = client.stream("gone").follow()
                if known == "something":
                    await client.stream("gone").send("x")
                    await anext(following)
                started = time.monotonic()
                hub.kill()
                with pytest.raises(Unreachable, match=r"gave up after \d+ attempt"):
                    await anext(following)
                assert 0.9 < time.monotonic() - started < 30

    run(story())


def test_reconnecting_to_a_live_stream_that_ends_at_once_slows_down(hub: HubProcess) -> None:
    asked: list[float] = []

    async def ends(path: str) -> web.Response | None:
        if not path.startswith("/v1/stream/") or len(asked) == 8:
            return None
        asked.append(time.monotonic())
        return web.Response(headers={"Content-Type": "application/cbor-seq"})

    async def story() -> None:
        patience = Retry(first_delay=0.02, max_delay=0.2, max_outage=0.3, jitter=lambda: 1.0)
        async with (
            between(hub.url) as proxy,
            connect(proxy.url, ALICE, trust=hub.hub_id, retry=patience) as client,
        ):
            proxy.before = ends
            following = asyncio.create_task(anext(client.stream("ends").follow()))  # type: ignore[arg-type]
            while len(asked) < 8:
                await asyncio.sleep(0.01)
            waits = [later - sooner for sooner, later in pairwise(asked)]
            assert waits[0] >= 0.02
            assert min(waits[-3:]) >= 0.2
            await client.stream("ends").send("x")  # longer than outage, but the hub did answer
            assert (await following).text == "x"

    run(story())


def test_a_silent_live_stream_is_reconnected(hub: HubProcess) -> None:
    async def story() -> None:
        async with (
            between(hub.url) as proxy,
            connect(proxy.url, ALICE, trust=hub.hub_id, retry=QUICK, timeouts=Timeouts(idle=0.3)) as client,
        ):
            stream = client.stream("idle")
            following = asyncio.create_task(anext(stream.follow()))  # type: ignore[arg-type]
            while sum(path.startswith("/v1/stream/") for path in proxy.requests) < 3:
                await asyncio.sleep(0.05)
            await stream.send("at last")
            assert (await following).text == "at last"

    run(story())


def test_many_live_streams_do_not_block_requests(hub: HubProcess) -> None:
    async def story() -> None:
        async with connect(
            hub.url, ALICE, trust=hub.hub_id, retry=QUICK, timeouts=Timeouts(connect=2.0)
        ) as client:
            following = [
                asyncio.create_task(anext(client.stream(f"live/{n}").follow()))  # type: ignore[arg-type]
                for n in range(100)
            ]
            for n in range(100):
                await client.stream(f"live/{n}").send(f"{n}")
            assert [m.text for m in await asyncio.gather(*following)] == [f"{n}" for n in range(100)]

    run(story())


# --- two processes, one state


def test_one_label_has_one_writer_at_a_time(hub: HubProcess, tmp_path: Path) -> None:
    async def story() -> None:
        options = {"trust": hub.hub_id, "state": tmp_path, "retry": QUICK}
        async with (
            connect(hub.url, ALICE, **options) as first,  # type: ignore[arg-type]
            connect(hub.url, ALICE, lock_timeout=0.2, **options) as second,  # type: ignore[arg-type]
        ):
            await first.stream("owned").send("one")
            assert await texts(second.stream("owned")) == ["one"]  # reading is free
            with pytest.raises(StateError, match="another process is sending"):
                await second.stream("owned").send("two")
            await second.stream("other").send("elsewhere")
            await first.close()
            assert (await second.stream("owned").send("two")).stream_seq == 2

    run(story())


def test_a_reader_stores_how_far_it_has_verified(hub: HubProcess, tmp_path: Path) -> None:
    async def story() -> None:
        async with connect(hub.url, ALICE, trust=hub.hub_id) as writer:
            async for _ in writer.stream("noted").send_many(["x"] * 10):
                pass
            label = writer.stream("noted").label()
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=tmp_path) as reader:
            assert len(await texts(reader.stream("noted"))) == 10
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=tmp_path) as reader:
            assert (await reader.log(label)).client.size == 10
            assert (await reader.stream("noted").send("y")).stream_seq == 11

    run(story())


def test_stores_opened_at_once_on_one_state_folder_do_not_interfere(tmp_path: Path) -> None:
    store, hub, count = FileStateStore(tmp_path), HubId(bytes(32)), 200

    def work(number: int) -> None:
        for _ in range(count):
            store.save(hub, "identity", bytes([number]) * 1_000, durable=False)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    content = store.load(hub, "identity")
    assert content is not None
    assert (len(content), len(set(content))) == (1_000, 1)
    assert [path.name for path in (tmp_path / hub.hex()).iterdir()] == ["identity.state"]


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_concurrent_updates_of_a_record_lose_nothing(kind: str, tmp_path: Path) -> None:
    store = FileStateStore(tmp_path) if kind == "file" else MemoryStateStore()
    hub = HubId(bytes(32))

    def work(number: int) -> None:
        for _ in range(25):
            update(store, hub, "counts", lambda held: (held or b"") + bytes([number]), lock_timeout=20.0)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert Counter(store.load(hub, "counts") or b"") == dict.fromkeys(range(4), 25)
    assert store.lock(hub, "counts") is not None
    with pytest.raises(StateError, match="another process has locked the record counts"):
        update(store, hub, "counts", lambda held: held or b"", lock_timeout=0.0)


def test_tokens_of_two_clients_on_one_state_folder_are_all_kept(tmp_path: Path) -> None:
    async def story() -> None:
        with serving(tmp_path / "hub", gated=True) as hub:
            state = tmp_path / "state"
            async with (
                connect(hub.url, ALICE, trust=hub.hub_id, state=state) as one,
                connect(hub.url, ALICE, trust=hub.hub_id, state=state) as two,
            ):
                tokens = [token_for(ALICE.client_id, f"stream/{n}") for n in range(20)]
                await asyncio.gather(
                    *(hub.authorize(token) for n, token in enumerate(tokens) for hub in [(one, two)[n % 2]])
                )
            async with connect(hub.url, ALICE, trust=hub.hub_id, state=state) as client:
                for n in range(20):
                    await client.stream(f"stream/{n}").send("x")

    run(story())


def test_a_state_folder_may_start_with_a_tilde(
    hub: HubProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    async def story() -> None:
        pin = PinOnFirstUse("~/pins/hub")
        async with connect(hub.url, ALICE, trust=pin, state="~/.veen") as client:
            await client.stream("home").send("x")

    run(story())
    assert sorted(path.name for path in tmp_path.iterdir()) == [".veen", "pins"]
    with pytest.raises(ConfigError, match="home folder is unknown"):
        FileStateStore("~nobody-of-this-name/.veen")


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_state_stores_keep_their_contract(kind: str, tmp_path: Path) -> None:
    store = FileStateStore(tmp_path / "deep" / "state") if kind == "file" else MemoryStateStore()
    hub, other = HubId(bytes(32)), HubId(bytes([1]) * 32)
    assert store.load(hub, "a") is None
    for durable in (True, False):
        store.save(hub, "a", b"content", durable=durable)
        assert store.load(hub, "a") == b"content"
        store.save(hub, "a", b"shorter", durable=durable)
        assert store.load(hub, "a") == b"shorter"
    assert store.load(other, "a") is None
    lock = store.lock(hub, "a")
    assert lock is not None
    assert store.lock(hub, "a") is None
    assert store.lock(hub, "b") is not None
    lock.release()
    lock.release()
    assert store.lock(hub, "a") is not None
    if isinstance(store, FileStateStore):
        for path in store.root.rglob("*"):
            assert path.stat().st_mode & 0o077 == 0, path


def test_stale_temporary_files_are_removed_and_fresh_ones_kept(tmp_path: Path) -> None:
    hub, store = HubId(bytes(32)), FileStateStore(tmp_path)
    for name in ("ab" * 32, "epochs/" + "cd" * 32):
        store.save(hub, name, b"seeds")
    (old,) = [path.with_name(f"{path.name}.x7_1abcd.tmp") for path in tmp_path.glob("*/*.state")]
    (deep,) = [path.with_name(f"{path.name}.x7_1abcd.tmp") for path in tmp_path.glob("*/epochs/*.state")]
    young = old.with_name(old.name.replace("x7_1abcd", "y7_1abcd"))
    for path in (old, deep, young):
        path.write_bytes(b"seeds")
    for path in (old, deep):
        os.utime(path, (time.time() - 3_600, time.time() - 3_600))
    again = FileStateStore(tmp_path)
    assert [path.exists() for path in (old, deep, young)] == [False, False, True]
    assert again.load(hub, "ab" * 32) == b"seeds"


def test_content_is_synced_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rename before the sync would let a power cut destroy content that was durable."""
    steps: list[str] = []
    sync, rename = os.fdatasync, os.rename
    monkeypatch.setattr(os, "fdatasync", lambda fd: (steps.append("sync"), sync(fd)))
    monkeypatch.setattr(os, "rename", lambda old, new: (steps.append("rename"), rename(old, new)))
    for durable in (True, False):
        FileStateStore(tmp_path).save(HubId(bytes(32)), "a", b"content", durable=durable)
    assert steps == ["sync", "rename"] * 2


@pytest.mark.parametrize("piece", ["label", "identity", "tokens"])
def test_a_damaged_record_is_named(hub: HubProcess, tmp_path: Path, piece: str) -> None:
    async def story() -> None:
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=tmp_path) as client:
            await client.authorize(token_for(ALICE.client_id, "damaged"))
            await client.stream("damaged").send("x")
            name = client.stream("damaged").label().hex() if piece == "label" else piece
        path = tmp_path / hub.hub_id.hex() / f"{name}.state"
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(StateError, match=f"{name} in the state store is damaged"):
            async with connect(hub.url, ALICE, trust=hub.hub_id, state=tmp_path) as client:
                await client.stream("damaged").send("y")

    run(story())


def test_a_repeated_admin_signature_is_a_conflict(hub: HubProcess) -> None:
    """The hub carries out a signed request once; the client signs each request anew."""

    async def story() -> None:
        async with connect(hub.url, ALICE, trust=hub.hub_id) as client:
            admin = client.admin(ADMIN)
            for _ in range(3):
                await admin.retention()
            again = client.admin(ADMIN)
            again._last_ts = admin._last_ts - 1
            with pytest.raises(Conflict):
                await again.retention()

    run(story())
