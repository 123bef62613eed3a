"""``veen snapshot``: publish the hash of a folded state, and verify published hashes (spec-3 §7)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

import click

from veen_cli.arguments.identifiers import Hex
from veen_cli.arguments.numbers import Integer
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import CommandGroup, LazyCommand
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, fields
from veen_cli.overlays.fold import check_upto, overlay_argument
from veen_cli.overlays.overlay_stream import OverlayAccess, OverlayStream, access_options, sent_data
from veen_core.receipt import Receipt
from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.live import Materializer
from veen_overlays.snapshot import SNAPSHOTS, StateCheckpoint, StateId

COMMANDS: Final = {
    "publish": LazyCommand(
        "veen_cli.overlays.snapshot:publish", "Publish the hash of a stream's folded state."
    ),
    "verify": LazyCommand(
        "veen_cli.overlays.snapshot:verify", "Fold a stream and compare the state with its snapshots."
    ),
}
snapshot = CommandGroup(
    "snapshot", COMMANDS, path="snapshot", help="Publish the hashes of folded states, and verify them."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """The options of a snapshot command: overlay, stream, prefix, state id, and where snapshots are."""

    overlay: str
    stream: str
    upto: int | None
    state_id: StateId | None
    into: str | None

    @property
    def holder(self) -> str:
        return self.into or self.stream

    def id(self, source: OverlayStream) -> StateId:
        return self.state_id or StateId(source.stream.id)


def _state_options(upto: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the arguments and options that select a state; the command gets a ``which``."""

    def declare(work: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(work)
        def run(out: Output, *, access: OverlayAccess, **which: Any) -> Any:
            return work(out, access=access, which=Which(**which))

        found: Callable[..., Any] = access_options(run)
        for option in (
            click.option("--into", help="Stream that holds the snapshots [default: STREAM itself]."),
            click.option(
                "--state-id", type=Hex(StateId), help="Id of the state in hex [default: the stream's id]."
            ),
            click.option("--upto", type=Integer(1), help=upto),
            click.argument("stream"),
            overlay_argument,
        ):
            found = option(found)
        return found

    return declare


def _claim_data(claim: StateCheckpoint) -> dict[str, Any]:
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
@_state_options("Publish the state after this many messages [default: all].")
def publish(out: Output, *, access: OverlayAccess, which: Which) -> Answer:
    """Publish the hash of a stream's folded state.

    Everyone who can read the stream can check it with `veen snapshot verify`.
    """
    del out
    into = which.holder

    async def work() -> tuple[StateCheckpoint, Receipt]:
        async with access.streams() as at_stream:
            source = at_stream(which.stream)
            async with _one_label(source, which.overlay) as view:
                check_upto(which.upto, view.size, which.stream)
                claim = await view.snapshot(which.id(source), which.upto)
            return claim, await at_stream(into).send(claim)

    claim, receipt = loop.run(work())
    data = {**sent_data(claim, receipt, into), **_claim_data(claim)}
    return Answer(data, [f"published as message {receipt.stream_seq} of {into}", *fields(_claim_data(claim))])


@asynccontextmanager
async def _one_label(source: OverlayStream, overlay: str) -> AsyncIterator[Materializer[Any]]:
    async with source.view(OVERLAYS[overlay], must_exist=True) as view:
        if not isinstance(view, Materializer):
            raise CommandFailed(
                "a snapshot is bound to the root of one label (spec-3 §7.2), and at this hub a stream has a "
                "label per epoch",
                Exit.POLICY,
                action="compare the state hash that `veen fold` prints, or use a hub without epochs",
            )
        yield view


async def _claims(holder: OverlayStream, which: Which, state_id: StateId) -> list[StateCheckpoint]:
    """The published snapshots of the state, by prefix; the latest of each prefix."""
    state = await holder.state(SNAPSHOTS)
    claims = [StateCheckpoint.decode(written[1]) for written in state.values() if written is not None]
    return [
        claim
        for claim in sorted(claims, key=lambda each: each.upto_stream_seq)
        if claim.state_id == state_id and claim.state_class == which.overlay
        if which.upto is None or claim.upto_stream_seq == which.upto
    ]


@command(
    "veen snapshot verify wallet.ledger shop", "veen snapshot verify kv.map config --upto 100 --into proofs"
)
@_state_options("Verify the snapshot after this many messages only [default: all].")
def verify(out: Output, *, access: OverlayAccess, which: Which) -> Answer:
    """Fold a stream and compare the state with its snapshots.

    Ends with exit code 3 if the stream folds to another state, with 1 if there is no snapshot.
    """
    del out

    async def work() -> list[StateCheckpoint]:
        async with access.streams() as at_stream:
            source = at_stream(which.stream)
            claims = await _claims(at_stream(which.holder), which, which.id(source))
            async with _one_label(source, which.overlay) as view:
                for claim in claims:
                    await view.verify(claim)
            return claims

    claims = loop.run(work())
    if not claims:
        raise CommandFailed(
            f"{which.holder} has no such snapshot of {which.overlay}",
            Exit.USAGE,
            action="publish one with `veen snapshot publish`",
        )
    data = {"stream": which.stream, "holds": True, "snapshots": [_claim_data(claim) for claim in claims]}
    lines = [
        f"after message {each.upto_stream_seq}: state hash {each.state_hash.hex()} is correct"
        for each in claims
    ]
    return Answer(data, lines)
