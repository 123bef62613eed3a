"""``veen send``: seal a message to its reader, send it, and verify the hub's receipt."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from veen_cli.arguments import completions, times
from veen_cli.arguments.numbers import Seconds, parse_unsigned
from veen_cli.arguments.object_files import read_object, writable
from veen_cli.commands.line_input import open_input, read_lines
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import Target, connects, stream_option
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, Progress, plural
from veen_cli.identity.identity_folder import recipient_named
from veen_core.cap import CapToken
from veen_core.errors import DecodeError, DecodeFault, OpenError, VeenError
from veen_core.ids import Epoch, LeafHash, SchemaId, UnixTime
from veen_core.receipt import Receipt
from veen_hub.client import NotFound, Sending, Stream, Unconfirmed
from veen_hub.client.hub_log import CONFIRM_TIMEOUT_SEC

ID_DIGITS: Final = 64
SETTLE_SECONDS: Final = 5.0
"""Longest time that an interrupted batch waits for answers to messages in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOptions:
    """The options that all messages of one call share."""

    to: str | None
    schema: str | None
    cap: Path | None
    parent: str | None
    expires: int | None
    confirm: bool
    confirm_timeout: float

    async def settings(self, stream: Stream) -> dict[str, Any]:
        """Return the options as keyword arguments of ``Stream.send``."""
        found: dict[str, Any] = {
            "to": recipient_named(self.to) if self.to is not None else None,
            "schema": _schema(self.schema),
            "cap": read_object(CapToken, self.cap) if self.cap is not None else None,
            "parent": await self._parent(stream),
            "expires_at": UnixTime(self.expires) if self.expires is not None else None,
            "confirm": self.confirm,
            "confirm_timeout": self.confirm_timeout,
        }
        return found

    async def _parent(self, stream: Stream) -> LeafHash | None:
        """Return the id of the parent: given in hex, or as the number of a message of the same stream."""
        if self.parent is None:
            return None
        try:
            if seq := parse_unsigned(self.parent):
                return (await stream.receipt(seq)).leaf_hash
            return LeafHash.from_hex(self.parent)
        except NotFound:
            raise CommandFailed(
                f"--parent {self.parent}: the stream has no such message",
                Exit.REFUSED,
                "see its messages with `veen stream`",
            ) from None
        except DecodeError:
            raise click.UsageError(
                f"--parent {self.parent} is neither a stream_seq ≥ 1 nor a message id in hex."
            ) from None


def _schema(text: str | None) -> SchemaId | str | None:
    """Return a schema id if the text is 64 hex digits, else the name (RESOLUTIONS B14)."""
    try:
        return SchemaId.from_hex(text) if text is not None and len(text) == ID_DIGITS else text
    except DecodeError:
        return text


def _body(argument: str | None, file: Path | None) -> str | bytes:
    """Return the body from the command line, a file or stdin; as text if it is UTF-8."""
    if argument is not None and file is not None:
        raise click.UsageError("give a body or --file, not both.")
    if argument is not None and argument != "-":
        content = argument.encode(errors="surrogateescape")  # bytes that are not UTF-8 stay as typed
    elif file is not None:
        content = file.read_bytes()
    elif argument is None and sys.stdin.isatty():
        raise click.UsageError("there is nothing to send: give a body, --file FILE, or pipe it in.")
    else:
        content = sys.stdin.buffer.read()
        if not content:
            raise click.UsageError("stdin was empty: give a body, --file FILE, or pipe something in.")
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


@contextmanager
def explaining_size_limit() -> Iterator[None]:
    """Give the error for a body or attachment that is too large a next step (core §14.2)."""
    try:
        yield
    except DecodeError as exc:
        if exc.fault is not DecodeFault.SIZE:
            raise
        raise CommandFailed(
            f"the message is too large to send ({exc.found})",
            Exit.USAGE,
            "send less, or put it into a file and --attach it",
        ) from None
    except OpenError as exc:  # before sending, only attachments raise OpenError (core §14.1)
        raise CommandFailed(str(exc), Exit.USAGE, "attach less, or split it into several messages") from None


