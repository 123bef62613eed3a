"""Single messages of several labels that leave together: one that fails does not concern the others (H14)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from veen_core import HubId
from veen_core.errors import StateError
from veen_core.receipt import Receipt
from veen_hub.client import CapRefused, Hub, TooLarge, connect
from veen_hub.client.label import label_state
from veen_hub.client.sending.shared_sends import MAX_BODY_BYTES, MAX_GROUP_MESSAGES
from veen_hub.client.state.records import LabelRecord, decode_record
from veen_hub.client.state.store import MemoryStateStore
from veen_hub.client.stream import Stream

from .client_fixtures import QUICK, HubProcess, person, run, serving, token_for
from .client_proxy import between

ALICE = person("alice")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with serving(tmp_path_factory.mktemp("open")) as hub:
        yield hub


async def used_streams(client: Hub, name: str, count: int) -> list[Stream]:
    """Return streams that have a first message, so that the next ones can leave together."""
    streams = [client.stream(f"{name} {number}") for number in range(count)]
    await asyncio.gather(*(stream.send("first") for stream in streams))
    return streams


async def texts(stream: Stream) -> list[str]:
    return [message.text async for message in stream.read()]


async def send_to_all(streams: Sequence[Stream], body: str) -> list[Receipt | BaseException]:
    return await asyncio.gather(*(stream.send(body) for stream in streams), return_exceptions=True)


class Gate(MemoryStateStore):
    """A store whose next durable write waits until the gate is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.opened = threading.Event(), threading.Event()
        self.opened.set()
        self.commits: list[int] = []

    def commit(self, hub: HubId, records: Mapping[str, bytes]) -> None:
        self.commits.append(len(records))
        self.reached.set()
        self.opened.wait(30)
        super().commit(hub, records)


class Steps(MemoryStateStore):
    """A store whose durable writes each wait for a permit, once ``begun`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: threading.Semaphore | None = None
        self.permits = threading.Semaphore(0)

    def commit(self, hub: HubId, records: Mapping[str, bytes]) -> None:
        if self.begun is not None:
            self.begun.release()
            self.permits.acquire(timeout=30)
        super().commit(hub, records)


class SlowSaves(MemoryStateStore):
    """A store whose writes that need not be durable can be made to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.saved = threading.Event()
        self.saved.set()

    def save(self, hub: HubId, name: str, content: bytes, *, durable: bool = True) -> None:
        self.saved.wait(30)
        super().save(hub, name, content, durable=durable)


def test_messages_of_several_labels_share_one_durable_write(
    hub: HubProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A label whose receipts are being written in the background is not ready, and sends without the group.
    monkeypatch.setattr(label_state, "RECEIPT_INTERVAL_SECONDS", 3_600)

    async def story() -> None:
        store = Gate()
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=store) as client:
            streams = await used_streams(client, "one write", MAX_GROUP_MESSAGES)
            store.commits.clear()
            receipts = await send_to_all(streams, "second")
            assert store.commits == [MAX_GROUP_MESSAGES]
            assert [r.stream_seq for r in receipts if isinstance(r, Receipt)] == [2] * MAX_GROUP_MESSAGES

    run(story())


def test_all_commits_are_made_by_one_thread_that_nothing_else_uses(hub: HubProcess) -> None:
    """A pool with several idle threads wakes two of them for each call."""

    class Noting(MemoryStateStore):
        def __init__(self) -> None:
            super().__init__()
            self.committing, self.others = set[int](), set[int]()

        def commit(self, hub: HubId, records: Mapping[str, bytes]) -> None:
            self.committing.add(threading.get_ident())
            super().commit(hub, records)

        def load(self, hub: HubId, name: str) -> bytes | None:
            self.others.add(threading.get_ident())
            return super().load(hub, name)

    async def story() -> None:
        store = Noting()
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=store) as client:
            streams = await used_streams(client, "one thread", 8)
            await send_to_all(streams, "second")
            assert len([receipt async for receipt in streams[0].send_many(["third"] * 8)]) == 8
        assert len(store.committing) == 1
        assert not store.committing & (store.others | {threading.get_ident()})

    run(story())


def test_a_refused_message_does_not_concern_the_others_of_its_group(tmp_path: Path) -> None:
    async def story() -> None:
        with serving(tmp_path / "gated", gated=True) as hub:
            async with connect(hub.url, ALICE, trust=hub.hub_id) as client:
                names = [f"gated {number}" for number in range(6)]
                await client.authorize(token_for(ALICE.client_id, *names))
                streams = await used_streams(client, "gated", 6)
                other = token_for(ALICE.client_id, "elsewhere")
                await client.authorize(other)
                first, *rest = await asyncio.gather(
                    streams[0].send("refused", cap=other),
                    *(stream.send("second") for stream in streams[1:]),
                    return_exceptions=True,
                )
                assert isinstance(first, CapRefused)
                assert all(isinstance(receipt, Receipt) for receipt in rest)
                await streams[0].send("third")
                assert await texts(streams[0]) == ["first", "third"]

    run(story())


