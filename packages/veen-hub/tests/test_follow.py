"""Live reading: each item as soon as it is durable, in order, without gaps (H15)."""

from __future__ import annotations

import asyncio
import socket
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import cbor2
import pytest

from veen_core import cbor, stream
from veen_core.entry import Content, Entry
from veen_core.ids import Label, StreamSeq
from veen_core.msg import Msg
from veen_core.receipt import Receipt
from veen_hub.pipeline.feed import FOLLOWERS_AT_ONCE, Feed
from veen_hub.pipeline.stream_items import encode_items

from .conftest import StartHub
from .following import Follower
from .people import Writer
from .serving import CBOR_SEQ, PATIENCE, RunningHub, until


def test_a_follower_gets_existing_entries_and_then_new_ones(hub: RunningHub, alice: Writer) -> None:
    wires = [alice.next() for _ in range(6)]
    receipts = [hub.accept(wire) for wire in wires[:3]]
    with Follower(hub.port, alice.label) as follower:
        assert (follower.status, follower.content_type) == (200, CBOR_SEQ)
        items = follower.take(3)
        receipts += [hub.accept(wire) for wire in wires[3:]]
        items += follower.take(3)
    assert [item[1] for item in items] == [1, 2, 3, 4, 5, 6]
    assert [cbor.encode(item[2]) for item in items] == wires
    assert [Receipt.decode(cbor.encode(item[3])) for item in items] == receipts


def test_a_follower_resumes_at_the_entry_it_asks_for(hub: RunningHub, alice: Writer) -> None:
    for _ in range(5):
        hub.accept(alice.next())
    for start in (0, 1, 4, 5):
        with Follower(hub.port, alice.label, start) as follower:
            wanted = list(range(max(start, 1), 6))
            assert [item[1] for item in follower.take(len(wanted))] == wanted
    with Follower(hub.port, alice.label, 7) as ahead:
        hub.accept(alice.next())
        hub.accept(alice.next())
        assert ahead.take(1)[0][1] == 7


def test_a_label_without_entries_can_be_followed(hub: RunningHub) -> None:
    alice = hub.writer("alice", to="not yet")
    with Follower(hub.port, alice.label) as follower:
        hub.accept(alice.next())
        assert follower.take(1)[0][1] == 1


def test_a_proxy_that_speaks_http_1_0_may_follow(hub: RunningHub, alice: Writer) -> None:
    hub.accept(alice.next())
    with socket.create_connection(("127.0.0.1", hub.port), timeout=PATIENCE) as connection:
        connection.sendall(f"GET /v1/stream/{alice.label.hex()} HTTP/1.0\r\n\r\n".encode())
        file = connection.makefile("rb")
        assert b" 200 " in file.readline()
        while (line := file.readline()) != b"\r\n":
            assert b"chunked" not in line
        assert cbor2.load(file)[1] == 1
        hub.accept(alice.next())
        assert cbor2.load(file)[1] == 2
        file.close()


def test_a_follow_request_with_a_malformed_label_or_position_is_a_bad_request(
    hub: RunningHub, alice: Writer
) -> None:
    for path in ("/v1/stream/abc", "/v1/stream/" + "AB" * 32, f"/v1/stream/{alice.label.hex()}?from=x"):
        assert (hub.get(path).status, hub.get(path).error.code) == (400, "E.BAD_REQUEST")


def test_followers_have_no_gaps_while_many_write_and_others_come_and_go(hub: RunningHub) -> None:
    """Joining, leaving and rejoining race with commits on purpose."""
    writers = [hub.writer(f"writer {n}") for n in range(8)]
    label, each = writers[0].label, 40
    total = each * len(writers)

    def write(writer: Writer) -> None:
        for _ in range(each):
            hub.accept(writer.next())

    def follow() -> list[int]:
        with Follower(hub.port, label) as follower:
            return [item[1] for item in follower.take(total)]

    def reconnect() -> list[int]:
        found: list[int] = []
        while len(found) < total:
            with Follower(hub.port, label, len(found) + 1) as follower:
                found += [item[1] for item in follower.take(min(7, total - len(found)))]
        return found

    with ThreadPoolExecutor(16) as pool:
        reading = [pool.submit(follow) for _ in range(4)] + [pool.submit(reconnect) for _ in range(4)]
        writing = [pool.submit(write, writer) for writer in writers]
        for job in writing:
            job.result(PATIENCE)
        for follower in reading:
            assert follower.result(PATIENCE) == list(range(1, total + 1))


