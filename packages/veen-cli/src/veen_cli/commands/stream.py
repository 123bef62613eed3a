"""``veen stream``: read a stream, verify everything, open what is for you."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from veen_cli.arguments import times
from veen_cli.arguments.numbers import Integer
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import Target, connects, stream_option
from veen_cli.frame.output import Answer, Output, escape_controls, json_text
from veen_cli.identity.identity_folder import Folder
from veen_core.ids import Epoch
from veen_core.keys import DhKey
from veen_core.proof import MmrProof
from veen_hub.client import BYTES, TEXT, Message, Stream

SHOWN = 12
"""Hex digits of an id, where a person reads it."""


def message_told(message: Message, proof: MmrProof | None = None) -> dict[str, Any]:
    """One message, as ``--json`` and ``--out jsonl`` print it; text as text, other bytes as hex."""
    told: dict[str, Any] = {
        "stream_seq": message.stream_seq,
        "id": message.id.hex(),
        "hub_ts": message.hub_ts,
        "client_id": message.client_id.hex(),
        "open": message.is_open,
    }
    if message.is_open:
        told["schema"] = message.schema.hex()
        text = text_of(message)
        told |= {"text": text} if text is not None else {"body": message.body.hex()}
        told["attachments"] = [{"coid": ref.coid.hex(), "size": ref.size} for ref in message.attachments]
        header = message.header
        if header.parent_id is not None:
            told["parent"] = header.parent_id.hex()
        if header.expires_at is not None:
            told["expires_at"] = header.expires_at
    if proof is not None:
        told["receipt"] = message.entry.receipt_bytes.hex()
        told["proof"] = proof.encode().hex()
    return told


def text_of(message: Message) -> str | None:
    """Its body, if it is text by its bytes; a schema of bytes is not guessed at."""
    if message.schema == BYTES:
        return None
    try:
        return message.body.decode()
    except UnicodeDecodeError:
        return None


def message_lines(message: Message, proof: MmrProof | None = None) -> list[str]:
    """One message for a person."""
    head = f"{message.stream_seq:>4}  {times.format_utc(message.hub_ts)}  {message.id.hex()[:SHOWN]}"
    proved = f"  proved by {len(proof.path) + len(proof.peaks_after)} hashes" if proof is not None else ""
    if not message.is_open:
        size = len(message.msg.ciphertext)
        return [f"{head}{proved}  (sealed to somebody else, {size} bytes)"]
    text = text_of(message)
    shown = text if text is not None else f"({len(message.body)} bytes: {message.body[:16].hex()}…)"
    schema = "" if message.schema in (TEXT, BYTES) else f"  schema {message.schema.hex()[:SHOWN]}"
    refs = [
        f"      attachment {n}: {ref.size} bytes, coid {ref.coid.hex()}"
        for n, ref in enumerate(message.attachments)
    ]
    return [f"{head}{proved}{schema}  {shown}", *refs]


@dataclass(slots=True)
class Printer:
    """Writes messages as they come, in the form that was asked for."""

    out: Output
    form: str
    live: bool = False
    count: int = 0
    opened: int = 0
    kept: list[dict[str, Any]] = field(default_factory=list)
    newest: int | None = None
    """Asked for where nothing was in the range: 0 if the hub has nothing of the stream at all."""
    epoch: int = 0

    @property
    def shows(self) -> bool:
        """Whether somebody sees the messages come, and needs no other sign that it goes on."""
        return self.live or (sys.stdout.isatty() and not self.out.as_json)

    def take(self, message: Message, proof: MmrProof | None) -> None:
        self.count += 1
        self.opened += message.is_open
        if self.form == "raw":
            self._raw(message)
        elif self.form == "jsonl" or (self.out.as_json and self.live):
            click.echo(json_text(message_told(message, proof)))
        elif self.out.as_json:
            self.kept.append(message_told(message, proof))
        elif self.out.quiet:
            if message.is_open:
                click.echo(self._quiet(message))
        else:
            click.echo("\n".join(map(escape_controls, message_lines(message, proof))))

    @staticmethod
    def _quiet(message: Message) -> str:
        """The text alone: for a program as it is, for a terminal without what could drive it."""
        text = text_of(message)
        if text is None:
            return message.body.hex()
        return escape_controls(text) if sys.stdout.isatty() else text

    def _raw(self, message: Message) -> None:
        """Bodies as they are, a newline between two; one alone comes out byte for byte."""
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
        why = f"{stream} has nothing in that range: its newest message is number {self.newest}"
        if not self.newest:
            when = f" in epoch {self.epoch}" if self.epoch else ""
            why = f"nothing was ever written to {stream} at this hub{when}: is that its name?"
        return Answer({**data, "newest": self.newest}, [why])


def readers_of(paths: tuple[Path, ...], target: Target) -> tuple[DhKey, ...]:
    """The keys of shared readers (H11)."""
    return tuple(key for path in paths for key in Folder(path).unlock(target.passphrase).dh_keys)


@contextmanager
def watching(printer: Printer, total: int | None) -> Iterator[None]:
    """A bar, unless the messages themselves are on the terminal."""
    if printer.shows:
        yield
    else:
        with printer.out.progress("reading messages", total, counted=lambda: printer.count):
            yield


Prover = Callable[[Message], Awaitable[MmrProof | None]]


async def _no_proof(_message: Message) -> None:
    return None


async def _prover(place: Stream, epoch: Epoch | None) -> Prover:
    """Proofs against the newest message there was when reading began; of later ones, against themselves."""
    head = await place.head(epoch=epoch)
    size = head.stream_seq if head is not None else 0

    async def prove(message: Message) -> MmrProof:
        # Under epochs a live message may be of another label than the one asked for.
        at = epoch if epoch is not None else place.hub.epoch_at(message.hub_ts)
        same = head is not None and message.label == head.label and message.stream_seq <= size
        return await place.proof(message.stream_seq, size if same else None, epoch=at)

    return prove


@command(
    "veen stream --stream orders",
    "veen stream --stream orders --from 10 --to 20 --proofs",
    "veen stream --stream orders --follow --out jsonl",
)
@stream_option
@click.option("--from", "from_seq", type=Integer(0), default=1, show_default=True, help="First message.")
@click.option("--to", "to_seq", type=Integer(1), help="Last message [default: the newest].")
@click.option(
    "--follow",
    "-f",
    is_flag=True,
    help="Go on with new ones as they come, until Ctrl-C or five minutes without the hub.",
)
@click.option("--proofs", is_flag=True, help="Fetch and verify an inclusion proof for each.")
@click.option(
    "--with-proofs", "proofs", is_flag=True, hidden=True, help="The name that the SDR0 profile uses."
)
@click.option(
    "--out", "form", type=click.Choice(["jsonl", "raw"]), help="One object a line, or the bodies as they are."
)
@click.option("--epoch", type=Integer(0), help="Read this epoch's label [default: the current one's].")
@click.option(
    "--reader", multiple=True, type=click.Path(path_type=Path), help="Folder of a shared stream's reader key."
)
@connects
def stream(
    out: Output,
    *,
    target: Target,
    stream: str,
    from_seq: int,
    to_seq: int | None,
    follow: bool,
    proofs: bool,
    form: str | None,
    epoch: int | None,
    reader: tuple[Path, ...],
) -> Answer | None:
    """Read a stream: verified, and opened where it was sealed to you.

    Signatures, order and roots of everything read are checked before it is shown. With --json it is one
    object, with --follow and --json one object a message.
    """
    if follow and to_seq is not None:
        raise click.UsageError("--follow has no end: leave --to away.")
    if to_seq is not None and to_seq < from_seq:
        raise click.UsageError(f"--from {from_seq} --to {to_seq}: the range ends before it begins.")
    if out.as_json and form is not None:
        raise click.UsageError("--json is one object, --out another form: give one of them.")
    printer = Printer(out, form or "", live=follow)

    async def work() -> None:
        at = Epoch(epoch) if epoch is not None else None
        async with target.connect() as hub:
            place = hub.stream(stream, readers=readers_of(reader, target))
            start = max(1, from_seq)
            prove = await _prover(place, at) if proofs else _no_proof
            source = place.follow(start) if follow else place.read(start, to_seq, epoch=at)
            total = to_seq - start + 1 if to_seq is not None else None
            async with aclosing(source) as messages:
                with watching(printer, total):
                    async for message in messages:
                        printer.take(message, await prove(message))
            if not printer.count and not follow:
                head = await place.head(epoch=at)
                printer.newest = head.stream_seq if head is not None else 0
                printer.epoch = at if at is not None else hub.connection.epoch

    loop.run(work())
    return printer.answer(stream)
