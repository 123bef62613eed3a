"""``veen receipt``: receipts, the hub's signed statement about one message (core §4.3)."""

from __future__ import annotations

from pathlib import Path

import click

from veen_cli.arguments.numbers import Integer
from veen_cli.evidence.fetch import fetch_commands
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import Target, connects, stream_option
from veen_cli.frame.output import Answer, Output
from veen_core.receipt import Receipt

receipt = fetch_commands.group("receipt", "receipt")
show = fetch_commands.make_show(Receipt, "receipt", "receipt")
verify = fetch_commands.make_verify(Receipt, "receipt", "receipt", "hub-identity.cbor")


@command("veen receipt get 1 --stream orders --out receipt.cbor", name="get")
@click.argument("seq", type=Integer(1))
@stream_option
@fetch_commands.epoch_option
@fetch_commands.file_option
@connects
def get(
    out: Output, *, target: Target, stream: str, seq: int, epoch: int | None, file: Path | None
) -> Answer:
    """Fetch a receipt from the hub and verify it.

    The signature is checked, and the receipt must belong to the log that this identity has verified so far.
    """
    del out
    found = fetch_commands.fetch(target, stream, epoch, lambda source, at: source.receipt(seq, epoch=at))
    return fetch_commands.answer(found, file, stream=stream)
