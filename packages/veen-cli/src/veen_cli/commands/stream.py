"""``veen stream``, ``read`` and ``tail``: read a stream, verify every message, open those for the reader."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from veen_cli.arguments import times
from veen_cli.arguments.numbers import Integer
from veen_cli.commands.imported import ImportedMessage, imported_event
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import Target, connects, stream_option
from veen_cli.frame.output import Answer, Output, escape_controls, json_text
from veen_cli.identity.identity_folder import Folder
from veen_core.ids import Epoch
from veen_core.keys import DhKey
from veen_core.proof import MmrProof
from veen_hub.client import BYTES, TEXT, Message, Stream

SHORT_ID_DIGITS: Final = 12
"""Hex digits of an id that are shown to a person."""
TAIL_MESSAGES: Final = 10


def message_dict(
    message: Message, proof: MmrProof | None = None, imported: ImportedMessage | None = None
) -> dict[str, Any]:
    """Return a message as ``--json`` and ``--out jsonl`` print it: text as text, other bytes in hex."""
    data: dict[str, Any] = {
        "stream_seq": message.stream_seq,
        "id": message.id.hex(),
        "hub_ts": message.hub_ts,
        "client_id": message.client_id.hex(),
        "open": message.is_open,
    }
    if message.confirmed is not None:
        data["confirmed"] = message.confirmed
    if message.is_open:
        data["schema"] = message.schema.hex()
        text = text_of(message)
        data |= {"text": text} if text is not None else {"body": message.body.hex()}
        data["attachments"] = [{"coid": ref.coid.hex(), "size": ref.size} for ref in message.attachments]
        header = message.header
        if header.parent_id is not None:
            data["parent"] = header.parent_id.hex()
        if header.expires_at is not None:
            data["expires_at"] = header.expires_at
    if imported is not None:
        original = message_dict(imported.original) if imported.original is not None else {"open": False}
        data["imported"] = original | imported.as_json
    if proof is not None:
        data["receipt"] = message.entry.receipt_bytes.hex()
        data["proof"] = proof.encode().hex()
    return data


def text_of(message: Message) -> str | None:
    """Return the body as text; None if its schema says bytes, or if it is not UTF-8."""
    if message.schema == BYTES:
        return None
    try:
        return message.body.decode()
    except UnicodeDecodeError:
        return None


def message_lines(
    message: Message, proof: MmrProof | None = None, imported: ImportedMessage | None = None
) -> list[str]:
    """Return a message as lines for a person; of an imported event, the original's content."""
    head = (
        f"{message.stream_seq:>4}  {times.format_utc(message.hub_ts)}  {message.id.hex()[:SHORT_ID_DIGITS]}"
    )
    if message.confirmed is not None:
        head += "  confirmed" if message.confirmed else "  not yet confirmed"
    proved = f"  proved by {len(proof.path) + len(proof.peaks_after)} hashes" if proof is not None else ""
    if imported is None:
        return [f"{head}{proved}  {_content(message)}", *_attachment_lines(message)]
    if (original := imported.original) is None:
        return [f"{head}{proved}  (in the attachment)", imported.line, *_attachment_lines(message)]
    return [f"{head}{proved}  {_content(original)}", imported.line, *_attachment_lines(original)]


def _attachment_lines(message: Message) -> list[str]:
    refs = message.attachments if message.is_open else ()
    return [f"      attachment {n}: {ref.size} bytes, coid {ref.coid.hex()}" for n, ref in enumerate(refs)]


def _content(message: Message) -> str:
    if not message.is_open:
        return f"(sealed to another reader, {len(message.msg.ciphertext)} bytes)"
    text = text_of(message)
    shown = text if text is not None else f"({len(message.body)} bytes: {message.body[:16].hex()}…)"
    named = message.schema in (TEXT, BYTES)
    return shown if named else f"schema {message.schema.hex()[:SHORT_ID_DIGITS]}  {shown}"


