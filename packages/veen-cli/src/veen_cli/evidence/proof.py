"""``veen proof``: inclusion proofs, which show that one message is in the log (core §5.2)."""

from __future__ import annotations

from pathlib import Path

import click

from veen_cli.arguments.numbers import Integer
from veen_cli.evidence import fetch_commands
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import Target, connects, stream_option
from veen_cli.frame.output import Answer, Output, plural
from veen_core.ids import Epoch
from veen_core.proof import MmrProof
from veen_hub.client import Stream

proof = fetch_commands.group("proof", "inclusion proof")
show = fetch_commands.make_show(MmrProof, "proof", "inclusion proof")
verify = fetch_commands.make_verify(
    MmrProof, "proof", "inclusion proof", "receipt.cbor", "checkpoint.cbor", "hub-identity.cbor"
)


@command(
    "veen proof get 1 --stream orders --out proof.cbor",
    "veen proof get 1 --against 100 --stream orders --out proof.cbor",
    name="get",
)
@click.argument("seq", type=Integer(1))
@click.option("--against", type=Integer(1), help="Number of messages in the tree [default: all messages].")
@stream_option
@fetch_commands.epoch_option
@fetch_commands.file_option
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
    """Fetch an inclusion proof from the hub and verify it.

    It shows that message SEQ is among the first N messages; --against chooses N. The proof does not contain
    N: verify it with the receipt of message N, or with a checkpoint of N messages, which sign the root.
    """
    del out
    if against is not None and against < seq:
        raise click.UsageError(f"--against {against}: message {seq} is not among the first {against}.")
    sizes: list[int] = []

    async def ask(source: Stream, at: Epoch | None) -> MmrProof:
        head = None if against is not None else await source.head(epoch=at)
        sizes.append(against if against is not None else head.stream_seq if head is not None else seq)
        return await source.proof(seq, sizes[0], epoch=at)

    found = fetch_commands.fetch(target, stream, epoch, ask)
    size = sizes[0]
    lines = (
        f"message {seq} is among the first {plural(size, 'message')} of {stream}",
        f"verify it with the receipt of message {size}: veen receipt get {size} --stream {stream}",
    )
    return fetch_commands.answer(found, file, *lines, stream=stream, stream_seq=seq, tree_size=size)
