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
from veen_hub.pipeline.intake import GROUP_SIZE, Intake, PendingRequest, in_groups
from veen_hub.pipeline.saturation import Saturation
from veen_hub.pipeline.sequencer import OnSettled, Ticket

# --- groups


@given(st.lists(st.integers(0, 3 * GROUP_SIZE), max_size=8))
def test_groups_hold_every_message_once_in_order_and_none_is_too_large(sizes: list[int]) -> None:
    arrived = [
        PendingRequest.of([b"%d/%d" % (n, i) for i in range(size)], list) for n, size in enumerate(sizes)
    ]
    groups = list(in_groups(arrived))
    held = [wire for group in groups for part in group for wire in part.pending.wires[part.start : part.stop]]
    assert held == [wire for pending in arrived for wire in pending.wires]
    counts = [sum(part.stop - part.start for part in group) for group in groups]
    assert all(count == GROUP_SIZE for count in counts[:-1])
    assert all(0 < count <= GROUP_SIZE for count in counts)
    assert all(part.start < part.stop for group in groups for part in group)


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
        self._lock = threading.Lock()

    def put(self, tickets: list[Ticket[Any]], answer: OnSettled) -> None:
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
        threading.Thread(target=settle).start()

    def admit(self, submission: Submission, _batch: object) -> Any:
        if fate_of(submission.wire) == b"decided":
            raise AdmissionError(CLIENT_SEQ, submission.wire.decode())
        return submission.wire


class InOrder(Settling):
    """Decides at once, so that the order in which it is given tickets can be seen."""

    def put(self, tickets: list[Ticket[Any]], answer: OnSettled) -> None:
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
        max_waiting=most,
        saturation=Saturation(),
    )


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "Examiner", Slow)
    monkeypatch.setattr(intake_module, "verdict_of", judged)


async def entered(intake: Intake, wires: list[bytes]) -> PendingRequest:
    settled = asyncio.Event()
    pending = intake.enter(wires, settled.set)
    await asyncio.wait_for(settled.wait(), 30)
    return pending


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
