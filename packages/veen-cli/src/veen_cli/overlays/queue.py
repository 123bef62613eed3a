"""``veen queue``: a work queue in a stream, with delivery at least once (core §11.4)."""

from __future__ import annotations

from typing import Any, Final

import click

from veen_cli.arguments import times
from veen_cli.arguments.identifiers import Hex
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import CommandGroup, LazyCommand
from veen_cli.frame.connection import stream_option
from veen_cli.frame.output import Answer, Output
from veen_cli.overlays.overlay_stream import (
    OverlayAccess,
    OverlayStream,
    access_options,
    bytes_data,
    refused,
    sent_data,
    text_or_hex,
)
from veen_core.receipt import Receipt
from veen_overlays.queue import (
    DONE,
    QUEUE,
    Ack,
    Enqueue,
    Job,
    JobId,
    Take,
    WorkerId,
    available,
    job_id,
    starts_delivery,
)

COMMANDS: Final = {
    "put": LazyCommand("veen_cli.overlays.queue:put", "Add a job."),
    "take": LazyCommand("veen_cli.overlays.queue:take", "Take the oldest job that no worker holds."),
    "ack": LazyCommand("veen_cli.overlays.queue:ack", "Acknowledge that a job is done."),
}
queue = CommandGroup("queue", COMMANDS, path="queue", help="Jobs in a stream: put, take, acknowledge.")

worker_option = click.option(
    "--worker", type=Hex(WorkerId), help="Id of the worker in hex [default: your identity's key]."
)


def _worker(access: OverlayAccess, named: WorkerId | None) -> WorkerId:
    return named or WorkerId(access.identity.client_id)


@command("veen queue put 'resize 17.png' --stream jobs")
@click.argument("body")
@stream_option
@access_options
def put(out: Output, *, access: OverlayAccess, stream: str, body: str) -> Answer:
    """Add a job.

    Prints the job's id, which `veen queue ack` takes. A mirrored copy of the message is the same job.
    """
    del out
    record = Enqueue(body=body.encode())
    receipt = access.send(stream, record)
    job = job_id(record, receipt.leaf_hash)
    data = {**sent_data(record, receipt, stream), "job": job.hex()}
    return Answer(data, [f"job {job.hex()}"])


async def _claim(
    source: OverlayStream, worker: WorkerId, lease: int
) -> tuple[bytes, Job, Take, Receipt] | None:
    """Take a job. Of several takes of one job the first wins; the others try the next job."""
    async with source.view(QUEUE) as view:
        while True:
            jobs = (await view.state()).summary.inner
            found = next(available(jobs, source.now), None)
            if found is None:
                return None
            named, job = found
            record = Take(job=JobId(named), worker=worker, ts=source.now, lease_sec=lease)
            receipt = await source.send(record)
            await view.catch_up()
            before = await view.state(view.position_of(receipt) - 1)
            if starts_delivery(before.summary.inner, record):
                return named, job, record, receipt


@command("veen queue take --stream jobs --lease 5m", "veen queue take --stream jobs --quiet")
@click.option(
    "--lease",
    type=times.Duration(),
    default="1m",
    show_default=True,
    help="How long you hold the job.",
)
@worker_option
@stream_option
@access_options
def take(out: Output, *, access: OverlayAccess, stream: str, lease: int, worker: WorkerId | None) -> Answer:
    """Take the oldest job that no worker holds.

    The job is yours until the lease ends. If it is not acknowledged by then, any worker may take it again.
    With --quiet only the body is printed. An empty queue is not an error; in JSON, "job" is then null.
    """
    me = _worker(access, worker)

    async def work() -> tuple[bytes, Job, Take, Receipt] | None:
        async with access.at(stream) as source:
            return await _claim(source, me, lease)

    claimed = loop.run(work())
    if claimed is None:
        return Answer({"stream": stream, "job": None}, [f"{stream} has no job to take"])
    named, job, record, receipt = claimed
    if out.quiet and not out.as_json:
        click.echo(text_or_hex(job.body))
    data: dict[str, Any] = {
        **sent_data(record, receipt, stream),
        "job": named.hex(),
        **bytes_data("body", job.body),
        "worker": me.hex(),
        "until": record.ts + record.lease_sec,
    }
    until = times.format_utc(record.ts + record.lease_sec)
    return Answer(data, [f"job {named.hex()}, yours until {until}", f"  {text_or_hex(job.body)}"])


@command("veen queue ack JOB --stream jobs")
@click.argument("job", type=Hex(JobId))
@worker_option
@stream_option
@access_options
def ack(out: Output, *, access: OverlayAccess, stream: str, job: JobId, worker: WorkerId | None) -> Answer:
    """Acknowledge that a job is done.

    Ends with exit code 6, and sends nothing, if the stream has no such job or the job is already done.
    """
    del out
    me = _worker(access, worker)

    async def work() -> tuple[Ack, Receipt]:
        async with access.at(stream) as source:
            jobs = await source.state(QUEUE)
            held = jobs.get(bytes(job), Job())
            if held == DONE:
                raise refused("QUEUE.DONE", f"job {job.hex()} is already done")
            if not held.seq:
                raise refused("QUEUE.NO_JOB", f"{stream} has no job {job.hex()}")
            record = Ack(job=job, worker=me, ts=source.now)
            return record, await source.send(record)

    record, receipt = loop.run(work())
    data = {**sent_data(record, receipt, stream), "job": job.hex(), "worker": me.hex()}
    return Answer(data, [f"job {job.hex()} is done"])