def test_an_item_arrives_within_milliseconds_of_its_receipt(hub: RunningHub, alice: Writer) -> None:
    durable: dict[int, float] = {}
    arrived: dict[int, float] = {}
    with Follower(hub.port, alice.label) as follower:

        def follow() -> None:
            for _ in range(50):
                item = follower.next()
                assert item is not None
                arrived[item[1]] = time.perf_counter()

        thread = threading.Thread(target=follow)
        thread.start()
        for _ in range(50):
            receipt = hub.accept(alice.next())
            durable[receipt.stream_seq] = time.perf_counter()
        thread.join(PATIENCE)
    late = [(arrived[seq] - durable[seq]) * 1_000 for seq in durable]
    assert statistics.median(late) < 20, late


def followers_now(hub: RunningHub) -> float:
    return hub.metric("veen_followers")


def test_followers_that_leave_are_forgotten_also_on_a_quiet_label(hub: RunningHub, alice: Writer) -> None:
    followers = [Follower(hub.port, alice.label) for _ in range(20)]
    assert followers_now(hub) == 20
    for follower in followers:
        follower.close()
    until(lambda: followers_now(hub) == 0, "all of them are gone")
    assert hub.do(lambda: (hub.hub.feed.followers, dict(hub.hub.feed._labels))) == (0, {})