@dataclass(slots=True)
class Printer:
    """Prints messages as they arrive, in the form that was asked for."""

    out: Output
    form: str
    live: bool = False
    count: int = 0
    opened: int = 0
    kept: list[dict[str, Any]] = field(default_factory=list)
    newest: int | None = None
    """If no message was in the range: the number of the newest message, 0 for an empty stream."""
    epoch: int = 0
    keys: Sequence[DhKey] = ()
    """The reader's keys, which may open the original inside an imported event."""

    @property
    def is_visible(self) -> bool:
        """Whether messages appear on a terminal as they arrive, so that no progress bar is needed."""
        return self.live or (sys.stdout.isatty() and not self.out.as_json)

    def take(self, message: Message, proof: MmrProof | None) -> None:
        self.count += 1
        self.opened += message.is_open
        imported = imported_event(message, self.keys)
        if self.form == "raw":
            self._print_raw(message)
        elif self.form == "jsonl" or (self.out.as_json and self.live):
            click.echo(json_text(message_dict(message, proof, imported)))
        elif self.out.as_json:
            self.kept.append(message_dict(message, proof, imported))
        elif self.out.quiet:
            content = imported.original if imported is not None else message
            if content is not None and content.is_open:
                click.echo(self._body_text(content))
        else:
            click.echo("\n".join(map(escape_controls, message_lines(message, proof, imported))))

    @staticmethod
    def _body_text(message: Message) -> str:
        """Return the text alone; escaped if stdout is a terminal."""
        text = text_of(message)
        if text is None:
            return message.body.hex()
        return escape_controls(text) if sys.stdout.isatty() else text

    def _print_raw(self, message: Message) -> None:
        """Write bodies byte for byte, with a newline between two of them."""
        if message.is_open:
            separator = b"\n" if self.opened > 1 else b""
            sys.stdout.buffer.write(separator + message.body)
            sys.stdout.buffer.flush()

    def answer(self, stream: str) -> Answer | None:
        if self.form or (self.out.quiet and not self.out.as_json):
            return None
        data = {"stream": stream, "messages": self.kept, "count": self.count, "opened": self.opened}
        if self.newest is None:
            return Answer(data)
        why = f"{stream} has no message in that range; its newest message is number {self.newest}"
        if not self.newest:
            when = f" in epoch {self.epoch}" if self.epoch else ""
            why = (
                f"{stream} has no messages at this hub{when}; `veen streams` lists the streams you have used"
            )
        return Answer({**data, "newest": self.newest}, [why])


def reader_keys(paths: tuple[Path, ...], target: Target) -> tuple[DhKey, ...]:
    """Return the keys of the readers of shared streams (RESOLUTIONS H11)."""
    return tuple(key for path in paths for key in Folder(path).unlock(target.passphrase).dh_keys)


@contextmanager
def progress_unless_visible(printer: Printer, total: int | None) -> Iterator[None]:
    """Show a progress bar, unless the messages themselves appear on the terminal."""
    if printer.is_visible:
        yield
    else:
        with printer.out.progress("reading messages", total, counted=lambda: printer.count):
            yield


Prover = Callable[[Message], Awaitable[MmrProof | None]]


async def _no_proof(_message: Message) -> None:
    return None


async def _make_prover(source: Stream, epoch: Epoch | None) -> Prover:
    """Return a function that fetches proofs against the newest message at the start of reading.

    Messages that arrive later are proved against their own receipt.
    """
    head = await source.head(epoch=epoch)
    size = head.stream_seq if head is not None else 0

    async def prove(message: Message) -> MmrProof:
        # At a hub with epochs, a message that arrives while following may have the label of the next epoch.
        at = epoch if epoch is not None else source.hub.epoch_at(message.hub_ts)
        same = head is not None and message.label == head.label and message.stream_seq <= size
        return await source.proof(message.stream_seq, size if same else None, epoch=at)

    return prove


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRange:
    """Which messages to read."""

    from_seq: int | None
    upto: int | None
    last: int | None
    follow: bool
    epoch: int | None

    def check(self) -> None:
        if self.follow and self.upto is not None:
            raise click.UsageError("--follow has no end: omit --upto.")
        if self.last is not None and (self.from_seq is not None or self.upto is not None):
            raise click.UsageError("--last counts from the newest message: omit --from and --upto.")
        if self.upto is not None and self.upto < (self.from_seq or 1):
            raise click.UsageError(f"--from {self.from_seq} --upto {self.upto}: the range is empty.")

    async def first(self, source: Stream, epoch: Epoch | None) -> int:
        if self.last is None:
            return max(1, self.from_seq or 1)
        head = await source.head(epoch=epoch)
        return max(1, head.stream_seq - self.last + 1) if head is not None else 1


