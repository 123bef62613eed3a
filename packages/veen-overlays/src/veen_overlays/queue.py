"""A work queue: jobs in stream order, delivered at least once (core §11.4).

Each put adds a job. The job's id is the identity of the put, so a mirrored copy is the same job. A worker
takes a job for a lease and acknowledges it when it is done. A take counts if the previous lease had ended by
the take's ``ts``, or belongs to the same worker. If a lease ends without an acknowledgement, the job is
available again. A job is done when any worker has acknowledged it.

A summary keeps the ids of finished jobs, because an acknowledgement may lie in another range than its put.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from veen_core.ids import FixedBytes, LeafHash, StreamSeq, UnixTime
from veen_overlays.fold.event import Event, Message
from veen_overlays.fold.monoid import Monoid, map_of
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import ColumnType, table_of_maps
from veen_overlays.schema.record import Record, record


class WorkerId(FixedBytes):
    """The id of a worker, such as its client_id."""

    __slots__ = ()


class JobId(FixedBytes):
    """The id of a job: the identity of its put (``job_id``)."""

    __slots__ = ()


@record("queue.put.v1", section="11.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueue(Record):
    """Add a job to the queue."""

    body: bytes


def job_id(put: Enqueue, msg_id: LeafHash) -> JobId:
    """The id of the job that a put with this msg_id adds."""
    return JobId(Message(StreamSeq(0), bytes(msg_id), bytes(put.SCHEMA), put.encode()).identity)


@record("queue.take.v1", section="11.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class Take(Record):
    """Take a job until ``ts + lease_sec``."""

    job: JobId
    worker: WorkerId
    ts: UnixTime
    lease_sec: int


@record("queue.ack.v1", section="11.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class Ack(Record):
    """Acknowledge that a job is done."""

    job: JobId
    worker: WorkerId
    ts: UnixTime


class Lease(NamedTuple):
    """A worker's lease of a job: ``lease_sec`` seconds from ``ts`` on."""

    worker: bytes
    ts: int
    lease_sec: int

    @property
    def until(self) -> int:
        """The first second after the lease."""
        return self.ts + self.lease_sec


class Job(NamedTuple):
    """The summary of one job over a range; the summary of a finished job is ``DONE``."""

    seq: int = 0
    """The seq of the put; 0 if the put is not in this range."""
    body: bytes = b""
    takes: tuple[Lease, ...] = ()
    done: bool = False


DONE: Final = Job(done=True)


def _join(a: Job, b: Job) -> Job:
    if a.done or b.done:
        return DONE
    return Job(a.seq or b.seq, a.body if a.seq else b.body, a.takes + b.takes)


_JOB: Monoid[Job] = Monoid(
    Job(),
    _join,
    lambda job: [job.seq, job.body, [list(lease) for lease in job.takes], job.done],
    lambda item: Job(item[0], item[1], tuple(Lease(*lease) for lease in item[2]), item[3]),
)

Jobs = Mapping[bytes, Job]


def _lift(event: Event) -> Jobs:
    match event.record:
        case Enqueue(body=body):
            return {event.identity: Job(event.seq, body)}
        case Take(job=job, worker=worker, ts=ts, lease_sec=lease_sec):
            return {bytes(job): Job(takes=(Lease(bytes(worker), ts, lease_sec),))}
        case Ack(job=job):
            return {bytes(job): DONE}
    raise AssertionError(f"not a record of this overlay: {event.record}")


def deliveries(job: Job) -> list[Lease]:
    """The takes that count, in stream order; the last one is the latest lease."""
    counted: list[Lease] = []
    for take in job.takes:
        held = counted[-1] if counted else None
        if held is None or take.ts >= held.until or take.worker == held.worker:
            counted.append(take)
    return counted


def lease_holder(jobs: Jobs, job: bytes, now: int) -> bytes | None:
    """The worker that holds the job at ``now``, or None."""
    found = jobs.get(bytes(job), DONE)
    counted = deliveries(found)
    return counted[-1].worker if counted and not found.done and now < counted[-1].until else None


def starts_delivery(jobs: Jobs, take: Take) -> bool:
    """Whether a take delivers its job, given the state before it: the job is open and no worker holds it.

    A take by the holder renews the lease and delivers nothing, so two processes with one worker id do not
    both get the job.
    """
    job = jobs.get(bytes(take.job), DONE)
    return bool(job.seq) and not job.done and lease_holder(jobs, take.job, take.ts) is None


def available(jobs: Jobs, now: int) -> Iterator[tuple[bytes, Job]]:
    """The jobs that can be taken at ``now``, oldest first: open jobs that no worker holds."""
    waiting = sorted((job.seq, job_id) for job_id, job in jobs.items() if job.seq and not job.done)
    for _, job_id in waiting:
        if lease_holder(jobs, job_id, now) is None:
            yield job_id, jobs[job_id]


def _open_jobs(jobs: Jobs) -> list[Any]:
    waiting = sorted((job.seq, job_id) for job_id, job in jobs.items() if job.seq and not job.done)
    return [_shown(job_id, jobs[job_id]) for _, job_id in waiting]


def _shown(job_id: bytes, job: Job) -> dict[str, Any]:
    counted = deliveries(job)
    shown: dict[str, Any] = {"job": job_id, "body": job.body, "deliveries": len(counted)}
    if counted:
        shown |= {"worker": counted[-1].worker, "ts": counted[-1].ts, "lease_sec": counted[-1].lease_sec}
    return shown


QUEUE: Overlay[Jobs] = Overlay(
    name="queue.jobs",
    title="A work queue: the jobs not yet acknowledged, oldest first (core §11.4).",
    schemas=(Enqueue, Take, Ack),
    monoid=map_of(_JOB),
    lift=_lift,
    view=_open_jobs,
    table=table_of_maps(
        {
            "job": ColumnType.BYTES,
            "body": ColumnType.BYTES,
            "deliveries": ColumnType.UINT,
            "worker": ColumnType.BYTES,
            "ts": ColumnType.UINT,
            "lease_sec": ColumnType.UINT,
        }
    ),
)

OVERLAYS = (QUEUE,)
