"""The parts of a sharded hub by themselves: links between shards, rounds of the join, merged metrics."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from veen_core.entry import Entry
from veen_core.errors import AdmissionError, ApiError
from veen_core.ids import Label, StreamSeq, UnixTime
from veen_core.rejection import TABLE, Code
from veen_hub.pipeline.pending_requests import Outcome, PendingRequest
from veen_hub.pipeline.signing_gate import SigningGate
from veen_hub.shards.gate_copy import GateCopy, encode_gate
from veen_hub.shards.joining import Joining, extend
from veen_hub.shards.merged_metrics import CounterHistory, merge
from veen_hub.shards.part_hub import FloorClock, PartPlace
from veen_hub.shards.submit_link import SubmitConnection, SubmitLink, decode_error, encode_error

from .serving import SetClock

LABEL = Label(bytes(range(32)))
SOURCE = b"the writer that a connection has shown"
WIRE = bytes(38) + LABEL + b"the rest of a message"


def test_every_refusal_crosses_a_link_unchanged() -> None:
    for row in TABLE:
        found = decode_error(encode_error(AdmissionError(row, "why", retry_after=3)))
        assert isinstance(found, AdmissionError)
        assert (found.rejection, str(found), found.retry_after) == (row, "why", 3)
    for code in Code:
        found = decode_error(encode_error(ApiError(code, "why")))
        assert isinstance(found, ApiError)
        assert (found.code, str(found), found.retry_after) == (code, "why", None)


class Owner:
    """The owner's pipeline: answers a request when the test says so."""

    def __init__(self) -> None:
        self.requests: list[PendingRequest] = []
        self.refuses = False

    def enter(self, wires: list[bytes], on_settled: Callable[[], None], source: bytes) -> PendingRequest:
        assert source == SOURCE
        if self.refuses:
            raise ApiError(Code.UNAVAILABLE, "too many messages wait", retry_after=1)
        self.requests.append(PendingRequest.of(wires, on_settled))
        return self.requests[-1]

    def answer(self, at: int, outcomes: list[Outcome]) -> None:
        request = self.requests[at]
        request.outcomes = list(outcomes)
        request.on_settled()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.001)


def linked(place: Path, use: Callable[[Owner, SubmitLink, list[list[Outcome]]], Awaitable[None]]) -> None:
    """Run ``use`` with an owner, a link to it, and the outcomes that the link has brought."""

    async def run() -> None:
        owner, path, brought = Owner(), str(place / "owner"), list[list[Outcome]]()
        server = await asyncio.get_running_loop().create_unix_server(
            lambda: SubmitConnection(owner.enter), path
        )
        link = SubmitLink(path, "shard-1")
        try:
            await use(owner, link, brought)
        finally:
            link.close()
            server.close()

    asyncio.run(run())


def test_answers_find_their_requests_in_any_order(place: Path) -> None:
    async def use(owner: Owner, link: SubmitLink, brought: list[list[Outcome]]) -> None:
        first: list[Outcome] = []
        link.send([WIRE], first.extend, SOURCE)
        link.send([WIRE, WIRE], lambda outcomes: brought.append(list(outcomes)), SOURCE)
        await until(lambda: len(owner.requests) == 2)
        refused = AdmissionError(TABLE[0], "too large")
        owner.answer(1, [Entry(LABEL, StreamSeq(7), WIRE, b"a receipt"), refused])
        await until(lambda: brought)
        entry, error = brought[0]
        assert isinstance(entry, Entry)
        assert (entry.label, entry.stream_seq, entry.receipt_bytes) == (LABEL, 7, b"a receipt")
        assert isinstance(error, AdmissionError)
        assert not first
        owner.answer(0, [refused])
        await until(lambda: first)

    linked(place, use)


def is_unavailable(outcome: Outcome) -> bool:
    return isinstance(outcome, ApiError) and outcome.code == Code.UNAVAILABLE and outcome.retry_after == 1


