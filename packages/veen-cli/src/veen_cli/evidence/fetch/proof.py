"""``veen proof``: inclusion proofs, which show that one message is in the log (core §5.2).

``--to-hub`` makes one file of all steps from the message to the hub checkpoint: hub evidence (P1, P2).
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote

import click

from veen_cli.arguments.numbers import Integer
from veen_cli.arguments.object_files import must_be_writable, write_new, write_whole
from veen_cli.evidence.fetch import fetch_commands
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import CommandGroup
from veen_cli.frame.connection import Target, connects, stream_option
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, plural
from veen_core.hub_evidence import HubEvidence
from veen_core.ids import Epoch
from veen_core.proof import MmrProof
from veen_hub.client import Stream


class ProofGroup(CommandGroup):
    """``veen proof --to-hub SEQ`` is ``veen proof get --to-hub SEQ``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, ["get", *args] if args[:1] == ["--to-hub"] else args)


proof = fetch_commands.group(
    "proof",
    "inclusion proof",
    ProofGroup,
    "`veen proof --to-hub SEQ -o FILE` writes one file that proves a message without the hub.",
)
show = fetch_commands.make_show(MmrProof, "proof", "inclusion proof")
verify = fetch_commands.make_verify(
    MmrProof, "proof", "inclusion proof", "receipt.cbor", "checkpoint.cbor", "hub-identity.cbor"
)


def _hub_evidence(
    target: Target, stream: str, seq: int, *, epoch: int | None, file: Path, force: bool
) -> Answer:
    """Fetch, verify and write the hub evidence of a message."""
    must_be_writable(file)
    if file.exists() and not force:
        raise CommandFailed(
            f"{file} exists", Exit.USAGE, "choose another name for --out, or replace it with --force"
        )

    async def ask(source: Stream, at: Epoch | None) -> HubEvidence:
        with target.out.progress("waiting for the hub log"):
            return await source.evidence(seq, epoch=at)

    found = fetch_commands.fetch(target, stream, epoch, ask)
    wire, signed = found.encode(), found.signed_head
    if force:
        write_whole(file, wire)
    else:
        write_new(file, wire, instead="replace it with --force")
    trusted = f"--trust {found.identity.hub_id.hex()}"
    trusted += f" --witnesses {quote(str(target.witnesses))}" if target.witnesses is not None else ""
    return Answer(
        {
            "stream": stream,
            "stream_seq": seq,
            "hub_id": found.identity.hub_id.hex(),
            "label": found.receipt.label.hex(),
            "head_upto_seq": found.head.upto_seq,
            "hub_log_size": signed.head.size,
            "signatures": len(signed.note.signatures),
            "bytes": len(wire),
            "file": str(file),
        },
        [
            f"message {seq} of {stream} is in the hub log of {plural(signed.head.size, 'entry', 'entries')}, "
            f"which has {plural(len(signed.note.signatures), 'signature')}",
            f"wrote {file} ({len(wire)} bytes)",
            f"verify it anywhere: veen verify {quote(str(file))} {trusted}",
        ],
    )


@command(
    "veen proof get 1 --stream orders --out proof.cbor",
    "veen proof get 1 --against 100 --stream orders --out proof.cbor",
    "veen proof --to-hub 1 --stream orders --witnesses policy.txt -o message.evidence",
    name="get",
)
@click.argument("seq", type=Integer(1))
@click.option("--against", type=Integer(1), help="Number of messages in the tree [default: all messages].")
@click.option(
    "--to-hub",
    is_flag=True,
    help="Write one file that proves the message without the hub, up to the hub checkpoint and cosignatures.",
)
@click.option("--force", is_flag=True, help="With --to-hub: replace the file if it exists.")
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
    to_hub: bool,
    force: bool,
    epoch: int | None,
    file: Path | None,
) -> Answer:
    """Fetch an inclusion proof from the hub and verify it.

    It shows that message SEQ is among the first N messages; --against chooses N. The proof does not contain
    N: verify it with the receipt of message N, or with a checkpoint of N messages, which sign the root.

    With --to-hub the file needs no other file: `veen verify FILE --trust HUB_ID --witnesses POLICY` verifies
    it without the hub. The command waits until the hub log covers the message; with --witnesses, until a
    quorum has cosigned it.
    """
    del out
    if to_hub:
        if against is not None or file is None:
            raise click.UsageError(
                "--to-hub writes a file and chooses the tree: give --out FILE, not --against."
            )
        return _hub_evidence(target, stream, seq, epoch=epoch, file=file, force=force)
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
