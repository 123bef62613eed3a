"""``veen send``: seal a message to its reader, send it, and verify the receipt that comes back."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from veen_cli.arguments import completions, times
from veen_cli.arguments.numbers import parse_unsigned
from veen_cli.arguments.object_files import read_object, writable
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import Target, connects, stream_option
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, Progress
from veen_cli.identity.identity_folder import recipient_named
from veen_core.cap import CapToken
from veen_core.errors import DecodeError, DecodeFault, OpenError
from veen_core.ids import Epoch, LeafHash, SchemaId, UnixTime
from veen_core.limits import DEFAULT_LIMITS
from veen_core.receipt import Receipt
from veen_hub.client import NotFound, Stream

READ_AHEAD: Final = 1_024
PART: Final = 65_536
HEX: Final = 64
LONGEST: Final = DEFAULT_LIMITS.max_msg_bytes
"""Of a line, in bytes: a MSG is longer than the body in it (§14.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """The options that every message of one call shares."""

    to: str | None
    schema: str | None
    cap: Path | None
    parent: str | None
    expires: int | None

    async def settings(self, stream: Stream) -> dict[str, Any]:
        """As ``Stream.send`` takes them."""
        found: dict[str, Any] = {
            "to": recipient_named(self.to) if self.to is not None else None,
            "schema": _schema(self.schema),
            "cap": read_object(CapToken, self.cap) if self.cap is not None else None,
            "parent": await self._parent(stream),
            "expires_at": UnixTime(self.expires) if self.expires is not None else None,
        }
        return found

    async def _parent(self, stream: Stream) -> LeafHash | None:
        """A message id, or the number of a message of the same stream."""
        if self.parent is None:
            return None
        try:
            if seq := parse_unsigned(self.parent):
                return (await stream.receipt(seq)).leaf_hash
            return LeafHash.from_hex(self.parent)
        except NotFound:
            raise CommandFailed(
                f"--parent {self.parent}: there is no such message; `veen stream` lists those that there are",
                Exit.REFUSED,
            ) from None
        except DecodeError:
            raise click.UsageError(
                f"--parent {self.parent}: want a stream_seq from 1 on, or a message id in hex."
            ) from None


def _schema(text: str | None) -> SchemaId | str | None:
    """An id in 64 hex digits, else a name (B14)."""
    try:
        return SchemaId.from_hex(text) if text is not None and len(text) == HEX else text
    except DecodeError:
        return text


def _body(argument: str | None, file: Path | None) -> str | bytes:
    """From the command line, a file or stdin; what is UTF-8 is sent as text."""
    if argument is not None and file is not None:
        raise click.UsageError("a body or --file, not both.")
    if argument is not None and argument != "-":
        content = argument.encode(errors="surrogateescape")  # bytes that are no text, as they were typed
    elif file is not None:
        content = file.read_bytes()
    elif argument is None and sys.stdin.isatty():
        raise click.UsageError("what is to be sent? Give a body, --file FILE, or pipe it in.")
    else:
        content = sys.stdin.buffer.read()
        if not content:
            raise click.UsageError("stdin was empty: give a body, --file FILE, or pipe something in.")
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


Read = Callable[[], bytes]
"""The next part of an input, as soon as there is one; nothing at its end."""


@contextmanager
def input_of(file: Path | None) -> Iterator[Read]:
    """A file's, or stdin's; unbuffered: a buffered reader cannot be closed while a thread waits in it."""
    if file is None:
        yield _stdin()
        return
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield lambda: os.read(fd, PART)
    finally:
        os.close(fd)


def _stdin() -> Read:
    try:
        fd = sys.stdin.fileno()
    except io.UnsupportedOperation:  # a stdin that is no file
        return lambda: sys.stdin.buffer.read(PART)
    return lambda: os.read(fd, PART)


def split_lines(read: Read) -> Iterator[bytes]:
    """Whole lines; one that no body can hold is refused while it comes, not kept until it ends."""
    begun: list[bytes] = []
    while part := read():
        first, *others = part.split(b"\n")
        begun.append(first)
        for line in others:
            yield b"".join(begun)
            begun = [line]
        if sum(map(len, begun)) > LONGEST:
            raise CommandFailed(
                f"a line is longer than {LONGEST} bytes, too large to send: send less, or put it into a file "
                "and --attach it",
                Exit.USAGE,
            )
    if rest := b"".join(begun):
        yield rest


async def lines_of(read: Read) -> AsyncIterator[str | bytes]:
    """Lines as they come, read in a thread of their own: a slow writer holds nobody up, Ctrl-C least."""
    running, queue = asyncio.get_running_loop(), asyncio.Queue[bytes | Exception | None](READ_AHEAD)

    def put(item: bytes | Exception | None) -> None:
        asyncio.run_coroutine_threadsafe(queue.put(item), running).result()

    def pump() -> None:
        with suppress(RuntimeError, CancelledError):  # the loop has ended: nobody wants more
            try:
                for line in split_lines(read):
                    put(line)
                put(None)
            except (OSError, CommandFailed) as exc:
                put(exc)

    threading.Thread(target=pump, daemon=True, name="veen-lines").start()
    while (line := await queue.get()) is not None:
        if isinstance(line, Exception):
            raise line
        content = line.removesuffix(b"\r")
        try:
            yield content.decode()
        except UnicodeDecodeError:
            yield content


@contextmanager
def saying_what_is_too_large() -> Iterator[None]:
    """Sealing refuses what no hub would take (§14.2): nothing was sent, and this side can help itself."""
    try:
        yield
    except DecodeError as exc:
        if exc.fault is not DecodeFault.SIZE:
            raise
        raise CommandFailed(
            f"too large to send ({exc.found}): send less, or put it into a file and --attach it", Exit.USAGE
        ) from None
    except OpenError as exc:  # of what is to be sent, only attachments are refused by it (§14.1)
        raise CommandFailed(f"{exc}: attach less, or cut it into several messages", Exit.USAGE) from None


def epoch_of(place: Stream, receipt: Receipt) -> Epoch:
    """Of the label it went to: the hub's at the time, or one within the skew (§12); 0 without epochs."""
    around = place.hub.epoch_at(receipt.hub_ts)
    near = (Epoch(max(0, around + step)) for step in (0, -1, 1))
    return next((epoch for epoch in near if place.label(epoch) == receipt.label), around)


def receipt_told(receipt: Receipt) -> dict[str, Any]:
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
    "tail -f app.log | veen send --stream logs --batch",
)
@click.argument("body", required=False)
@click.option(
    "--file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Send its content."
)
@stream_option
@click.option(
    "--to",
    shell_complete=completions.files,
    help="Seal to: an identity's folder, card, or X25519 key in hex [default: yourself].",
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
    help="Token file; one that was authorized before is found by itself.",
)
@click.option("--parent", help="The message this one answers: its stream_seq, or its id in hex.")
@click.option(
    "--expires", type=times.Moment(future=True), help="When its content loses meaning: a time, or +10m."
)
@click.option("--batch", is_flag=True, help="Each line of the input is a message; shows the rate.")
@click.option(
    "--receipt",
    "receipt_file",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=writable,
    help="Write the receipt here.",
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
    """Seal and send a message, or many; returns when the hub has made it durable.

    The receipt is verified before anything is printed. If the hub's answer is lost, the next send settles
    it: no message is sent twice.
    """
    options = How(**how)
    if batch:
        if attach or receipt_file or (body not in (None, "-")):
            raise click.UsageError("--batch reads lines from stdin or --file, without attachments.")
        return loop.run(_send_lines(out, target, stream, file, options))
    content = _body(body, file)

    async def work() -> tuple[Receipt, Epoch]:
        async with target.connect() as hub:
            place = hub.stream(stream)
            settings = await options.settings(place)
            with saying_what_is_too_large(), out.progress("sending"):
                receipt = await place.send(content, attachments=attach, **settings)
            return receipt, epoch_of(place, receipt)

    receipt, epoch = loop.run(work())
    place = f"{stream}, epoch {epoch}" if epoch else stream
    if receipt_file is not None:
        receipt_file.write_bytes(receipt.encode())
    return Answer(
        {"stream": stream, "epoch": epoch, **receipt_told(receipt)},
        [
            f"message {receipt.stream_seq} of {place}, durable at {times.format_utc(receipt.hub_ts)}",
            f"  id {receipt.leaf_hash.hex()}",
        ],
    )


async def _send_lines(out: Output, target: Target, stream: str, file: Path | None, how: How) -> Answer:
    if file is None and sys.stdin.isatty():
        raise click.UsageError("--batch reads lines: pipe them in, or name a file with --file.")
    last: Receipt | None = None
    async with target.connect() as hub:
        place = hub.stream(stream)
        settings = await how.settings(place)
        with out.progress("sent") as progress, input_of(file) as read:
            try:
                with saying_what_is_too_large():
                    async for receipt in place.send_many(lines_of(read), **settings):
                        last = receipt
                        progress.advance()
            except (Exception, asyncio.CancelledError):  # Ctrl-C too: of `tail -f` there is no other end
                progress.stop()
                if last is not None:
                    out.note(f"{_rate(progress, stream, last)}; it ended early")
                    out.print_json_only(_rate_told(stream, progress, last))
                raise
    if last is None:
        raise CommandFailed("there was no line to send", Exit.USAGE)
    return Answer(_rate_told(stream, progress, last), [_rate(progress, stream, last)])


def _rate_told(stream: str, progress: Progress, last: Receipt) -> dict[str, Any]:
    return {
        "stream": stream,
        "sent": progress.done,
        "seconds": round(progress.seconds, 3),
        "per_second": round(progress.rate, 1),
        "last": receipt_told(last),
    }


def _rate(progress: Progress, stream: str, last: Receipt) -> str:
    return (
        f"{progress.done} messages to {stream} in {progress.seconds:.2f} s, {progress.rate:.0f} a second; "
        f"the last is number {last.stream_seq}"
    )