def read_stream(
    out: Output,
    target: Target,
    stream: str,
    wanted: MessageRange,
    *,
    proofs: bool,
    form: str | None,
    reader: tuple[Path, ...],
) -> Answer | None:
    wanted.check()
    if out.as_json and form is not None:
        raise click.UsageError("--json and --out are different forms of output: give one of them.")
    printer = Printer(out, form or "", live=wanted.follow)

    async def work() -> None:
        at = Epoch(wanted.epoch) if wanted.epoch is not None else None
        async with target.connect() as hub:
            source = hub.stream(stream, readers=reader_keys(reader, target))
            printer.keys = source.keys
            start = await wanted.first(source, at)
            prove = await _make_prover(source, at) if proofs else _no_proof
            found = source.follow(start) if wanted.follow else source.read(start, wanted.upto, epoch=at)
            total = wanted.upto - start + 1 if wanted.upto is not None else None
            async with aclosing(found) as messages:
                with progress_unless_visible(printer, total):
                    async for message in messages:
                        printer.take(message, await prove(message))
            if printer.count:
                target.remember_stream(hub, stream)
            elif not wanted.follow:
                head = await source.head(epoch=at)
                printer.newest = head.stream_seq if head is not None else 0
                printer.epoch = at if at is not None else hub.connection.epoch

    loop.run(work())
    return printer.answer(stream)


FORM_OPTIONS: Final = (
    click.option("--proofs", is_flag=True, help="Fetch and verify an inclusion proof for each message."),
    click.option(
        "--with-proofs",
        "proofs",
        is_flag=True,
        hidden=True,
        help="--proofs in the SDR0 profile.",
    ),
    click.option(
        "--out",
        "form",
        type=click.Choice(["jsonl", "raw"]),
        help="One JSON object per line, or the bodies byte for byte.",
    ),
    click.option(
        "--epoch", type=Integer(0), help="Epoch to read, at a hub with epochs [default: the current one]."
    ),
    click.option(
        "--reader",
        multiple=True,
        type=click.Path(path_type=Path),
        help="Folder of the identity that a shared stream is sealed to; may be repeated.",
    ),
)
FOLLOW: Final = click.option(
    "--follow",
    "-f",
    is_flag=True,
    help="Print new messages as they arrive, until Ctrl-C or until the hub is unreachable for five minutes.",
)
LAST: Final = "Read the newest N messages."


def range_options(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add --from, --upto and --last."""
    for option in (
        click.option("--last", "-n", type=Integer(1), metavar="N", help=LAST),
        click.option("--upto", type=Integer(1), help="Number of the last message [default: the newest]."),
        click.option("--from", "from_seq", type=Integer(0), help="Number of the first message [default: 1]."),
    ):
        work = option(work)
    return work


def form_options(work: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(FORM_OPTIONS):
        work = option(work)
    return work


def ranged(work: Callable[..., Answer | None]) -> Callable[..., Answer | None]:
    """Collect the options of a range into one ``MessageRange``."""

    @wraps(work)
    def run(
        out: Output,
        *,
        from_seq: int | None = None,
        upto: int | None = None,
        last: int | None = None,
        follow: bool = False,
        epoch: int | None,
        **options: Any,
    ) -> Answer | None:
        wanted = MessageRange(from_seq=from_seq, upto=upto, last=last, follow=follow, epoch=epoch)
        return work(out, wanted=wanted, **options)

    return run


@command(
    "veen stream --stream orders",
    "veen stream --stream orders --from 10 --upto 20 --proofs",
    "veen stream --stream orders --last 5",
    "veen stream --stream orders --follow --out jsonl",
)
@stream_option
@range_options
@FOLLOW
@form_options
@connects
@ranged
def stream(out: Output, *, target: Target, stream: str, wanted: MessageRange, **form: Any) -> Answer | None:
    """Read a stream: verify every message, open those sealed to you.

    Signatures, order and roots are checked before a message is printed. With --json the result is one
    object; with --follow and --json it is one object per message. With --witnesses each message is shown as
    confirmed, if a quorum of witnesses covers it, or as not yet confirmed. An event that a bridge has
    imported is shown with the content of the original, if you have the key of its readers (--reader).
    """
    return read_stream(out, target, stream, wanted, **form)


@command("veen read --stream orders", "veen read --stream orders --last 5 --json")
@stream_option
@range_options
@form_options
@connects
@ranged
def read(out: Output, *, target: Target, stream: str, wanted: MessageRange, **form: Any) -> Answer | None:
    """Read the messages of a stream and end.

    This is `veen stream` without --follow.
    """
    return read_stream(out, target, stream, wanted, **form)


@command("veen tail --stream orders", "veen tail --stream orders --last 3 --follow")
@stream_option
@click.option(
    "--last", "-n", type=Integer(1), metavar="N", default=TAIL_MESSAGES, show_default=True, help=LAST
)
@FOLLOW
@form_options
@connects
@ranged
def tail(out: Output, *, target: Target, stream: str, wanted: MessageRange, **form: Any) -> Answer | None:
    """Read the newest messages of a stream.

    This is `veen stream --last 10`.
    """
    return read_stream(out, target, stream, wanted, **form)