def epoch_of(place: Stream, receipt: Receipt) -> Epoch:
    """Return the epoch of the receipt's label, by the hub's time and the allowed skew (core §12)."""
    around = place.hub.epoch_at(receipt.hub_ts)
    near = (Epoch(max(0, around + step)) for step in (0, -1, 1))
    return next((epoch for epoch in near if place.label(epoch) == receipt.label), around)


def receipt_dict(receipt: Receipt) -> dict[str, Any]:
    return {
        "label": receipt.label.hex(),
        "stream_seq": receipt.stream_seq,
        "id": receipt.leaf_hash.hex(),
        "mmr_root": receipt.mmr_root.hex(),
        "hub_ts": receipt.hub_ts,
        "receipt": receipt.encode().hex(),
    }


@command(
    "veen send 'two coffees' --stream orders --to bob.pub",
    "veen send --stream reports --file report.pdf --attach figures.png --to bob.pub",
    "veen send 'two coffees' --stream orders --witnesses policy.txt --confirm",
    "tail -f app.log | veen send --stream logs --batch",
)
@click.argument("body", required=False)
@click.option(
    "--file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Send the content of this file.",
)
@stream_option
@click.option(
    "--to",
    shell_complete=completions.files,
    help="Reader: an identity's folder or card, or an X25519 key in hex [default: yourself].",
)
@click.option("--schema", help="Name or id of the body's schema [default: text or bytes].")
@click.option(
    "--attach",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Attach this file; may be repeated.",
)
@click.option(
    "--cap",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Token file; a token that you have authorized is used without this option.",
)
@click.option("--parent", help="The message this one answers: its stream_seq, or its id in hex.")
@click.option(
    "--expires", type=times.Moment(future=True), help="When the message becomes obsolete: a time, or +10m."
)
@click.option("--batch", is_flag=True, help="Send each line of the input as a message.")
@click.option(
    "--receipt",
    "receipt_file",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=writable,
    help="Write the receipt to this file.",
)
@click.option(
    "--confirm", is_flag=True, help="Wait until a quorum of witnesses covers the message; needs --witnesses."
)
@click.option(
    "--confirm-timeout",
    type=Seconds(),
    default=CONFIRM_TIMEOUT_SEC,
    show_default=True,
    help="With --confirm: seconds to wait for the quorum.",
)
@connects
def send(
    out: Output,
    *,
    target: Target,
    stream: str,
    body: str | None,
    file: Path | None,
    attach: tuple[Path, ...],
    batch: bool,
    receipt_file: Path | None,
    **how: Any,
) -> Answer:
    """Seal and send one message, or many.

    The command ends when the hub has made them durable; it verifies the receipts. If an answer of the hub is
    lost, the next send settles the message: none is sent twice. An interrupted --batch prints which lines
    arrived and with which line to resume. With --confirm the command fails if no quorum covers the last
    message in time; the messages are in the log all the same.
    """
    options = MessageOptions(**how)
    source = click.get_current_context().get_parameter_source
    if not options.confirm and source("confirm_timeout") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--confirm-timeout has no effect without --confirm.")
    if options.confirm and target.witnesses is None:
        raise click.UsageError("--confirm needs a witness policy: give --witnesses FILE.")
    if batch:
        if attach or receipt_file or (body not in (None, "-")):
            raise click.UsageError(
                "--batch reads lines from stdin or --file; it takes no body, --attach or --receipt."
            )
        return loop.run(_send_lines(out, target, stream, file, options))
    content = _body(body, file)

    async def work() -> tuple[Receipt, Epoch, Unconfirmed | None]:
        async with target.connect() as hub:
            place = hub.stream(stream)
            settings = await options.settings(place)
            missing = None
            with explaining_size_limit(), out.progress("sending"):
                try:
                    receipt = await place.send(content, attachments=attach, **settings)
                except Unconfirmed as exc:  # the message is in the log
                    receipt, missing = exc.receipts[-1], exc
            target.remember_stream(hub, stream)
            return receipt, epoch_of(place, receipt), missing

    receipt, epoch, missing = loop.run(work())
    if receipt_file is not None:
        receipt_file.write_bytes(receipt.encode())
    data = {"stream": stream, "epoch": epoch, **receipt_dict(receipt)}
    if options.confirm:
        data["confirmed"] = missing is None
    if missing is not None:
        out.print_json_only(data)
        raise missing
    return Answer(data, _sent_lines(stream, epoch, receipt, confirmed=options.confirm))


