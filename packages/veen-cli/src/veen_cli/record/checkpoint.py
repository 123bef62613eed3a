"""``veen record checkpoint``: one checkpoint over all streams, now, by time or by volume (SDR0 3.2.4)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import click

from veen_cli.arguments import times
from veen_cli.arguments.numbers import Integer, Seconds
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.output import Answer, Output, json_text, plural
from veen_cli.record.checkpointing import (
    current_heads,
    gather_checkpoint,
    last_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from veen_cli.record.label_classes import publish_classes_of_new_epochs
from veen_cli.record.role_file import RoleFile, role_options
from veen_cli.record.session import RecorderSession, open_session
from veen_overlays.recorder.checkpoint import RecorderCheckpoint
from veen_overlays.recorder.profile import CheckpointCadence

POLL_SECONDS: Final = 1.0
"""How often the heads of the streams are read, to count new events."""


@command(
    "veen record checkpoint --config admin/recorder.yaml --out checkpoints",
    "veen record checkpoint --config admin/recorder.yaml --out checkpoints --every 5m --every-events 10000",
)
@click.option(
    "--out",
    "-o",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder for the checkpoint files.",
)
@click.option("--every", type=times.Duration(1), help="Keep running; make a checkpoint at this interval.")
@click.option(
    "--every-events", type=Integer(1), help="Keep running; make a checkpoint after this many events."
)
@click.option(
    "--regularly", is_flag=True, help="Keep running; make checkpoints as `checkpoints` in recorder.yaml says."
)
@click.option("--count", type=Integer(1), help="End after this many checkpoints [default: at Ctrl-C].")
@click.option(
    "--cover-timeout",
    type=Seconds(),
    default=30.0,
    show_default=True,
    help="Seconds to wait until the hub log covers every event.",
)
@role_options
def checkpoint(
    out: Output,
    *,
    file: RoleFile,
    folder: Path,
    every: int | None,
    every_events: int | None,
    regularly: bool,
    count: int | None,
    cover_timeout: float,
) -> Answer | None:
    """Make a checkpoint over all streams of the recorder.

    The checkpoint covers every event that is durable when the command starts. It has the root of the hub log,
    the last entry of each stream, the hub's key, the profile id and the time. With --every, --every-events or
    --regularly the command keeps running; without new events it makes no checkpoint. At a hub with epochs,
    recorder_admin also publishes the label classes of new epochs.
    """
    if regularly:
        if every is not None or every_events is not None:
            raise click.UsageError("--regularly takes the times from recorder.yaml: omit --every….")
        every, every_events = file.role.profile.cadence.every_sec, file.role.profile.cadence.every_events
    if every is None and every_events is None:
        if count is not None:
            raise click.UsageError("--count needs --every, --every-events or --regularly.")
        return loop.run(_once(file, folder, cover_timeout))
    cadence = CheckpointCadence(every_sec=every, every_events=every_events)
    loop.run(_make_repeatedly(out, file, folder, cadence, count=count, timeout=cover_timeout))
    return None


async def _once(file: RoleFile, folder: Path, timeout: float) -> Answer:
    async with open_session(file) as session:
        made = await gather_checkpoint(session, timeout=timeout)
        path = write_checkpoint(folder, made)
        await publish_classes_of_new_epochs(session)
    return Answer(checkpoint_dict(made, path), checkpoint_lines(made, path))


async def _make_repeatedly(
    out: Output,
    file: RoleFile,
    folder: Path,
    cadence: CheckpointCadence,
    *,
    count: int | None,
    timeout: float,
) -> None:
    """Make a checkpoint whenever one is due, until ``count`` are made."""
    every, every_events = cadence.every_sec, cadence.every_events
    async with open_session(file) as session:
        newest = last_checkpoint(folder)
        covered = read_checkpoint(newest).events if newest is not None else 0
        made, clock = 0, asyncio.get_running_loop()
        last = clock.time()
        while count is None or made < count:
            new = await _events(session) - covered
            due = every is not None and clock.time() - last >= every
            if new > 0 and (due or (every_events is not None and new >= every_events)):
                found = await gather_checkpoint(session, timeout=timeout)
                path = write_checkpoint(folder, found)
                made, covered, last = made + 1, found.events, clock.time()
                _print(out, found, path)
                await publish_classes_of_new_epochs(session)
                continue
            await asyncio.sleep(POLL_SECONDS)


async def _events(session: RecorderSession) -> int:
    labels = await session.labels(session.profile.all_streams)
    return sum((await current_heads(session, labels)).values())


def _print(out: Output, found: RecorderCheckpoint, path: Path) -> None:
    if out.as_json:
        click.echo(json_text(checkpoint_dict(found, path)))
    elif not out.quiet:
        click.echo(next(iter(checkpoint_lines(found, path))))


def checkpoint_dict(found: RecorderCheckpoint, path: Path | None = None) -> dict[str, Any]:
    """Return what ``--json`` prints of a checkpoint (SDR0 3.2.4)."""
    signed = found.signed_head.head
    until = found.covered_until
    data: dict[str, Any] = {
        "log_root": signed.root.hex(),
        "log_size": signed.size,
        "hub_id": found.identity.hub_id.hex(),
        "hub_public": [key.hub_pk.hex() for key in found.identity.hub_keys],
        "profile_id": found.profile_id.hex(),
        "created_at": found.created_at,
        "covered_until": until,
        "events": found.events,
        "streams": [
            {
                "stream": each.stream,
                "epoch": each.epoch,
                "label": each.label.hex(),
                "last_seq": each.last_seq,
                "mmr_root": each.head.mmr_root.hex() if each.head is not None else None,
                "hub_ts": each.head.hub_ts if each.head is not None else None,
            }
            for each in found.streams
        ],
    }
    return data if path is None else {"file": str(path), **data}


def checkpoint_lines(found: RecorderCheckpoint, path: Path | None = None) -> list[str]:
    """Return a checkpoint as lines for a person."""
    root = found.signed_head.head
    title = f"{path}: " if path is not None else ""
    events = plural(found.events, "entry", "entries")
    width = max(len(each.stream) for each in found.streams)
    return [
        f"{title}{events} in {plural(len(found.streams), 'stream')}, hub log of {root.size}, "
        f"root {root.root.hex()[:16]}…",
        *(
            f"  {each.stream:<{width}}  {each.last_seq:>8}"
            + (f"  {times.format_utc(each.head.hub_ts)}" if each.head is not None else "  empty")
            for each in found.streams
        ),
    ]
