"""``veen attachment``: the attachments of a message (core §4.6)."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Any, Final

import click

from veen_cli.arguments import private_files
from veen_cli.arguments.numbers import Integer
from veen_cli.commands.imported import imported_event
from veen_cli.commands.stream import reader_keys
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import CommandGroup, LazyCommand
from veen_cli.frame.connection import Target, connects, stream_option
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_core.ids import Epoch
from veen_hub.client import Message

COMMANDS: Final = {
    "get": LazyCommand(
        "veen_cli.commands.attachment:get", "Fetch an attachment, verify it, open it and write it to a file."
    ),
    "verify": LazyCommand(
        "veen_cli.commands.attachment:verify", "Compare a file with an attachment of a message."
    ),
}
attachment = CommandGroup(
    "attachment", COMMANDS, path="attachment", help="Attachments: fetch, open, compare."
)

index_argument = click.argument("index", type=Integer(0), default=0)
epoch_option = click.option(
    "--epoch", type=Integer(0), help="Epoch of the message, at a hub with epochs [default: the current one]."
)
reader_option = click.option(
    "--reader",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Folder of the identity that a shared stream is sealed to; may be repeated.",
)


def check_index(message: Message, index: int, seq: int) -> None:
    """Refuse an index that the message, number ``seq`` of the stream, does not have."""
    opened = message.opened  # raises if the message is sealed to another reader
    count = len(message.attachments) if opened.header.att_root is not None else 0
    if index >= count:
        there = (
            "no attachment"
            if not count
            else f"attachments 0 to {count - 1}"
            if count > 1
            else "attachment 0 only"
        )
        raise CommandFailed(
            f"message {seq} has {there}", Exit.USAGE, f"see it with `veen stream --from {seq} --upto {seq}`"
        )


def fetch(
    target: Target, stream: str, seq: int, index: int, *, epoch: int | None, reader: tuple[Path, ...]
) -> tuple[Message, bytes]:
    """Fetch and verify a message and one attachment (hash, position, size); return both, opened.

    Of an event that a bridge has imported, the message and its attachments are those of the original.
    """

    async def work() -> tuple[Message, bytes]:
        async with target.connect() as hub:
            source = hub.stream(stream, readers=reader_keys(reader, target))
            at = Epoch(epoch) if epoch is not None else None
            with target.out.progress("fetching"):
                async for message in source.read(seq, seq, epoch=at):
                    imported = imported_event(message, source.keys)
                    carried = imported.original if imported is not None else None
                    content = carried if carried is not None else message
                    check_index(content, index, seq)
                    return content, await source.attachment(content, index)
        raise CommandFailed(
            f"stream {stream} has no message {seq}",
            Exit.REFUSED,
            f"see its messages with `veen stream --stream {quote(stream)}`",
        )

    return loop.run(work())


def _attachment_dict(message: Message, seq: int, index: int, plain: bytes, **more: Any) -> dict[str, Any]:
    return {
        "stream_seq": seq,
        "index": index,
        "coid": message.attachments[index].coid.hex(),
        "size": len(plain),
        "sha256": sha256(plain).hexdigest(),
        **more,
    }


@command("veen attachment get 2 --stream orders --out contract.txt --client bob", name="get")
@click.argument("seq", type=Integer(1))
@index_argument
@stream_option
@epoch_option
@reader_option
@click.option(
    "--out", "file", type=click.Path(path_type=Path, dir_okay=False), required=True, help="File to write."
)
@connects
def get(
    out: Output,
    *,
    target: Target,
    stream: str,
    seq: int,
    index: int,
    epoch: int | None,
    reader: tuple[Path, ...],
    file: Path,
) -> Answer:
    """Fetch an attachment, verify it, open it and write it to a file.

    SEQ is the number of the message; INDEX counts its attachments from 0. A new file is readable by you only.
    """
    del out
    message, plain = fetch(target, stream, seq, index, epoch=epoch, reader=reader)
    private_files.write(file, plain)
    return Answer(
        _attachment_dict(message, seq, index, plain, file=str(file)),
        [f"wrote {file}: {len(plain)} bytes, attachment {index} of message {seq}, verified"],
    )


@command("veen attachment verify contract.txt 2 --stream orders --client bob", name="verify")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("seq", type=Integer(1))
@index_argument
@stream_option
@epoch_option
@reader_option
@connects
def verify(
    out: Output,
    *,
    target: Target,
    stream: str,
    file: Path,
    seq: int,
    index: int,
    epoch: int | None,
    reader: tuple[Path, ...],
) -> Answer:
    """Compare a file with an attachment of a message.

    The attachment is fetched, verified by the hash and size in the message, opened, and compared.
    """
    message, plain = fetch(target, stream, seq, index, epoch=epoch, reader=reader)
    if file.read_bytes() != plain:
        out.print_json_only(_attachment_dict(message, seq, index, plain, file=str(file), holds=False))
        raise CommandFailed(
            f"{file} is not attachment {index} of message {seq}",
            Exit.PROTOCOL,
            "fetch the attachment with `veen attachment get`",
        )
    return Answer(
        _attachment_dict(message, seq, index, plain, file=str(file), holds=True),
        [f"{file} is attachment {index} of message {seq}, byte for byte"],
    )