def test_a_link_that_ends_refuses_what_waits_and_comes_back(place: Path) -> None:
    async def use(owner: Owner, link: SubmitLink, brought: list[list[Outcome]]) -> None:
        link.send([WIRE, WIRE], lambda outcomes: brought.append(list(outcomes)), SOURCE)
        await until(lambda: owner.requests)
        assert link._connection is not None
        link._connection.close()
        await until(lambda: brought)
        assert len(brought[0]) == 2
        assert all(map(is_unavailable, brought[0]))
        owner.refuses = True
        link.send([WIRE], lambda outcomes: brought.append(list(outcomes)), SOURCE)
        await until(lambda: len(brought) == 2)
        assert is_unavailable(brought[1][0])

    linked(place, use)


@pytest.mark.parametrize(
    "answer",
    [
        struct.pack(">QH", 99, 1) + bytes(13),
        struct.pack(">QH", 1, 1) + struct.pack(">BQI", 0, 1, 500),
        struct.pack(">QH", 1, 1) + struct.pack(">BQI", 1, 0, 2) + b"{}",
        b"short",
    ],
    ids=["of no request", "ends too early", "an error that is none", "no head"],
)
def test_an_answer_that_is_none_ends_the_link(place: Path, answer: bytes) -> None:
    async def use(owner: Owner, link: SubmitLink, brought: list[list[Outcome]]) -> None:
        link.send([WIRE], lambda outcomes: brought.append(list(outcomes)), SOURCE)
        await until(lambda: owner.requests)
        assert link._connection is not None
        link._connection.data_received(struct.pack(">I", len(answer)) + answer)
        await until(lambda: brought)
        assert is_unavailable(brought[0][0])

    linked(place, use)


def test_without_an_owner_every_message_is_refused(place: Path) -> None:
    async def run() -> None:
        link, brought = SubmitLink(str(place / "nobody"), "shard-1"), list[Outcome]()
        link.send([WIRE], brought.extend, SOURCE)
        await until(lambda: brought)
        assert is_unavailable(brought[0])

    asyncio.run(run())


def test_a_state_of_the_gate_that_was_under_way_does_not_open_a_shard_that_was_closed() -> None:
    coordinators, shards = SigningGate(), SigningGate()
    copy = GateCopy(shards)
    shards.wait("not opened", "not opened")
    late = encode_gate(coordinators, has_ended=False)
    assert not copy.take(late)
    assert shards.closed is None
    coordinators.write_elsewhere("handing over")
    assert not copy.take(encode_gate(coordinators, has_ended=False))
    copy.take(late)
    assert shards.is_elsewhere
    closed = encode_gate(coordinators, has_ended=True)
    assert copy.take(closed), "the hub has handed over"
    coordinators.cancel_handover()
    assert not copy.take(encode_gate(coordinators, has_ended=False, highest_load=0.75))
    assert (shards.closed, copy.highest_load) == (None, 0.75)
    copy.take(closed)
    assert shards.closed is None, "the attempt has failed already"


class FakePart:
    """A part whose clock the test sets; each extension takes it to its next time."""

    def __init__(self, *times: int) -> None:
        self.name = "shard"
        self._times = list(times)
        self.floors: list[int] = []

    async def extend(self, floor: UnixTime) -> PartPlace:
        self.floors.append(floor)
        now = self._times.pop(0) if len(self._times) > 1 else self._times[0]
        return PartPlace(hub_ts=UnixTime(max(now, floor)), size=0, root=bytes(32), batch=0)


def joining(clock: FloorClock, *parts: FakePart) -> Joining:
    made: Any = object.__new__(Joining)
    made._clock, made._ends = clock, 0
    made._parts = dict(enumerate(parts))
    made._store = type("Store", (), {"joined": type("Joined", (), {"hub_ts": UnixTime(90)})})
    return made  # type: ignore[no-any-return]


