"""``veen fold``: fold a stream with any overlay and show the state with its root (core §11.3)."""

from __future__ import annotations

import json
from typing import Any

import click

from veen_cli.arguments.numbers import Integer
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, fields, plural
from veen_cli.overlays.overlay_stream import OverlayAccess, access_options
from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.live import FoldedState

overlay_argument = click.argument("overlay", type=click.Choice(list(OVERLAYS)), metavar="OVERLAY")


def folded_data(folded: FoldedState[Any]) -> dict[str, Any]:
    """The JSON of a folded state: the state, its hash, and the log prefix it was folded from."""
    summary, receipt = folded.summary, folded.receipt
    return {
        "overlay": folded.overlay.name,
        "upto_seq": folded.range.to_seq,
        "mmr_root": folded.mmr_root.hex(),
        "state_hash": folded.state_hash.hex(),
        "events": summary.events,
        "foreign": summary.foreign,
        "undecodable": summary.undecodable,
        "faults": [{"stream_seq": fault.seq, "why": fault.why} for fault in summary.ignored if fault.why],
        "receipt": receipt.encode().hex() if receipt is not None else None,
        "state": folded.overlay.view_json(summary),
    }


def check_upto(upto: int | None, size: int, stream: str) -> None:
    """Raise if ``--upto`` lies beyond the end of the stream."""
    if upto is not None and upto > size:
        raise CommandFailed(
            f"--upto {upto}: {stream} has {plural(size, 'message')}",
            Exit.USAGE,
            action="choose a smaller --upto",
        )


@command(
    "veen fold kv.map config",
    "veen fold wallet.ledger shop --upto 100 --json",
)
@overlay_argument
@click.argument("stream")
@click.option("--upto", type=Integer(1), help="Fold the first N messages only [default: all].")
@click.option("--epoch", type=Integer(0), help="Fold this epoch only [default: all epochs].")
@access_options
def fold(
    out: Output, *, access: OverlayAccess, overlay: str, stream: str, upto: int | None, epoch: int | None
) -> Answer:
    """Fold a stream with an overlay and show its state.

    OVERLAY is a name such as kv.map; an unknown name prints all names. Every message is verified before it is
    folded. The output names the log's root: everyone who folds the same log gets the same state hash. The
    folded state is kept, so the next run reads new messages only. At a hub with epochs the labels of all
    epochs are folded in order, and the root covers all of them.
    """
    del out

    async def work() -> FoldedState[Any]:
        async with access.at(stream) as source:
            if epoch and not source.hub.connection.profile.epoch_sec:
                raise CommandFailed("--epoch: this hub has no epochs", Exit.USAGE, action="leave --epoch out")
            async with source.view(OVERLAYS[overlay], epoch, must_exist=True) as view:
                check_upto(upto, view.size, stream)
                return await view.state(upto)

    folded = loop.run(work())
    data = {"stream": stream, **folded_data(folded)}
    counted = f"{data['events']} events, {data['foreign']} foreign, {data['undecodable']} undecodable"
    head = {"messages": f"{data['upto_seq']} ({counted})", "root": data["mmr_root"]}
    shown = json.dumps(data["state"], indent=2, ensure_ascii=False)
    return Answer(data, [*fields({**head, "state hash": data["state_hash"]}), *shown.splitlines()])