def _sent_lines(stream: str, epoch: Epoch, receipt: Receipt, *, confirmed: bool) -> list[str]:
    place = f"{stream}, epoch {epoch}" if epoch else stream
    by_quorum = ", confirmed by a quorum of witnesses" if confirmed else ""
    return [
        f"message {receipt.stream_seq} of {place}, durable at {times.format_utc(receipt.hub_ts)}{by_quorum}",
        f"  id {receipt.leaf_hash.hex()}",
    ]


async def _send_lines(
    out: Output, target: Target, stream: str, file: Path | None, options: MessageOptions
) -> Answer:
    if file is None and sys.stdin.isatty():
        raise click.UsageError("--batch reads lines: pipe them in, or name a file with --file.")
    async with target.connect() as hub:
        place = hub.stream(stream)
        settings = await options.settings(place)
        with out.progress("sent") as progress, open_input(file) as read:
            sending = place.send_many(read_lines(read), **settings)
            try:
                with explaining_size_limit():
                    async for _ in sending:
                        progress.advance()
            except Unconfirmed:  # all lines are in the log
                progress.stop()
                out.print_json_only({**_batch_dict(stream, progress, sending), "confirmed": False})
                raise
            except (Exception, asyncio.CancelledError):  # also Ctrl-C, which is the only end of `tail -f`
                await _settle(sending)
                progress.stop()
                _report_interruption(out, stream, progress, sending)
                raise
        target.remember_stream(hub, stream)
    if sending.last is None:
        raise CommandFailed("the input has no lines", Exit.USAGE, "pipe lines in, or name a file with --file")
    data, line = _batch_dict(stream, progress, sending), _batch_line(stream, progress, sending)
    if options.confirm:
        data, line = {**data, "confirmed": True}, f"{line}; a quorum of witnesses has confirmed it"
    return Answer(data, [line])


async def _settle(sending: Sending) -> None:
    """Ask the hub which messages in flight arrived; if it does not answer, they stay unanswered."""
    with suppress(VeenError, TimeoutError, OSError):
        async with asyncio.timeout(SETTLE_SECONDS):
            await sending.settle()


def _report_interruption(out: Output, stream: str, progress: Progress, sending: Sending) -> None:
    """Say exactly which lines are in the log, so that the user can resume without sending one twice."""
    done = sending.acknowledged
    if not done and not sending.unanswered:
        return
    line = (
        f"interrupted: lines 1 to {done} are in {stream}" if done else f"interrupted: no line is in {stream}"
    )
    if sending.unanswered:
        line += (
            f", and the hub has not answered for {plural(sending.unanswered, 'more line')}: run `veen resync "
            f"--stream {stream}`, which settles them, then resume after line {done + sending.unanswered}"
        )
    else:
        line += f"; resume with line {done + 1}"
    out.note(line)
    out.print_json_only(_batch_dict(stream, progress, sending))


def _batch_dict(stream: str, progress: Progress, sending: Sending) -> dict[str, Any]:
    return {
        "stream": stream,
        "sent": sending.acknowledged,
        "unanswered": sending.unanswered,
        "seconds": round(progress.seconds, 3),
        "per_second": round(sending.acknowledged / max(1e-9, progress.seconds), 1),
        "last": receipt_dict(sending.last) if sending.last is not None else None,
    }


def _batch_line(stream: str, progress: Progress, sending: Sending) -> str:
    assert sending.last is not None  # at least one message was acknowledged
    return (
        f"{plural(sending.acknowledged, 'message')} to {stream} in {progress.seconds:.2f} s, "
        f"{progress.rate:.0f} per second; the last is number {sending.last.stream_seq}"
    )
