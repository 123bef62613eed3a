"""``veen consistency``: consistency proofs, which show that a log only grew (RESOLUTIONS B11)."""

from __future__ import annotations

from pathlib import Path

import click

from veen_cli.arguments.numbers import Integer
from veen_cli.evidence.fetch import fetch_commands
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import Target, connects, stream_option
from veen_cli.frame.output import Answer, Output
from veen_core.consistency import MmrConsistency

consistency = fetch_commands.group("consistency", "consistency proof")
show = fetch_commands.make_show(MmrConsistency, "consistency", "consistency proof")
verify = fetch_commands.make_verify(
    MmrConsistency, "consistency", "consistency proof", "receipt.cbor", "checkpoint.cbor", "hub-identity.cbor"
)


@command("veen consistency get 1 100 --stream orders --out consistency.cbor", name="get")
@click.argument("from_seq", type=Integer(1))
@click.argument("to_seq", type=Integer(2))
@stream_option
@fetch_commands.epoch_option
@fetch_commands.file_option
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
    """Fetch a consistency proof from the hub and verify it.

    The proof shows that the log of FROM_SEQ messages is a prefix of the log of TO_SEQ messages: nothing was
    rewritten.
    """
    del out
    if from_seq >= to_seq:
        raise click.UsageError("FROM_SEQ must be below TO_SEQ.")
    found = fetch_commands.fetch(
        target, stream, epoch, lambda source, at: source.consistency(from_seq, to_seq, epoch=at)
    )
    return fetch_commands.answer(found, file, stream=stream)
