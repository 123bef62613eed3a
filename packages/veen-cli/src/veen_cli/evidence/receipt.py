"""``veen receipt``: the hub's signed promise for one message (§4.3)."""

from __future__ import annotations

from pathlib import Path

import click

from veen_cli.arguments.numbers import Integer
from veen_cli.evidence import fetching
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import Target, connects, stream_option
from veen_cli.frame.output import Answer, Output
from veen_core.receipt import Receipt

receipt = fetching.group("receipt", "receipt")
show = fetching.make_show(Receipt, "receipt", "receipt")
verify = fetching.make_verify(Receipt, "receipt", "receipt", "hub-identity.cbor")


@command("veen receipt get 1 --stream orders --out receipt.cbor", name="get")
@click.argument("seq", type=Integer(1))
@stream_option
@fetching.epoch_option
@fetching.file_option
@connects
def get(
    out: Output, *, target: Target, stream: str, seq: int, epoch: int | None, file: Path | None
) -> Answer:
    """Fetch a receipt from the hub, and verify it.

    Its signature, and that it is part of the one log that this identity has followed so far.
    """
    del out
    found = fetching.fetch(target, stream, epoch, lambda place, at: place.receipt(seq, epoch=at))
    return fetching.answer(found, file, stream=stream)
