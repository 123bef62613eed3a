"""``veen proof``: one message is in the log (§5.2)."""

from __future__ import annotations

from pathlib import Path

import click

from veen_cli.arguments.numbers import Integer
from veen_cli.evidence import fetching
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import Target, connects, stream_option
from veen_cli.frame.output import Answer, Output
from veen_core.ids import Epoch
from veen_core.proof import MmrProof
from veen_hub.client import Stream

proof = fetching.group("proof", "inclusion proof")
show = fetching.make_show(MmrProof, "proof", "inclusion proof")
verify = fetching.make_verify(
    MmrProof, "proof", "inclusion proof", "receipt.cbor", "checkpoint.cbor", "hub-identity.cbor"
)


@command(
    "veen proof get 1 --stream orders --out proof.cbor",
    "veen proof get 1 --against 100 --stream orders --out proof.cbor",
    name="get",
)
@click.argument("seq", type=Integer(1))
@click.option("--against", type=Integer(1), help="Size of the tree [default: that of the newest message].")
@stream_option
@fetching.epoch_option
@fetching.file_option
@connects
def get(
    out: Output,
    *,
    target: Target,
    stream: str,
    seq: int,
    against: int | None,
    epoch: int | None,
    file: Path | None,
) -> Answer:
    """Fetch an inclusion proof from the hub, and verify it.

    It shows that message SEQ is among the first so many messages, by a number of hashes that grows with
    the logarithm of their count.
    """
    del out
    if against is not None and against < seq:
        raise click.UsageError(f"--against {against}: message {seq} is not among the first {against}.")
    sizes: list[int] = []

    async def ask(place: Stream, at: Epoch | None) -> MmrProof:
        head = None if against is not None else await place.head(epoch=at)
        sizes.append(against if against is not None else head.stream_seq if head is not None else seq)
        return await place.proof(seq, sizes[0], epoch=at)

    found = fetching.fetch(target, stream, epoch, ask)
    return fetching.answer(found, file, stream=stream, stream_seq=seq, tree_size=sizes[0])
