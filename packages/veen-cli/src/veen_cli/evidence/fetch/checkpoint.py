"""``veen checkpoint``: checkpoints, the hub's signed root of a whole log (core §4.4)."""

from __future__ import annotations

from pathlib import Path

import click

from veen_cli.arguments.numbers import Integer
from veen_cli.evidence.fetch import fetch_commands
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import Target, connects, stream_option
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, plural
from veen_core.checkpoint import Checkpoint
from veen_core.ids import Epoch
from veen_hub.client import Stream

checkpoint = fetch_commands.group("checkpoint", "checkpoint")
show = fetch_commands.make_show(Checkpoint, "checkpoint", "checkpoint")
verify = fetch_commands.make_verify(Checkpoint, "checkpoint", "checkpoint", "hub-identity.cbor")


@command("veen checkpoint get --stream orders --out checkpoint.cbor", name="get")
@click.option("--at", "upto", type=Integer(1), help="Checkpoint of this many messages [default: the latest].")
@stream_option
@fetch_commands.epoch_option
@fetch_commands.file_option
@connects
def get(
    out: Output, *, target: Target, stream: str, upto: int | None, epoch: int | None, file: Path | None
) -> Answer:
    """Fetch a checkpoint from the hub and verify it.

    The hub makes checkpoints by count and by time; its admin can ask for one with `veen hub checkpoint`.
    """
    del out

    async def ask(source: Stream, at: Epoch | None) -> Checkpoint:
        found = await source.checkpoint(upto or 0, epoch=at)
        if found is None:
            which = f"of {plural(upto, 'message')}" if upto is not None else "yet"
            raise CommandFailed(
                f"stream {stream} has no checkpoint {which}",
                Exit.REFUSED,
                "ask the hub's admin to run `veen hub checkpoint`",
            )
        return found

    return fetch_commands.answer(fetch_commands.fetch(target, stream, epoch, ask), file, stream=stream)