def test_a_forged_receipt_does_not_concern_the_others_of_its_group(hub: HubProcess) -> None:
    async def story() -> None:
        async with (
            between(hub.url) as proxy,
            connect(proxy.url, ALICE, trust=hub.hub_id, retry=QUICK) as client,
        ):
            streams = await used_streams(client, "forged", 6)
            forged = 0

            def forge(path: str, _request: bytes, answer: bytes) -> bytes:
                """Flip a bit in the signature of the first receipt, once."""
                nonlocal forged
                if path != "/v1/submit" or forged:
                    return answer
                forged = 1
                at = answer.index(b"\x58\x40") + 10
                return answer[:at] + bytes((answer[at] ^ 1,)) + answer[at + 1 :]

            proxy.lie = forge
            outcomes = await send_to_all(streams, "second")
            assert forged
            assert sum(not isinstance(outcome, Receipt) for outcome in outcomes) == 1
            for stream, outcome in zip(streams, outcomes, strict=True):
                if not isinstance(outcome, Receipt):
                    await stream.settle()
                assert await texts(stream) == ["first", "second"]

    run(story())


def test_a_lost_answer_is_settled_for_each_message_of_the_group(hub: HubProcess) -> None:
    async def story() -> None:
        async with (
            between(hub.url) as proxy,
            connect(proxy.url, ALICE, trust=hub.hub_id, retry=QUICK) as client,
        ):
            streams = await used_streams(client, "lost", 6)
            lost = 0

            def lose_one(path: str, _request: bytes, answer: bytes) -> bytes | None:
                nonlocal lost
                lost += path == "/v1/submit"
                return None if path == "/v1/submit" and lost == 1 else answer

            proxy.lie = lose_one
            outcomes = await send_to_all(streams, "second")
            assert lost > 1
            assert all(isinstance(outcome, Receipt) for outcome in outcomes)
            assert [await texts(stream) for stream in streams] == [["first", "second"]] * 6

    run(story())


@pytest.mark.parametrize("given_up", [1, 4], ids=["one", "all"])
def test_a_message_that_is_given_up_before_it_is_durable_does_not_leave(
    hub: HubProcess, given_up: int
) -> None:
    async def story() -> None:
        store = Gate()
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=store) as client:
            streams = await used_streams(client, f"given up {given_up}", 4)
            store.reached.clear()
            store.opened.clear()
            sending = [asyncio.create_task(stream.send("second")) for stream in streams]
            await asyncio.to_thread(store.reached.wait, 30)
            for task in sending[:given_up]:
                task.cancel()
            await asyncio.wait(sending[:given_up])
            store.opened.set()
            await asyncio.gather(*sending[given_up:])
            assert all(task.cancelled() for task in sending[:given_up])
            await send_to_all(streams, "third")
            for number, stream in enumerate(streams):
                expected = ["first", "third"] if number < given_up else ["first", "second", "third"]
                assert await texts(stream) == expected

    run(story())


@pytest.mark.parametrize("given_up", [3, 4], ids=["some", "all"])
def test_a_message_that_is_given_up_while_another_is_withdrawn_does_not_leave(
    hub: HubProcess, given_up: int
) -> None:
    async def story() -> None:
        store = Steps()
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=store) as client:
            streams = await used_streams(client, f"withdrawn {given_up}", 4)
            names = [(await stream.outbox()).log.state.name for stream in streams[:given_up]]
            store.begun = begun = threading.Semaphore(0)
            sending = [asyncio.create_task(stream.send("second")) for stream in streams]
            for gone in (2, given_up):  # while the group is written, and while the first two are withdrawn
                await asyncio.to_thread(begun.acquire, timeout=30)
                for task in sending[:gone]:
                    task.cancel()
                await asyncio.wait(sending[:gone])
                store.begun = begun if gone == 2 else None
                store.permits.release()
            await asyncio.gather(*sending[given_up:])
            outboxes = [await stream.outbox() for stream in streams[:given_up]]
            for outbox in outboxes:
                async with outbox.alone():
                    pass
            for name in names:
                content = store.load(hub.hub_id, name)
                assert content is not None
                assert not decode_record(LabelRecord, content, name).state.pending
            await send_to_all(streams, "third")
            for number, stream in enumerate(streams):
                expected = ["first", "third"] if number < given_up else ["first", "second", "third"]
                assert await texts(stream) == expected

    run(story())


