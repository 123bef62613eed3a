"""The rules of the waiting room, without a hub: what may wait, how long, and of whom."""

from __future__ import annotations

import asyncio

import pytest

from veen_core.errors import ApiError
from veen_core.rejection import Code
from veen_hub.http.resting import Resting
from veen_hub.pipeline.pending_requests import NEWCOMERS
from veen_hub.pipeline.waiting_room import (
    ASSUMED_RATE,
    FREE_MESSAGES,
    FREE_REQUESTS,
    MIN_SAMPLE_SEC,
    SAMPLE_WEIGHT,
    SettlingRate,
    WaitingRoom,
)

ALICE, BOB = b"alice", b"bob"
MAX_MESSAGES = 8_192
MAX_SECONDS = 0.5


class Time:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def room(clock: Time) -> WaitingRoom:
    return WaitingRoom(MAX_MESSAGES, MAX_SECONDS, SettlingRate(clock))


ALLOWED = int(ASSUMED_RATE * MAX_SECONDS)
"""Messages of a lone source, before the rate is known."""


def fill(room: WaitingRoom, source: bytes, messages: int, each: int = 1) -> int:
    """Enter requests until one is refused; return the messages that entered."""
    entered = 0
    while entered < messages and room.why_not(source, each) is None:
        room.enter(source, each)
        entered += each
    return entered


def test_a_lone_source_may_fill_the_time_that_is_allowed_and_no_more(room: WaitingRoom) -> None:
    assert fill(room, ALICE, MAX_MESSAGES) == ALLOWED
    assert room.estimated_wait == pytest.approx(MAX_SECONDS)
    with pytest.raises(ApiError, match="wait too long") as caught:
        room.check(ALICE, 1)
    assert (caught.value.code, caught.value.retry_after) == (Code.UNAVAILABLE, 1)
    assert room.refused == {"messages": 0, "wait": 1, "share": 0}


def test_retry_after_is_the_time_in_which_what_waits_is_settled(room: WaitingRoom) -> None:
    room.rate.per_second = 10.0
    room.enter(ALICE, 32)
    room.enter(BOB, FREE_MESSAGES)
    with pytest.raises(ApiError) as caught:
        room.check(ALICE, 1)
    assert caught.value.retry_after == -(-(32 + FREE_MESSAGES) // 10)


def test_a_source_that_floods_keeps_nothing_from_a_modest_one(room: WaitingRoom) -> None:
    fill(room, ALICE, MAX_MESSAGES)
    assert room.why_not(ALICE, 1) == "wait"
    assert room.why_not(BOB, 1) is None
    assert room.is_modest(BOB, 1)
    assert not room.is_modest(ALICE, 1)
    room.enter(BOB, 1)
    assert room.why_not(BOB, 1) is None, "it has its share"
    assert room.why_not(ALICE, 1) == "share"


def test_everybody_without_an_accepted_message_is_one_source(room: WaitingRoom) -> None:
    """With a share for each connection, a client could take many shares by opening many connections."""
    fill(room, NEWCOMERS, MAX_MESSAGES)
    assert room.why_not(NEWCOMERS, 1) == "wait"
    assert room.why_not(ALICE, 1) is None


def test_sources_share_the_room_and_the_whole_stays_bounded(room: WaitingRoom) -> None:
    entered = [fill(room, b"%d" % n, MAX_MESSAGES) for n in range(20)]
    assert entered == [ALLOWED] + [ALLOWED // 2 // n for n in range(2, 21)], "the first one came alone"
    for n in range(1, 20):
        room.settle(b"%d" % n, entered[n])
    room.settle(b"0", ALLOWED - 1)
    assert fill(room, b"1", MAX_MESSAGES) == ALLOWED // 2
    assert fill(room, b"0", MAX_MESSAGES) == ALLOWED // 2 - 1
    assert room.why_not(b"1", 1) == room.why_not(b"0", 1) == "wait"


def test_a_large_batch_of_a_source_with_nothing_else_is_taken_as_its_first_message(room: WaitingRoom) -> None:
    """Many clients that send a batch each share the hub; none starves while others are served."""
    for n in range(MAX_MESSAGES // 512):
        assert room.why_not(b"%d" % n, 512) is None
        room.enter(b"%d" % n, 512)
    assert room.why_not(ALICE, 512) == "messages"
    assert room.why_not(b"0", 1) is not None


def test_few_requests_may_always_wait_however_slow_the_hub_is(room: WaitingRoom) -> None:
    room.rate.per_second = 1.0
    assert fill(room, ALICE, MAX_MESSAGES) == FREE_REQUESTS
    for _ in range(FREE_REQUESTS):
        room.settle(ALICE, 1)
        room.leave()
    assert (room.waiting, room.requests, room.load) == (0, 0, 0)
    assert fill(room, ALICE, MAX_MESSAGES, each=64) == FREE_MESSAGES


def test_the_load_is_the_larger_part_of_both_bounds(room: WaitingRoom) -> None:
    assert room.load == 0
    room.enter(ALICE, ALLOWED // 2)
    assert room.load == pytest.approx(0.5)
    room.rate.per_second = 1e9
    assert room.load == pytest.approx(ALLOWED / 2 / MAX_MESSAGES)


def test_the_rate_is_measured_while_messages_wait_and_follows_changes(clock: Time) -> None:
    rate = SettlingRate(clock)
    rate.note_waiting()
    clock.now += 2 * MIN_SAMPLE_SEC
    rate.note_settled(1_000, waiting=1)
    assert rate.per_second == pytest.approx(1_000 / (2 * MIN_SAMPLE_SEC))
    clock.now += 2 * MIN_SAMPLE_SEC
    before = rate.per_second
    rate.note_settled(int(10_000 * 2 * MIN_SAMPLE_SEC), waiting=1)
    assert rate.per_second == pytest.approx(before + SAMPLE_WEIGHT * (10_000 - before))


def test_idle_time_does_not_make_a_hub_slow(clock: Time) -> None:
    rate = SettlingRate(clock)
    for _ in range(100):
        rate.note_waiting()
        clock.now += MIN_SAMPLE_SEC / 100
        rate.note_settled(1, waiting=0)
        clock.now += 1
    assert rate.per_second == ASSUMED_RATE


def test_a_hub_that_stood_still_is_measured_again(clock: Time) -> None:
    rate = SettlingRate(clock)
    rate.note_waiting()
    clock.now += 3_600
    rate.note_settled(1, waiting=1)
    assert rate.per_second == 1.0, "no estimate is 0"
    for _ in range(12):
        clock.now += 2 * MIN_SAMPLE_SEC
        rate.note_settled(int(4_000 * 2 * MIN_SAMPLE_SEC), waiting=1)
    assert rate.per_second == pytest.approx(4_000, rel=0.01)


def test_each_refused_connection_is_read_again_after_its_rest() -> None:
    async def run() -> None:
        resting, over = Resting(0.02), list[int]()
        done = asyncio.Event()
        started = asyncio.get_running_loop().time()
        times = list[float]()

        def resume(number: int) -> None:
            over.append(number)
            times.append(asyncio.get_running_loop().time() - started)
            if len(over) == 100:
                done.set()

        for number in range(100):
            resting.add(lambda number=number: resume(number))  # type: ignore[misc]  # mypy and default values
            if number == 50:
                await asyncio.sleep(0.005)
        await asyncio.wait_for(done.wait(), 30)
        assert over == list(range(100))
        assert min(times) >= 0.02
        assert min(times[51:]) >= 0.025

    asyncio.run(run())
