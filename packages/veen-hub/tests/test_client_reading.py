"""Reading in stages: pages are fetched and verified ahead, and messages arrive as if they were not (§9)."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import sys
import threading
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar

import pytest
from aiohttp import web

from veen_core import DEFAULT_PROFILE, H, Label, SigningKey, SigningSeed, StreamSeq, seal_msg
from veen_core.api import StreamItem, StreamRequest, StreamResponse
from veen_core.ciphertext import Binding
from veen_core.errors import SignatureError, VeenError
from veen_core.ids import ClientId, ClientSeq, LeafHash, MmrRoot, Signature, UnixTime
from veen_core.keys import DhSecret
from veen_core.mmr import Mmr
from veen_core.payload import PayloadHeader
from veen_core.receipt import Receipt, sign_receipt
from veen_hub.client import TEXT, Misbehaved, Stream, connect
from veen_hub.client.reading import one_ahead
from veen_hub.client.reading.message import Message
from veen_hub.client.wire import threads
from veen_hub.client.wire.framing import Framer, item_end
from veen_hub.client.wire.stream_items import cut_item, cut_page, decode_item, decode_page, find_end

from .client_fixtures import QUICK, HubProcess, person, run, serving
from .client_proxy import Lie, Proxy, between, honest

T = TypeVar("T")
ALICE = person("alice")
SENT = 22
PAGE = 4


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with serving(tmp_path_factory.mktemp("hub")) as one:
        yield one


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    # The package has a function of the same name as the module.
    monkeypatch.setattr(sys.modules["veen_hub.client.reading.follow"], "PAGE_ENTRIES", PAGE)


@asynccontextmanager
async def reading(
    hub: HubProcess, name: str, *, count: int = SENT, size: int = 10, own: bool = False
) -> AsyncIterator[tuple[Proxy, Stream]]:
    """A stream of messages, 22 in six pages, and a client that reaches the hub through a proxy.

    The client has verified nothing of it yet or, if it is the client's ``own``, everything.
    """
    async with between(hub.url) as proxy:
        async with connect(hub.url, ALICE, trust=hub.hub_id, batch=4) as direct:
            async for _ in direct.stream(name).send_many(bytes(size) for _ in range(count)):
                pass
        async with connect(proxy.url, ALICE, trust=hub.hub_id, retry=QUICK) as client:
            stream = client.stream(name)
            if own:
                await stream.head()
            proxy.requests.clear()
            yield proxy, stream


async def read_until_error(stream: Stream) -> tuple[list[int], Exception | None]:
    messages, failure = await until_error(stream.read())
    return [message.stream_seq for message in messages], failure


async def until_error(source: AsyncGenerator[T, None]) -> tuple[list[T], Exception | None]:
    items: list[T] = []
    try:
        async for item in source:
            items.append(item)
    except (VeenError, ValueError) as exc:
        return items, exc
    return items, None


def from_entry(seq: int, change: Callable[[StreamResponse], object]) -> Lie:
    """A lie about every page from entry ``seq`` on."""

    def lie(path: str, request: bytes, answer: bytes) -> bytes | web.Response:
        if path != "/v1/stream" or StreamRequest.decode(request).start < seq:
            return answer
        changed = change(StreamResponse.decode(answer))
        return changed.encode() if isinstance(changed, StreamResponse) else web.Response(status=500)

    return lie


def with_receipt(page: StreamResponse, **changes: object) -> StreamResponse:
    first, *others = page.items
    assert first.receipt is not None
    receipt = dataclasses.replace(first.receipt, **changes)  # type: ignore[arg-type]
    return dataclasses.replace(page, items=(dataclasses.replace(first, receipt=receipt), *others))


def tasks() -> set[asyncio.Task[object]]:
    """The tasks that produce pages ahead."""
    return {task for task in asyncio.all_tasks() if task.get_name() == "veen-one-ahead"}


# --- whole streams


@pytest.mark.parametrize("own", [False, True], ids=["beyond the prefix", "within the prefix"])
def test_every_message_is_read_once_and_in_order(hub: HubProcess, own: bool) -> None:
    async def story() -> None:
        async with reading(hub, f"order/{own}", own=own) as (proxy, stream):
            assert await read_until_error(stream) == (list(range(1, SENT + 1)), None)
            assert proxy.requests.count("/v1/stream") == 6
            assert [m.stream_seq async for m in stream.read(6, 17)] == list(range(6, 18))
            assert not tasks()

    run(story())


def unsigned(page: StreamResponse) -> StreamResponse:
    return with_receipt(page, hub_sig=Signature(bytes(64)))


def forged_root(page: StreamResponse) -> StreamResponse:
    return with_receipt(page, mmr_root=MmrRoot(bytes(32)))


def missing_entry(page: StreamResponse) -> StreamResponse:
    return dataclasses.replace(page, items=page.items[1:])


def no_page(_page: StreamResponse) -> None:
    return None


FAULTS = [
    (unsigned, SignatureError),
    (forged_root, SignatureError),
    (missing_entry, Misbehaved),
    (no_page, Misbehaved),
]


@pytest.mark.parametrize("own", [False, True], ids=["beyond the prefix", "within the prefix"])
@pytest.mark.parametrize(("change", "error"), FAULTS)
def test_an_error_on_page_3_comes_after_the_messages_of_pages_1_and_2(
    hub: HubProcess, change: Callable[..., StreamResponse], error: type[VeenError], own: bool
) -> None:
    async def story() -> None:
        async with reading(hub, f"third/{change.__name__}/{own}", own=own) as (proxy, stream):
            proxy.lie = from_entry(9, change)
            read, failure = await read_until_error(stream)
            assert read == list(range(1, 9))
            assert isinstance(failure, error)
            assert not tasks()
            proxy.lie = honest
            assert await read_until_error(stream) == (list(range(1, SENT + 1)), None)

    run(story())


def test_an_error_of_a_page_is_raised_even_if_the_next_page_cannot_be_fetched(hub: HubProcess) -> None:
    async def story() -> None:
        async with reading(hub, "two faults") as (proxy, stream):
            bad, none = from_entry(5, unsigned), from_entry(9, no_page)

            def lie(path: str, request: bytes, answer: bytes) -> bytes | web.Response | None:
                given = none(path, request, answer)
                return bad(path, request, given) if isinstance(given, bytes) else given

            proxy.lie = lie
            read, failure = await read_until_error(stream)
            assert read == list(range(1, 5))
            assert isinstance(failure, SignatureError)

    run(story())


# --- readers that stop early


def test_a_reader_that_stops_early_leaves_no_task_behind(hub: HubProcess) -> None:
    async def story() -> None:
        async with reading(hub, "early") as (proxy, stream):
            before = asyncio.all_tasks()
            async with aclosing(stream.read()) as messages:
                assert (await anext(messages)).stream_seq == 1
                assert tasks()
            assert not tasks()
            asked = proxy.requests.count("/v1/stream")
            assert asked <= 3
            await asyncio.sleep(0.1)
            assert proxy.requests.count("/v1/stream") == asked
            assert asyncio.all_tasks() <= before

    run(story())


def test_a_reader_that_is_dropped_is_closed_by_the_event_loop(hub: HubProcess) -> None:
    async def story() -> None:
        async with reading(hub, "dropped") as (_proxy, stream):
            async for message in stream.read():
                assert message.stream_seq == 1
                break
            del message
            gc.collect()
            async with asyncio.timeout(20):
                while tasks():
                    await asyncio.sleep(0.01)
            assert len([m async for m in stream.read()]) == SENT

    run(story())


def test_a_reader_that_is_cancelled_leaves_no_task_behind(hub: HubProcess) -> None:
    async def story() -> None:
        async with reading(hub, "cancelled") as (proxy, stream):
            held = asyncio.Event()

            async def hold(path: str) -> None:
                if path == "/v1/stream" and proxy.requests.count(path) == 3:
                    held.set()
                    await asyncio.Event().wait()

            proxy.after = hold
            reader = asyncio.create_task(read_until_error(stream))
            await held.wait()
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
            assert not tasks()

    run(story())


def test_a_slow_reader_is_at_most_two_pages_behind_what_was_fetched(hub: HubProcess) -> None:
    async def story() -> None:
        async with reading(hub, "slow") as (proxy, stream), aclosing(stream.read()) as messages:
            async for message in messages:
                page = (message.stream_seq - 1) // PAGE + 1
                await asyncio.sleep(0.02)
                assert proxy.requests.count("/v1/stream") <= page + 2

    run(story())


def test_memory_is_bounded_by_pages(hub: HubProcess) -> None:
    async def story() -> None:
        async with reading(hub, "memory", count=60, size=100_000) as (_proxy, stream):
            tracemalloc.start()
            try:
                count = 0
                async for message in stream.read():
                    count += len(message.body) == 100_000
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert count == 60
            # The log has 6 MB; three pages of 0.4 MB are held, one as a response too, one opened.
            assert peak < 3_600_000

    run(story())


# --- following


def test_a_follower_opens_few_messages_without_a_thread_and_many_in_threads(
    hub: HubProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_by: list[str] = []
    made = Message.__init__

    def note(self: Message, *args: object) -> None:
        opened_by.append(threading.current_thread().name)
        made(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Message, "__init__", note)

    async def story() -> None:
        async with connect(hub.url, ALICE, trust=hub.hub_id) as client:
            stream = client.stream("follow")
            await stream.send("1")
            async with aclosing(stream.follow()) as messages:
                assert (await anext(messages)).text == "1"
                assert opened_by == [threading.current_thread().name]
                async for _ in stream.send_many(str(n) for n in range(2, 40)):
                    pass
                assert [(await anext(messages)).text for _ in range(38)] == [str(n) for n in range(2, 40)]
            assert not tasks()
        assert any(name.startswith("veen-client") for name in opened_by)

    run(story())


def test_a_live_stream_that_lies_raises_after_the_entries_before_it(hub: HubProcess) -> None:
    async def story() -> None:
        async with reading(hub, "live lie") as (proxy, stream):
            framer, seen = Framer(1_000_000), [0]

            def lie(path: str, _request: bytes, part: bytes) -> bytes:
                if not path.startswith("/v1/stream/"):
                    return part
                items = []
                for item in framer.feed(part):
                    seen[0] += 1
                    found = StreamItem.decode(item)
                    if seen[0] == 9:
                        assert found.receipt is not None
                        forged = dataclasses.replace(found.receipt, leaf_hash=LeafHash(bytes(32)))
                        found = dataclasses.replace(found, receipt=forged)
                    items.append(found.encode())
                return b"".join(items)

            proxy.lie = lie
            read, failure = await until_error(stream.follow())
            assert isinstance(failure, VeenError)
            assert [message.stream_seq for message in read] == list(range(1, len(read) + 1))
            assert len(read) <= 8
            assert not tasks()

    run(story())


# --- one item ahead


async def numbers(log: list[str], upto: int, error: Exception | None = None) -> AsyncGenerator[int, None]:
    try:
        for number in range(upto):
            log.append(f"made {number}")
            yield number
        if error is not None:
            raise error
    finally:
        await asyncio.sleep(0)
        log.append("closed")


def test_a_source_is_exactly_one_item_ahead() -> None:
    async def story() -> None:
        log: list[str] = []
        async with aclosing(one_ahead(numbers(log, 4))) as items:
            async for item in items:
                await asyncio.sleep(0.01)
                assert [line for line in log if line != "closed"] == [
                    f"made {n}" for n in range(min(item + 2, 4))
                ]
        assert log[-1] == "closed"
        assert not tasks()

    run(story())


def test_an_error_of_the_source_comes_after_its_items() -> None:
    async def story() -> None:
        log: list[str] = []
        items, failure = await until_error(one_ahead(numbers(log, 3, ValueError("broken"))))
        assert (items, str(failure)) == ([0, 1, 2], "broken")
        assert log[-1] == "closed"

    run(story())


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_closing_cancels_the_source_and_waits_for_its_end(taken: int) -> None:
    async def story() -> None:
        log: list[str] = []

        async def endless() -> AsyncGenerator[int, None]:
            try:
                yield 0
                yield 1
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.01)
                log.append("closed")

        items = one_ahead(endless())
        for _ in range(taken):
            await anext(items)
        await items.aclose()
        assert log == (["closed"] if taken else [])
        assert not tasks()

    run(story())


def test_a_source_whose_task_is_cancelled_ends_its_consumer() -> None:
    async def story() -> None:
        async def stuck() -> AsyncGenerator[int, None]:
            yield 0
            await asyncio.Event().wait()

        items = one_ahead(stuck())
        assert await anext(items) == 0
        waiting = asyncio.create_task(until_error(items))
        await asyncio.sleep(0)
        for task in tasks():
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(story())


# --- items


def made_page(count: int = 3, start: int = 23) -> tuple[Label, bytes]:
    """A page of signed entries; 23 to 25 are encoded in one and in two bytes."""
    key, tree, label, items = SigningKey(SigningSeed(H(b"writer"))), Mmr(), Label(H(b"label")), []
    for seq in range(start, start + count):
        binding = Binding(
            profile_id=DEFAULT_PROFILE.profile_id,
            label=label,
            client_id=ClientId(key.public),
            client_seq=ClientSeq(seq),
            prev_ack=StreamSeq(0),
        )
        sealed = seal_msg(
            key,
            ALICE.recipient,
            binding,
            PayloadHeader(schema=TEXT),
            bytes(seq),
            profile=DEFAULT_PROFILE,
            ephemeral=DhSecret(H(bytes([seq % 256]))),
        )
        tree.add(sealed.msg.leaf_hash)
        receipt = Receipt(
            label=label,
            stream_seq=StreamSeq(seq),
            leaf_hash=sealed.msg.leaf_hash,
            mmr_root=tree.root,
            hub_ts=UnixTime(1_800_000_000),
        )
        items.append(
            StreamItem(stream_seq=StreamSeq(seq), msg=sealed.msg, receipt=sign_receipt(key, receipt))
        )
    page = StreamResponse(
        label=label, from_seq=StreamSeq(start), items=tuple(items), next_cursor=StreamSeq(start + count)
    )
    return label, page.encode()


@pytest.mark.parametrize("count", [0, 1, 3, 23, 24, 260])
@pytest.mark.parametrize(
    "extra",
    [{}, {"next_cursor": None}, {"to_seq": StreamSeq(70_000)}, {"server_version": "1.2.3"}],
    ids=["cursor", "last", "bounded", "version"],
)
def test_a_page_is_cut_as_it_is_decoded(count: int, extra: dict[str, object]) -> None:
    label, body = made_page(count)
    body = dataclasses.replace(StreamResponse.decode(body), **extra).encode()  # type: ignore[arg-type]
    cut = cut_page(body, label, StreamSeq(23), 300)
    assert cut == decode_page(body, label, StreamSeq(23), 300, control=False)
    assert [entry.stream_seq for entry in cut.entries] == list(range(23, 23 + count))
    for entry in cut.entries:
        assert (entry.msg.encode(), entry.receipt.encode()) == (entry.msg_bytes, entry.receipt_bytes)


def _decoded(body: bytes, label: Label) -> object:
    try:
        return decode_page(body, label, StreamSeq(23), 3, control=False)
    except VeenError:
        return None


def test_a_page_that_cannot_be_decoded_is_not_cut() -> None:
    label, body = made_page()
    for at in range(len(body)):
        for bit in (0, 4, 7):
            flipped = bytearray(body)
            flipped[at] ^= 1 << bit
            if (cut := cut_page(bytes(flipped), label, StreamSeq(23), 3)) is not None:
                assert cut == _decoded(bytes(flipped), label), (at, bit)
    for at in range(0, len(body), 7):
        assert cut_page(body[:at], label, StreamSeq(23), 3) is None
    for changed in (body + b"\x00", b"\x00" + body, body + bytes(1_000)):
        assert cut_page(changed, label, StreamSeq(23), 3) is None
    assert cut_page(body, label, StreamSeq(23), 2) is None
    assert cut_page(body, label, StreamSeq(22), 3) is None
    assert cut_page(body, Label(bytes(32)), StreamSeq(23), 3) is None


def test_an_item_of_a_live_stream_is_cut_as_it_is_decoded() -> None:
    label, body = made_page()
    items = [item.encode() for item in StreamResponse.decode(body).items]
    for seq, item in enumerate(items, 23):
        cut = cut_item(item, 0, label, seq)
        assert cut is not None
        assert cut == (decode_item(item, label, seq, control=False), len(item))
        assert find_end(bytearray(item + b"\xa3"), 0) == item_end(item) == len(item)
        assert [find_end(item[:at], 0) for at in range(len(item))] == [None] * len(item)
    whole, framer = b"".join(items), Framer(100_000, find_end=find_end)
    assert [one for at in range(0, len(whole), 100) for one in framer.feed(whole[at : at + 100])] == items


# --- threads


def test_a_thread_pauses_when_it_has_computed_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [0.0], []
    monkeypatch.setattr(threads.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(threads.time, "sleep", slept.append)
    pauses = threads.GilPauses()
    for step in range(1, 8):
        now[0] = step * threads.MAX_GIL_SECONDS * 0.6
        pauses.pause_if_due()
    assert slept == [threads.GIL_PAUSE_SECONDS] * 3
