"""``veen record emit``: record one event, or one event per JSON line (SDR0 3.2.1)."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any, Final

import click

from veen_cli.arguments import times
from veen_cli.commands.line_input import open_input, read_lines
from veen_cli.commands.send import receipt_dict
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.record.emitting import IDLE_SECONDS, Emitter, EventBatches, NumberedEvent, parse_json
from veen_cli.record.role_file import RoleFile, role_options
from veen_cli.record.session import RecorderSession, open_session
from veen_overlays.recorder.events import EventMaker
from veen_overlays.recorder.roles import PRODUCER

STDIN: Final = Path("-")


@command(
    "veen record emit login --subject user:ann --payload '{\"ok\": true}' --config shop/recorder.yaml",
    "veen record emit --batch --file events.jsonl --config shop/recorder.yaml",
    "tail -f events.jsonl | veen record emit --batch --config shop/recorder.yaml",
)
@click.argument("event_type", required=False)
@click.option("--subject", help="Actor that caused the event.")
@click.option("--payload", help="Payload, as JSON.")
@click.option(
    "--time", "at", type=times.Moment(), help="When the event was observed, to the second [default: now]."
)
@click.option("--origin", help="Component that emits the event [default: the one in recorder.yaml].")
@click.option("--batch", is_flag=True, help="Record each line of the input: a JSON object per event.")
@click.option(
    "--file",
    "input_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    help="With --batch: file with the lines; - means stdin [default: stdin].",
)
@role_options
def emit(
    out: Output,
    *,
    file: RoleFile,
    event_type: str | None,
    subject: str | None,
    payload: str | None,
    at: int | None,
    origin: str | None,
    batch: bool,
    input_file: Path | None,
) -> Answer:
    """Record one event, or one event per JSON line; end when the hub has made them durable.

    The event type decides the stream. A line has event_type and subject_id, and may have payload,
    event_time (milliseconds since 1970) and origin. A payload that is too large, or that has a float, is
    refused before it is sealed. --batch sends what it has whenever no line follows. If it is interrupted, it
    prints which lines are not recorded.
    """
    file.role.require(PRODUCER, "emit")
    if batch:
        if event_type is not None or subject is not None or payload is not None or at is not None or origin:
            raise click.UsageError(
                "--batch takes all fields from the lines: give no event on the command line."
            )
        return loop.run(_emit_lines(out, file, None if input_file == STDIN else input_file))
    if event_type is None or subject is None:
        raise click.UsageError("name the event type and --subject, or give --batch.")
    if input_file is not None:
        raise click.UsageError("--file needs --batch.")
    return loop.run(_emit_one(file, _item(event_type, subject, payload, at, origin)))


def _item(
    event_type: str, subject: str, payload: str | None, at: int | None, origin: str | None
) -> dict[str, Any]:
    """Return the event as the object of a JSON line, so that both inputs are checked alike."""
    item: dict[str, Any] = {"event_type": event_type, "subject_id": subject}
    if payload is not None:
        try:
            item["payload"] = parse_json(payload)
        except (ValueError, RecursionError) as exc:
            raise click.UsageError(f"--payload is not JSON: {exc}.") from None
    if at is not None:
        item["event_time"] = at * 1_000
    if origin is not None:
        item["origin"] = origin
    return item


def _maker(session: RecorderSession) -> EventMaker:
    role = session.file.role
    return EventMaker(profile=role.profile, principal=session.identity.client_id, origin=role.origin)


def _now() -> int:
    return time.time_ns() // 1_000_000


async def _emit_one(file: RoleFile, item: dict[str, Any]) -> Answer:
    async with open_session(file) as session:
        event = NumberedEvent(1, _maker(session).from_json(item, now=_now()))
        emitter = Emitter(session)
        await emitter.send([event])
    stream = event.routed.stream
    receipt = emitter.receipts[stream]
    made = event.routed.event
    data = {"stream": stream, "event_type": made.event_type, "subject_id": made.subject_id}
    text = f"{made.event_type} of {made.subject_id} is message {receipt.stream_seq} of {stream}"
    return Answer(
        {**data, **receipt_dict(receipt)}, [f"{text}, durable at {times.format_utc(receipt.hub_ts)}"]
    )


async def _emit_lines(out: Output, file: RoleFile, source: Path | None) -> Answer:
    if source is None and sys.stdin.isatty():
        raise click.UsageError("--batch reads lines: pipe them in, or name a file with --file.")
    async with open_session(file) as session:
        emitter, batches = Emitter(session), EventBatches(_maker(session), _now)
        with out.progress("recorded", counted=lambda: emitter.sent), open_input(source) as read:
            try:
                async for batch in batches.read(read_lines(read, idle_sec=IDLE_SECONDS)):
                    await emitter.send(batch)
            except (Exception, asyncio.CancelledError):
                emitter.missing += batches.unsent
                _report(out, emitter, batches.next_line)
                raise
    if not emitter.sent:
        raise CommandFailed("the input has no events", Exit.USAGE, "pipe JSON lines in, or name a --file")
    streams = ", ".join(f"{name} up to {last.stream_seq}" for name, last in emitter.receipts.items())
    return Answer(_batch_dict(emitter), [f"recorded {plural(emitter.sent, 'event')}: {streams}"])


def _batch_dict(emitter: Emitter) -> dict[str, Any]:
    streams = {name: receipt_dict(last) for name, last in emitter.receipts.items()}
    return {"sent": emitter.sent, "missing_lines": emitter.missing, "streams": streams}


def _report(out: Output, emitter: Emitter, next_line: int) -> None:
    """Say which lines are not recorded, so that the user can send them again, and no other."""
    out.print_json_only(_batch_dict(emitter) | {"next_line": next_line})
    lines = [str(line) for line in emitter.missing[:20]] + ["…"] * (len(emitter.missing) > 20)
    missing = "".join(f"{line}, " for line in lines)
    out.note(
        f"interrupted: {plural(emitter.sent, 'event')} recorded; these lines are not: {missing}{next_line} "
        "and every later line"
    )
