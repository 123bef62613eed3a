"""``veen checkpoint``: the hub's signed snapshot of a log (§4.4)."""

from __future__ import annotations

from pathlib import Path

import click

from veen_cli.arguments.numbers import Integer
from veen_cli.evidence import fetching
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import Target, connects, stream_option
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_core.checkpoint import Checkpoint
from veen_core.ids import Epoch
from veen_hub.client import Stream

checkpoint = fetching.group("checkpoint", "checkpoint")
show = fetching.make_show(Checkpoint, "checkpoint", "checkpoint")
verify = fetching.make_verify(Checkpoint, "checkpoint", "checkpoint", "hub-identity.cbor")


@command("veen checkpoint get --stream orders --out checkpoint.cbor", name="get")
@click.option("--at", "upto", type=Integer(1), help="The one at this stream_seq [default: the latest].")
@stream_option
@fetching.epoch_option
@fetching.file_option
@connects
def get(
    out: Output, *, target: Target, stream: str, upto: int | None, epoch: int | None, file: Path | None
) -> Answer:
    """Fetch a checkpoint from the hub, and verify it.

    The hub makes them by count and by time; its admin asks for one with `veen hub checkpoint`.
    """
    del out

    async def ask(place: Stream, at: Epoch | None) -> Checkpoint:
        found = await place.checkpoint(upto or 0, epoch=at)
        if found is None:
            which = f"at {upto}" if upto is not None else "yet"
            raise CommandFailed(
                f"{stream} has no checkpoint {which}: its admin makes one with `veen hub checkpoint`",
                Exit.REFUSED,
            )
        return found

    return fetching.answer(fetching.fetch(target, stream, epoch, ask), file, stream=stream)
