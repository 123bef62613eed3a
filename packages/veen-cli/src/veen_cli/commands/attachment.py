"""``veen attachment``: what came with a message (§4.6)."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Any, Final

import click

from veen_cli.arguments import private_files
from veen_cli.arguments.numbers import Integer
from veen_cli.commands.stream import readers_of
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import Group, LazyCommand
from veen_cli.frame.connection import Target, connects, stream_option
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_core.ids import Epoch
from veen_hub.client import Message

COMMANDS: Final = {
    "get": LazyCommand(
        "veen_cli.commands.attachment:get", "Fetch an attachment, check it, open it and write it to a file."
    ),
    "verify": LazyCommand(
        "veen_cli.commands.attachment:verify", "Compare a file with the attachment that a message names."
    ),
}
attachment = Group("attachment", COMMANDS, path="attachment", help="Attachments: fetch, open, compare.")

index_argument = click.argument("index", type=Integer(0), default=0)
epoch_option = click.option(
    "--epoch", type=Integer(0), help="Of this epoch's label [default: the current one's]."
)
reader_option = click.option(
    "--reader", multiple=True, type=click.Path(path_type=Path), help="Folder of a shared stream's reader key."
)


def check_index(message: Message, index: int) -> None:
    """Refuse what the message does not have."""
    opened = message.opened  # raises if it was sealed to somebody else
    count = len(message.attachments) if opened.header.att_root is not None else 0
    if index >= count:
        seq = message.stream_seq
        there = "no attachment" if not count else "one, attachment 0" if count == 1 else f"{count}, from 0 on"
        raise CommandFailed(
            f"message {seq} has {there}: see `veen stream --from {seq} --to {seq}`", Exit.USAGE
        )


def fetch(
    target: Target, stream: str, seq: int, index: int, *, epoch: int | None, reader: tuple[Path, ...]
) -> tuple[Message, bytes]:
    """The verified message, and its attachment's plaintext, checked against coid, place and size."""

    async def work() -> tuple[Message, bytes]:
        async with target.connect() as hub:
            place = hub.stream(stream, readers=readers_of(reader, target))
            at = Epoch(epoch) if epoch is not None else None
            with target.out.progress("fetching"):
                async for message in place.read(seq, seq, epoch=at):
                    check_index(message, index)
                    return message, await place.attachment(message, index)
        raise CommandFailed(
            f"{stream} has no message {seq}: `veen stream --stream {quote(stream)}` lists them", Exit.REFUSED
        )

    return loop.run(work())


def _told(message: Message, index: int, plain: bytes, **more: Any) -> dict[str, Any]:
    return {
        "stream_seq": message.stream_seq,
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
    """Fetch an attachment, check it, open it and write it to a file.

    SEQ is the message, INDEX which of its attachments, from 0. A new file is readable by you alone.
    """
    del out
    message, plain = fetch(target, stream, seq, index, epoch=epoch, reader=reader)
    private_files.write(file, plain)
    return Answer(
        _told(message, index, plain, file=str(file)),
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
    """Compare a file with the attachment that a message names.

    The attachment is fetched, checked against the message's coid and size, opened, and compared.
    """
    message, plain = fetch(target, stream, seq, index, epoch=epoch, reader=reader)
    if file.read_bytes() != plain:
        out.print_json_only(_told(message, index, plain, file=str(file), holds=False))
        raise CommandFailed(
            f"{file} is not attachment {index} of message {seq}: fetch that with `veen attachment get`",
            Exit.PROTOCOL,
        )
    return Answer(
        _told(message, index, plain, file=str(file), holds=True),
        [f"{file} is attachment {index} of message {seq}, byte for byte"],
    )
