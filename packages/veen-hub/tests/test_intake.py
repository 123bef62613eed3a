"""The intake: each request gets its own outcomes, in order, whatever arrives with it."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veen_core.errors import AdmissionError, ApiError
from veen_core.ids import AuthRef, ClientId, ClientSeq, Label, LeafHash, StreamSeq
from veen_core.rejection import CBOR_INVALID, CLIENT_SEQ
from veen_hub.admission.stateless import Submission
from veen_hub.pipeline import intake as intake_module
from veen_hub.pipeline.examiner import Verdict
from veen_hub.pipeline.intake import GROUP_SIZE, MAX_DIRECT, MAX_TAKEN, Intake
from veen_hub.pipeline.pending_requests import PendingRequest, RequestSlice, TurnQueue
from veen_hub.pipeline.saturation import Saturation
from veen_hub.pipeline.sequencer import OnSettled, Ticket
from veen_hub.pipeline.waiting_room import WaitingRoom

# --- turns


def pending(number: int, size: int, source: bytes = b"") -> PendingRequest:
    return PendingRequest.of([b"%d/%d" % (number, i) for i in range(size)], list, source)


def wires_of(group: list[RequestSlice]) -> list[bytes]:
    return [wire for part in group for wire in part.pending.wires[part.start : part.stop]]


SIZES_BY_SOURCE = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3 * GROUP_SIZE)), max_size=12)


@given(SIZES_BY_SOURCE, st.integers(1, 4))
def test_groups_hold_every_message_once_and_each_source_keeps_its_order(
    requests: list[tuple[int, int]], pause: int
) -> None:
    queue, taken = TurnQueue(), list[bytes]()
    expected: dict[int, list[bytes]] = {}
    for number, (source, size) in enumerate(requests):
        request = pending(number, size, b"%d" % source)
        queue.add(request)
        expected.setdefault(source, []).extend(request.wires)
        if number % pause == 0:
            before = queue.messages
            group = queue.take(GROUP_SIZE)
            assert len(wires_of(group)) == min(before, GROUP_SIZE)
            taken += wires_of(group)
    while queue.messages:
        taken += wires_of(queue.take(GROUP_SIZE))
    assert not queue.take(GROUP_SIZE)
    for source, wires in expected.items():
        numbers = {number for number, (other, _size) in enumerate(requests) if other == source}
        assert [wire for wire in taken if int(wire.partition(b"/")[0]) in numbers] == wires
    assert sum(map(len, expected.values())) == len(taken)


def test_a_source_with_few_messages_does_not_wait_for_another_ones_thousands() -> None:
    queue = TurnQueue()
    for number in range(100):
        queue.add(pending(number, 64, b"flood"))
    queue.take(GROUP_SIZE)
    queue.add(pending(1_000, 1, b"modest"))
    assert b"1000/0" in wires_of(queue.take(GROUP_SIZE))


# --- outcomes: a message is ``b"<request>/<place>/<fate>"``


def fate_of(wire: bytes) -> bytes:
    return wire.rpartition(b"/")[2]


def judged(wire: bytes, _supported: object = None) -> Verdict:
    if fate_of(wire) == b"examined":
        return AdmissionError(CBOR_INVALID, wire.decode())
    none = bytes(32)
    return Submission(
        Label(none), ClientId(none), ClientSeq(1), StreamSeq(0), AuthRef(none), LeafHash(none), wire
    )


class Slow:
    """An examiner that takes its time, so that groups are done in another order than they came in."""

    def __init__(self, _supported: object, **_options: bool) -> None:
        self._random = random.Random(id(self))

    def examine(self, wires: list[bytes]) -> list[Verdict]:
        time.sleep(self._random.random() / 200)
        if any(fate_of(wire) == b"bug" for wire in wires):
            raise RuntimeError("a bug")
        return [judged(wire) for wire in wires]

    def close(self) -> None:
        pass


class Settling:
    """A sequencer that decides in its own thread; an outcome is the message itself, or its refusal."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.passed = 0
        """Groups that were put before those that waited."""
        self._lock = threading.Lock()

    def put(self, tickets: list[Ticket[Any]], answer: OnSettled, *, first: bool = False) -> None:
        def settle() -> None:
            with self._lock:
                for ticket in tickets:
                    try:
                        if ticket.check is not None:
                            ticket.check()
                        ticket.outcome = ticket.action(cast(Any, None))
                    except AdmissionError as exc:
                        ticket.outcome = exc
            answer(tickets)

        assert tickets
        self.passed += first
        threading.Thread(target=settle).start()

    def admit(self, submission: Submission, _batch: object) -> Any:
        if fate_of(submission.wire) == b"decided":
            raise AdmissionError(CLIENT_SEQ, submission.wire.decode())
        return submission.wire


class InOrder(Settling):
    """Decides at once, so that the order in which it is given tickets can be seen."""

    def put(self, tickets: list[Ticket[Any]], answer: OnSettled, *, first: bool = False) -> None:
        self.passed += first
        for ticket in tickets:
            if ticket.check is not None:
                ticket.check()
            ticket.outcome = ticket.action(cast(Any, None))
            self.seen.append(ticket.outcome)
        answer(tickets)


def made(sequencer: Settling, most: int = 100_000) -> Intake:
    return Intake(
        cast(Any, sequencer),
        cast(Any, None),
        sequencer.admit,
        workers=4,
        room=WaitingRoom(most, 1_000),
        saturation=Saturation(),
    )


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "Examiner", Slow)
    monkeypatch.setattr(intake_module, "verdict_of", judged)