def test_closing_the_connection_ends_a_group(hub: HubProcess) -> None:
    async def story() -> None:
        reached, silent = asyncio.Event(), asyncio.Event()

        async def wait(path: str) -> None:
            if path == "/v1/submit":
                reached.set()
                await silent.wait()

        async with between(hub.url) as proxy:
            async with connect(proxy.url, ALICE, trust=hub.hub_id, retry=QUICK) as client:
                streams = await used_streams(client, "closed", 3)
                proxy.before = wait
                sending = [asyncio.create_task(stream.send("second")) for stream in streams]
                await reached.wait()
            outcomes = await asyncio.gather(*sending, return_exceptions=True)
            assert all("closed before the receipt arrived" in str(outcome) for outcome in outcomes)
            silent.set()

    run(story())


def test_a_stream_that_is_opened_while_the_connection_closes_sends_nothing(hub: HubProcess) -> None:
    async def story() -> None:
        store = SlowSaves()
        async with connect(hub.url, ALICE, trust=hub.hub_id, state=store) as client:
            (stream,) = await used_streams(client, "closing", 1)
            store.saved.clear()
            sending = asyncio.create_task(stream.send("second"))
            await asyncio.sleep(0)  # its group has started, and has not taken it yet
            closing = asyncio.create_task(client.close())  # waits until the first receipt is written
            with pytest.raises(StateError, match="closed"):
                await sending
            try:
                with pytest.raises(StateError, match="closed"):
                    await asyncio.wait_for(client.stream("late").send("first"), 20)
            finally:
                store.saved.set()
                await closing

    run(story())


def test_a_request_has_no_more_messages_of_several_labels_than_the_caller_allows(tmp_path: Path) -> None:
    async def story() -> None:
        with serving(tmp_path / "small", config="max_waiting: 4\n") as hub:
            async with connect(hub.url, ALICE, trust=hub.hub_id, retry=QUICK, batch=4) as client:
                streams = await used_streams(client, "small", 6)
                receipts = await send_to_all(streams, "second")
                assert [r.stream_seq for r in receipts if isinstance(r, Receipt)] == [2] * 6

    run(story())


def test_a_large_message_leaves_by_itself(hub: HubProcess) -> None:
    async def story() -> None:
        async with connect(hub.url, ALICE, trust=hub.hub_id) as client:
            streams = await used_streams(client, "large", 2)
            large = "x" * (MAX_BODY_BYTES + 1)
            receipts = await asyncio.gather(streams[0].send(large), streams[1].send("small"))
            assert [receipt.stream_seq for receipt in receipts] == [2, 2]
            assert await texts(streams[0]) == ["first", large]

    run(story())


def test_requests_that_a_proxy_finds_too_large_are_split(hub: HubProcess) -> None:
    """A proxy accepts 1 MiB and answers larger requests with 413 (nginx's default)."""

    async def story() -> None:
        async with between(hub.url) as proxy:
            proxy.max_body_bytes = 1_048_576
            async with connect(proxy.url, ALICE, trust=hub.hub_id, retry=QUICK) as client:
                streams = await used_streams(client, "proxy", MAX_GROUP_MESSAGES)
                receipts = await send_to_all(streams, "x" * MAX_BODY_BYTES)
                assert [r.stream_seq for r in receipts if isinstance(r, Receipt)] == [2] * len(streams)

                many = client.stream("proxy many")
                sent = [receipt async for receipt in many.send_many(["y" * 100_000] * 24)]
                assert [receipt.stream_seq for receipt in sent] == list(range(1, 25))
                before = len(proxy.requests)
                again = [receipt async for receipt in many.send_many(["z" * 100_000] * 8)]
                assert [receipt.stream_seq for receipt in again] == list(range(25, 33))
                assert proxy.requests[before:] == ["/v1/submit"] * 2  # the limit is known by now
                assert await texts(many) == ["y" * 100_000] * 24 + ["z" * 100_000] * 8

    run(story())


def test_a_message_that_a_proxy_finds_too_large_is_refused_and_frees_the_stream(hub: HubProcess) -> None:
    async def story() -> None:
        async with between(hub.url) as proxy:
            proxy.max_body_bytes = 200_000
            async with connect(proxy.url, ALICE, trust=hub.hub_id, retry=QUICK) as client:
                stream = client.stream("proxy one")
                with pytest.raises(TooLarge, match=r"HTTP 413 from a proxy.*client_max_body_size"):
                    await stream.send("x" * 200_000)
                large, small = await asyncio.gather(
                    stream.send("x" * 200_000), stream.send("small"), return_exceptions=True
                )
                assert isinstance(large, TooLarge)
                assert isinstance(small, Receipt)
                assert await texts(stream) == ["small"]

    run(story())