def test_a_stream_ends_completely_when_the_hub_drains_while_its_follower_reads_storage(
    hub: RunningHub, alice: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.accept(alice.next())
    contents, reads, continues = hub.store.read.contents, threading.Event(), threading.Event()

    def read(label: Label, start: StreamSeq, limit: int) -> list[Content]:
        found = contents(label, start, limit)
        if start == 2:
            reads.set()
            assert continues.wait(PATIENCE)
        return found

    monkeypatch.setattr(hub.store.read, "contents", read)
    with Follower(hub.port, alice.label) as follower:
        assert follower.take(1)[0][1] == 1
        assert reads.wait(PATIENCE)
        stopping = threading.Thread(target=hub.stop)
        stopping.start()
        until(hub.hub.drained.is_set, "everything that was accepted is settled")
        continues.set()
        assert follower.next() is None
    stopping.join(PATIENCE)


def test_followers_of_different_labels_do_not_mix(hub: RunningHub) -> None:
    alice, bob = hub.writer("alice", to="one"), hub.writer("bob", to="two")
    with Follower(hub.port, alice.label) as first, Follower(hub.port, bob.label) as second:
        for _ in range(5):
            hub.accept(alice.next())
            hub.accept(bob.next())
        for follower, writer in ((first, alice), (second, bob)):
            items = follower.take(5)
            assert {item[2][2] for item in items} == {bytes(writer.label)}
            assert [item[1] for item in items] == [1, 2, 3, 4, 5]


def test_items_of_the_feed_and_of_pages_are_the_same_bytes(start_hub: StartHub) -> None:
    hub = start_hub()
    alice = hub.writer()
    with Follower(hub.port, alice.label) as live:
        wires = [alice.next() for _ in range(3)]
        for wire in wires:
            hub.accept(wire)
        from_memory = live.take(3)
    with Follower(hub.port, alice.label) as later:
        assert later.take(3) == from_memory
    assert [Msg.decode(cbor.encode(item[2])).encode() for item in from_memory] == wires


# --- the feed by itself


def entry(label: Label, seq: int) -> Entry:
    return Entry(label, StreamSeq(seq), b"\x80", b"\x80")


def test_the_feeds_memory_never_has_a_gap() -> None:
    """An announcement that was under way while the last follower left and another came (a race, by hand)."""
    label = Label(stream.stream_id("x"))
    feed = Feed()
    feed.leave(feed.join(label, StreamSeq(1)))
    feed.join(label, StreamSeq(1))
    feed.announce([entry(label, 1)])
    feed.announce([entry(label, 3)])  # 2 was committed while nobody followed
    assert feed.recent(label, StreamSeq(1)) is None
    assert feed.recent(label, StreamSeq(2)) is None
    found = feed.recent(label, StreamSeq(3))
    assert found is not None
    assert found[1] == 4


class Slowly:
    """A live writer that takes a number of parts, and more once it is drained."""

    def __init__(self, room: int = 10**9) -> None:
        self.parts: list[bytes] = []
        self.room = room
        self.drained = asyncio.Event()

    def write(self, data: bytes) -> bool:
        self.parts.append(data)
        return len(self.parts) < self.room

    async def drain(self) -> None:
        await self.drained.wait()


def test_the_feed_encodes_an_entry_once_for_all_followers_and_lets_other_work_run_in_between() -> None:
    async def run() -> None:
        label = Label(stream.stream_id("x"))
        feed, writers = Feed(), [Slowly() for _ in range(3 * FOLLOWERS_AT_ONCE)]
        waits = [asyncio.create_task(feed.wait(feed.join(label, StreamSeq(1), one))) for one in writers]
        await asyncio.sleep(0)
        feed.announce([entry(label, 1)])
        served = []
        while not served or served[-1] < len(writers):
            served.append(sum(bool(one.parts) for one in writers))
            await asyncio.sleep(0)
        assert served == [FOLLOWERS_AT_ONCE, 2 * FOLLOWERS_AT_ONCE, 3 * FOLLOWERS_AT_ONCE]
        assert len({id(one.parts[0]) for one in writers}) == 1
        for wait in waits:
            wait.cancel()

    asyncio.run(run())


def test_entries_that_arrive_while_followers_are_served_reach_all_of_them_in_order() -> None:
    async def run() -> None:
        label = Label(stream.stream_id("x"))
        feed, writers = Feed(), [Slowly() for _ in range(3 * FOLLOWERS_AT_ONCE)]
        followers = [feed.join(label, StreamSeq(1), one) for one in writers]
        waits = [asyncio.create_task(feed.wait(one)) for one in followers]
        await asyncio.sleep(0)
        for number in range(1, 21):
            feed.announce([entry(label, number)])
            await asyncio.sleep(0)
        while any(one.at < 21 for one in followers):
            await asyncio.sleep(0)
        whole = b"".join(
            b"".join(encode_items([entry(label, n).content], StreamSeq(n))) for n in range(1, 21)
        )
        assert {b"".join(one.parts) for one in writers} == {whole}
        assert max(len(one.parts) for one in writers) <= 20
        for wait in waits:
            wait.cancel()

    asyncio.run(run())


def test_a_follower_whose_client_reads_too_slowly_is_sent_nothing_until_it_has_read() -> None:
    async def run() -> None:
        label = Label(stream.stream_id("x"))
        feed, slow, keen = Feed(), Slowly(room=2), Slowly()
        follower = feed.join(label, StreamSeq(1), slow)
        waits = [
            asyncio.create_task(feed.wait(one)) for one in (follower, feed.join(label, StreamSeq(1), keen))
        ]
        await asyncio.sleep(0)
        for number in range(1, 6):
            feed.announce([entry(label, number)])
            await asyncio.sleep(0)
        assert (len(slow.parts), len(keen.parts)) == (2, 5)
        slow.drained.set()
        await waits[0]
        assert follower.at == 3
        assert feed.has(follower)
        assert feed.recent(label, follower.at) is not None
        waits[1].cancel()

    asyncio.run(run())


def test_the_feed_returns_none_for_entries_that_it_no_longer_keeps() -> None:
    label = Label(stream.stream_id("x"))
    feed = Feed()
    follower = feed.join(label, StreamSeq(1))
    feed.announce([entry(label, n) for n in range(1, 3_001)])
    assert feed.recent(label, StreamSeq(1)) is None
    assert feed.recent(label, StreamSeq(3_000)) is not None
    assert feed.recent(label, StreamSeq(3_001)) is None
    feed.leave(follower)
    assert feed.followers == 0
