"""``veen snapshot``: publish what a state is after a prefix, and check what was published (spec-3 §7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import click

from veen_cli.commands import Group, Own
from veen_cli.exits import CommandFailed, Exit
from veen_cli.frame import command
from veen_cli.numbers import Whole
from veen_cli.output import Answer, Output, fields
from veen_cli.overlays.arguments import Hex
from veen_cli.overlays.fold import check_upto, overlay_argument
from veen_cli.overlays.place import Place, Reach, reaches, sent_told
from veen_core.receipt import Receipt
from veen_overlays.live import Materializer
from veen_overlays.registry import OVERLAYS
from veen_overlays.snapshot import SNAPSHOTS, StateCheckpoint, StateId

COMMANDS: Final = {
    "publish": Own("veen_cli.overlays.snapshot:publish", "Publish the hash of a state, at a prefix."),
    "verify": Own("veen_cli.overlays.snapshot:verify", "Fold the log and compare what was published."),
}
snapshot = Group("snapshot", COMMANDS, path="snapshot", help="States published by their hash, and checked.")

into_option = click.option("--into", help="The stream that holds snapshots [default: STREAM itself].")
state_option = click.option(
    "--state-id", type=Hex(StateId), help="Which state it is, in hex [default: the stream's id]."
)


def _told(claim: StateCheckpoint) -> dict[str, Any]:
    return {
        "state_id": claim.state_id.hex(),
        "upto_seq": claim.upto_stream_seq,
        "mmr_root": claim.mmr_root.hex(),
        "state_hash": claim.state_hash.hex(),
        "overlay": claim.state_class,
    }


@command(
    "veen snapshot publish wallet.ledger shop", "veen snapshot publish kv.map config --upto 100 --into proofs"
)
@overlay_argument
@click.argument("stream")
@click.option("--upto", type=Whole(1), help="After this many messages [default: all].")
@state_option
@into_option
@reaches
def publish(
    out: Output,
    *,
    reach: Reach,
    overlay: str,
    stream: str,
    upto: int | None,
    state_id: StateId | None,
    into: str | None,
) -> Answer:
    """Publish the hash of a state, at a prefix.

    Whoever can read the stream can check it with `veen snapshot verify`.
    """
    del out
    into = into or stream

    async def work() -> tuple[StateCheckpoint, Receipt]:
        async with reach.streams() as place:
            source = place(stream)
            async with _one_label(source, overlay) as view:
                check_upto(upto, view.size, stream)
                claim = await view.snapshot(state_id or StateId(source.stream.id), upto)
            return claim, await place(into).send(claim)

    claim, receipt = asyncio.run(work())
    told = {**sent_told(claim, receipt, into), **_told(claim)}
    return Answer(told, [f"published as message {receipt.stream_seq} of {into}", *fields(_told(claim))])


@asynccontextmanager
async def _one_label(place: Place, overlay: str) -> AsyncIterator[Materializer[Any]]:
    async with place.view(OVERLAYS[overlay]) as view:
        if not isinstance(view, Materializer):
            raise CommandFailed(
                "a snapshot is bound to one label's root (spec-3 7.2), and this hub gives a stream another "
                "label each epoch: `veen fold` shows the state hash of all; publish on a hub without epochs",
                Exit.POLICY,
            )
        yield view


async def _claims(place: Place, overlay: str, state_id: StateId, upto: int | None) -> list[StateCheckpoint]:
    """What was published of this state; of one prefix, the latest."""
    state = await place.state(SNAPSHOTS)
    claims = [StateCheckpoint.decode(written[1]) for written in state.values() if written is not None]
    return [
        claim
        for claim in sorted(claims, key=lambda each: each.upto_stream_seq)
        if claim.state_id == state_id and claim.state_class == overlay
        if upto is None or claim.upto_stream_seq == upto
    ]


@command(
    "veen snapshot verify wallet.ledger shop", "veen snapshot verify kv.map config --upto 100 --into proofs"
)
@overlay_argument
@click.argument("stream")
@click.option("--upto", type=Whole(1), help="Only that of this prefix [default: all there are].")
@state_option
@into_option
@reaches
def verify(
    out: Output,
    *,
    reach: Reach,
    overlay: str,
    stream: str,
    upto: int | None,
    state_id: StateId | None,
    into: str | None,
) -> Answer:
    """Fold the log and compare what was published.

    Exits with 3 if a snapshot is not what the log folds to, with 1 if there is none.
    """
    del out

    async def work() -> list[StateCheckpoint]:
        async with reach.streams() as place:
            source = place(stream)
            wanted = state_id or StateId(source.stream.id)
            claims = await _claims(place(into or stream), overlay, wanted, upto)
            async with _one_label(source, overlay) as view:
                for claim in claims:
                    await view.verify(claim)
            return claims

    claims = asyncio.run(work())
    if not claims:
        raise CommandFailed(
            f"{into or stream} has no such snapshot of {overlay}: `veen snapshot publish` makes one",
            Exit.USAGE,
        )
    told = {"stream": stream, "holds": True, "snapshots": [_told(claim) for claim in claims]}
    return Answer(told, [f"after {each.upto_stream_seq}: {each.state_hash.hex()} holds" for each in claims])
