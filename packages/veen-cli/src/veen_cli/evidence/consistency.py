"""``veen consistency``: an earlier log is the beginning of a later one (B11)."""

from __future__ import annotations

from pathlib import Path

import click

from veen_cli.arguments.numbers import Integer
from veen_cli.evidence import fetching
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import Target, connects, stream_option
from veen_cli.frame.output import Answer, Output
from veen_core.consistency import MmrConsistency

consistency = fetching.group("consistency", "consistency proof")
show = fetching.make_show(MmrConsistency, "consistency", "consistency proof")
verify = fetching.make_verify(
    MmrConsistency, "consistency", "consistency proof", "receipt.cbor", "checkpoint.cbor", "hub-identity.cbor"
)


@command("veen consistency get 1 100 --stream orders --out consistency.cbor", name="get")
@click.argument("from_seq", type=Integer(1))
@click.argument("to_seq", type=Integer(2))
@stream_option
@fetching.epoch_option
@fetching.file_option
@connects
def get(
    out: Output,
    *,
    target: Target,
    stream: str,
    from_seq: int,
    to_seq: int,
    epoch: int | None,
    file: Path | None,
) -> Answer:
    """Fetch a consistency proof from the hub, and verify it.

    It shows that the log of FROM_SEQ messages is the beginning of the log of TO_SEQ: nothing was rewritten.
    """
    del out
    if from_seq >= to_seq:
        raise click.UsageError("FROM_SEQ must be below TO_SEQ.")
    found = fetching.fetch(
        target, stream, epoch, lambda place, at: place.consistency(from_seq, to_seq, epoch=at)
    )
    return fetching.answer(found, file, stream=stream)
