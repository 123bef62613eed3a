"""The map and the queue (core §11.4)."""

from __future__ import annotations

from logs import log_of, state_of

from veen_core.ids import LeafHash
from veen_overlays.fold.event import Event
from veen_overlays.kv import KV, Change, Delete, Put, change_of, get
from veen_overlays.queue import (
    QUEUE,
    Ack,
    Enqueue,
    Take,
    WorkerId,
    available,
    job_id,
    lease_holder,
    starts_delivery,
)
from veen_overlays.schema.record import Record

ANN, BEN = WorkerId(b"a" * 32), WorkerId(b"b" * 32)
JOB = job_id(Enqueue(body=b"x"), LeafHash(log_of(Enqueue(body=b"x"))[0].msg_id))


def test_a_key_has_its_last_value_until_it_is_deleted() -> None:
    steps = [Put(key=b"a", value=b"1"), Put(key=b"b", value=b""), Put(key=b"a", value=b"2"), Delete(key=b"b")]
    assert state_of(KV, steps) == {b"a": b"2"}
    inner = KV.fold(log_of(*steps)).inner
    assert (get(inner, b"a"), get(inner, b"b"), get(inner, b"c")) == (b"2", None, None)
    assert state_of(KV, [*steps, Put(key=b"b", value=b"3")]) == {b"a": b"2", b"b": b"3"}


def test_an_empty_value_is_a_value() -> None:
    assert state_of(KV, [Put(key=b"", value=b"")]) == {b"": b""}


def test_watching_sees_every_change_in_order() -> None:
    log = log_of(Put(key=b"a", value=b"1"), Delete(key=b"a"))
    events = [KV.decode(message) for message in log]
    assert [change_of(event) for event in events if isinstance(event, Event)] == [
        Change(1, b"a", b"1"),
        Change(2, b"a", None),
    ]


def take(worker: WorkerId, ts: int, lease: int = 10) -> Take:
    return Take(job=JOB, worker=worker, ts=ts, lease_sec=lease)


def after(*records: Record) -> object:
    return QUEUE.fold(log_of(Enqueue(body=b"x"), *records)).inner


def ids(jobs: object, now: int) -> list[bytes]:
    return [job for job, _ in available(jobs, now)]  # type: ignore[arg-type]


def test_jobs_come_in_stream_order() -> None:
    log = log_of(Enqueue(body=b"first"), Enqueue(body=b"second"))
    jobs = QUEUE.fold(log).inner
    assert [job.body for _, job in available(jobs, 0)] == [b"first", b"second"]


def test_a_job_that_answers_another_job_is_a_job_of_its_own() -> None:
    first, second = log_of(Enqueue(body=b"x"), Enqueue(body=b"and then"))
    jobs = QUEUE.fold([first, second._replace(parent_id=first.msg_id), first._replace(seq=3)]).inner
    assert [job.body for _, job in available(jobs, 0)] == [b"x", b"and then"]


def test_a_taken_job_comes_back_when_its_lease_ends_unacknowledged() -> None:
    jobs = after(take(ANN, 100))
    assert lease_holder(jobs, JOB, 109) == bytes(ANN)  # type: ignore[arg-type]
    assert ids(jobs, 109) == []
    assert ids(jobs, 110) == [bytes(JOB)]


def test_of_two_takes_the_first_in_the_stream_wins() -> None:
    jobs = after(take(ANN, 100), take(BEN, 100), take(BEN, 109))
    assert lease_holder(jobs, JOB, 105) == bytes(ANN)  # type: ignore[arg-type]
    [shown] = QUEUE.view(jobs)  # type: ignore[arg-type]
    assert (shown["worker"], shown["deliveries"]) == (bytes(ANN), 1)


def test_a_take_delivers_only_an_open_job_that_no_worker_holds() -> None:
    assert starts_delivery(after(), take(ANN, 100))  # type: ignore[arg-type]
    assert not starts_delivery(after(take(ANN, 100)), take(BEN, 109))  # type: ignore[arg-type]
    assert not starts_delivery(after(take(ANN, 100)), take(ANN, 100)), "it renews"  # type: ignore[arg-type]
    assert starts_delivery(after(take(ANN, 100)), take(ANN, 110))  # type: ignore[arg-type]
    assert not starts_delivery(after(Ack(job=JOB, worker=ANN, ts=1)), take(BEN, 200))  # type: ignore[arg-type]
    assert not starts_delivery({}, take(ANN, 1))


def test_a_worker_may_renew_and_another_takes_over_after_the_end() -> None:
    assert lease_holder(after(take(ANN, 100), take(ANN, 105)), JOB, 112) == bytes(ANN)  # type: ignore[arg-type]
    jobs = after(take(ANN, 100), take(BEN, 110))
    assert lease_holder(jobs, JOB, 111) == bytes(BEN)  # type: ignore[arg-type]
    assert QUEUE.view(jobs)[0]["deliveries"] == 2  # type: ignore[arg-type]


def test_an_acknowledged_job_never_comes_back() -> None:
    jobs = after(take(ANN, 100), Ack(job=JOB, worker=ANN, ts=101), take(BEN, 500))
    assert ids(jobs, 1_000) == []
    assert QUEUE.view(jobs) == []  # type: ignore[arg-type]


def test_takes_and_acknowledgements_of_unknown_jobs_change_nothing() -> None:
    stray = LeafHash(b"\x09" * 32)
    jobs = after(
        Take(job=stray, worker=ANN, ts=1, lease_sec=1), Ack(job=LeafHash(b"\x08" * 32), worker=ANN, ts=2)
    )
    assert ids(jobs, 0) == [bytes(JOB)]