async def entered(intake: Intake, wires: list[bytes], source: bytes = b"") -> PendingRequest:
    settled = asyncio.Event()
    request = intake.enter(wires, settled.set, source)
    await asyncio.wait_for(settled.wait(), 30)
    return request


def check_outcomes(pending: PendingRequest) -> None:
    assert pending.open == 0
    for wire, outcome in zip(pending.wires, pending.settled, strict=True):
        if fate_of(wire) == b"accepted":
            assert outcome == wire
        else:
            assert isinstance(outcome, AdmissionError)
            assert str(outcome) == wire.decode()
            row = CBOR_INVALID if fate_of(wire) == b"examined" else CLIENT_SEQ
            assert outcome.rejection is row


FATES = st.sampled_from([b"accepted", b"examined", b"decided"])
REQUEST = st.one_of(
    st.lists(FATES, min_size=1, max_size=5),
    st.builds(lambda fate, many: [fate] * many, FATES, st.integers(1, 3 * GROUP_SIZE)),
    st.lists(FATES, min_size=GROUP_SIZE - 1, max_size=2 * GROUP_SIZE + 1),
)
PAUSES = st.integers(0, 2)
"""Turns of the loop before a request comes."""


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(PAUSES, REQUEST), min_size=1, max_size=12))
def test_each_message_gets_its_own_outcome(requests: list[tuple[int, list[bytes]]]) -> None:
    async def run() -> None:
        intake = made(Settling())

        async def one(n: int, pauses: int, fates: list[bytes]) -> PendingRequest:
            for _ in range(pauses):
                await asyncio.sleep(0)
            return await entered(intake, [b"%d/%d/%s" % (n, i, fate) for i, fate in enumerate(fates)])

        for pending in await asyncio.gather(*(one(n, *request) for n, request in enumerate(requests))):
            check_outcomes(pending)
        assert intake.waiting == 0
        await intake.drain(asyncio.Event())

    asyncio.run(run())


def test_the_sequencer_sees_messages_in_the_order_in_which_they_arrived() -> None:
    """Of one long sequence and across requests, whichever worker is done first (H14)."""

    async def run() -> None:
        sequencer = InOrder()
        intake = made(sequencer)
        sizes = (512, 1, 65, 64)
        requests = [[b"%d/%d/accepted" % (n, i) for i in range(size)] for n, size in enumerate(sizes)]
        refused = [[b"%d/0/examined" % n] for n in range(4)]
        mixed = [wires for pair in zip(requests, refused, strict=True) for wires in pair]
        await asyncio.gather(*(entered(intake, wires) for wires in mixed))
        assert sequencer.seen == [wire for wires in requests for wire in wires]
        await intake.drain(asyncio.Event())

    asyncio.run(run())


def test_a_small_request_of_a_modest_source_passes_what_waits_and_gets_its_own_outcomes() -> None:
    async def run() -> None:
        sequencer = Settling()
        intake = made(sequencer)
        flood = [b"0/%d/accepted" % i for i in range(4 * MAX_TAKEN)]
        waiting = asyncio.ensure_future(entered(intake, flood, b"flood"))
        await asyncio.sleep(0)
        assert intake.waiting == len(flood)
        small = [b"1/%d/%s" % (i, fate) for i, fate in enumerate((b"accepted", b"examined", b"decided"))]
        passing = asyncio.ensure_future(entered(intake, small, b"modest"))
        large = [b"2/%d/accepted" % i for i in range(MAX_DIRECT)]
        queued = asyncio.ensure_future(entered(intake, large, b"other"))
        await asyncio.sleep(0)
        assert sequencer.passed == 1, "the large one would be examined by the sequencer too"
        for request in await asyncio.gather(waiting, passing, queued):
            check_outcomes(request)
        assert intake.waiting == intake.room.requests == 0
        await intake.drain(asyncio.Event())

    asyncio.run(run())


def test_a_bug_in_one_group_refuses_that_group_and_blocks_no_other() -> None:
    async def run() -> None:
        intake = made(Settling())
        good = [b"%d/accepted" % i for i in range(GROUP_SIZE)]
        bad = [*good[:-1], b"0/bug"]
        before, broken, after = await asyncio.gather(
            entered(intake, good), entered(intake, bad), entered(intake, good)
        )
        check_outcomes(before)
        check_outcomes(after)
        assert all(isinstance(outcome, ApiError) for outcome in broken.settled)
        assert len(broken.settled) == GROUP_SIZE
        assert intake.waiting == 0
        await intake.drain(asyncio.Event())

    asyncio.run(run())


def test_messages_beyond_the_limit_are_refused_and_earlier_ones_are_settled_by_a_drain() -> None:
    async def run() -> None:
        intake = made(Settling(), most=2 * GROUP_SIZE)
        wires = [b"%d/accepted" % i for i in range(GROUP_SIZE)]
        full = [asyncio.ensure_future(entered(intake, wires)) for _ in range(2)]
        await asyncio.sleep(0)
        refused_with(intake, "too many messages")
        draining = asyncio.ensure_future(intake.drain(asyncio.Event()))
        await asyncio.sleep(0)
        refused_with(intake, "shutting down")
        await draining
        for pending in await asyncio.gather(*full):
            check_outcomes(pending)
        assert intake.waiting == 0

    asyncio.run(run())


def refused_with(intake: Intake, why: str, then: Callable[[], None] = list) -> None:
    with pytest.raises(ApiError, match=why):
        intake.enter([b"0/accepted"], then)