def test_all_parts_are_joined_at_one_second() -> None:
    clock = FloorClock(SetClock(100), UnixTime(0))
    early, late = FakePart(100), FakePart(102)
    found = asyncio.run(joining(clock, early, late)._cover_all(extend))
    assert found.hub_ts == 102
    assert {place.hub_ts for place in found.places.values()} == {102}
    assert early.floors == [100, 102]
    assert late.floors == [100]
    assert clock.now() == 102, "a token that follows is no older"


def test_parts_whose_clocks_never_meet_are_not_joined() -> None:
    clock = FloorClock(SetClock(100), UnixTime(0))
    with pytest.raises(ApiError, match="did not agree on one time"):
        asyncio.run(
            joining(clock, FakePart(*range(100, 160, 4)), FakePart(*range(102, 162, 4)))._cover_all(extend)
        )


def test_a_round_in_which_a_shard_ended_joins_nothing() -> None:
    """Its next process may have started before the round raised the time that it must not go below."""
    clock = FloorClock(SetClock(100), UnixTime(0))
    made: Any = joining(clock, FakePart(103))
    made._shards, made._copied, made.order = made._parts, {}, asyncio.Lock()

    async def copy_control() -> None:
        made._copied[0] = StreamSeq(0)

    async def new_heads(_found: object) -> tuple[list[object], dict[str, object]]:
        made.forget(0)
        return [], {}

    made.copy_control, made._new_heads = copy_control, new_heads
    with pytest.raises(ApiError, match="a shard ended"):
        asyncio.run(made.join("origin"))
    assert clock.floor == 103, "a process that starts now is no earlier"


def test_metrics_of_parts_are_those_of_one_hub() -> None:
    coordinator = b"""# TYPE veen_ready gauge
veen_ready 1.0
# TYPE veen_submit_ok_total counter
veen_submit_ok_total 0.0
# TYPE veen_disk_bytes gauge
veen_disk_bytes 50.0
# TYPE veen_signing gauge
veen_signing 1.0
"""
    shard = b"""# TYPE veen_ready gauge
veen_ready 0.0
# TYPE veen_submit_ok_total counter
veen_submit_ok_total 7.0
# TYPE veen_submit_err_total counter
veen_submit_err_total{code="E.SEQ"} 2.0
# TYPE veen_disk_bytes gauge
veen_disk_bytes 50.0
# TYPE veen_signing gauge
veen_signing 0.0
"""
    lines = merge(coordinator, {0: shard, 1: shard}, CounterHistory()).decode().splitlines()
    assert "veen_ready 1.0" in lines
    assert "veen_submit_ok_total 14.0" in lines
    assert 'veen_submit_err_total{code="E.SEQ"} 4.0' in lines
    assert "veen_disk_bytes 50.0" in lines
    assert "veen_signing 0.0" in lines


def test_no_counter_goes_back_when_a_shard_is_restarted_or_silent() -> None:
    def text(ok: int, **errors: int) -> bytes:
        rows = "".join(f'err_total{{code="{code}"}} {value}\n' for code, value in errors.items())
        return f"# TYPE ok_total counter\nok_total {ok}\n# TYPE err_total counter\n{rows}".encode()

    history = CounterHistory()

    def totals(first: bytes | None, second: bytes | None) -> tuple[bool, bool]:
        merged = merge(text(1), {0: first, 1: second}, history).decode()
        return "ok_total 16.0" in merged, 'err_total{code="SEQ"} 7.0' in merged

    assert totals(text(10), text(5, SEQ=7)) == (True, True)
    assert totals(text(10), None) == (True, True), "the shard does not answer"
    assert totals(text(10), text(0)) == (True, True), "a new process answers"
    assert totals(text(10), text(0)) == (True, True)
    merged = merge(text(1), {0: text(11), 1: text(2, SEQ=1)}, history).decode()
    assert "ok_total 19.0" in merged
    assert 'err_total{code="SEQ"} 8.0' in merged
