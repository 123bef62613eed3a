"""``veen fold``: the state of a stream under an overlay, and the root it rests on (§11.3)."""

from __future__ import annotations

import json
from typing import Any

import click

from veen_cli.arguments.numbers import Integer
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, fields
from veen_cli.overlays.overlay_stream import Access, access_options
from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.live import FoldedState

overlay_argument = click.argument("overlay", type=click.Choice(list(OVERLAYS)), metavar="OVERLAY")


def folded_data(folded: FoldedState[Any]) -> dict[str, Any]:
    """What was folded, and what it rests on."""
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
    if upto is not None and upto > size:
        raise CommandFailed(f"{stream} has {size} messages, not {upto}: choose a smaller --upto", Exit.USAGE)


@command(
    "veen fold kv.map config",
    "veen fold wallet.ledger shop --upto 100 --json",
)
@overlay_argument
@click.argument("stream")
@click.option("--upto", type=Integer(1), help="As it was after this many messages [default: all].")
@click.option("--epoch", type=Integer(0), help="Of this epoch alone, at a hub with epochs [default: all].")
@access_options
def fold(
    out: Output, *, access: Access, overlay: str, stream: str, upto: int | None, epoch: int | None
) -> Answer:
    """Fold a stream with an overlay and show its state.

    Everything is verified before it is folded. The answer names the root it rests on; whoever folds the
    same log gets the same state hash. What was folded is kept, so the next time only new messages are read.
    Where a stream has a label for each epoch, all are folded in their order, and the root is that of all.
    """
    del out

    async def work() -> FoldedState[Any]:
        async with access.at(stream) as source:
            if epoch and not source.hub.connection.profile.epoch_sec:
                raise CommandFailed(
                    f"this hub has no epochs, so {stream} has none: leave --epoch out", Exit.USAGE
                )
            async with source.view(OVERLAYS[overlay], epoch) as view:
                check_upto(upto, view.size, stream)
                return await view.state(upto)

    folded = loop.run(work())
    data = {"stream": stream, **folded_data(folded)}
    counted = f"{data['events']} events, {data['foreign']} foreign, {data['undecodable']} undecodable"
    head = {"messages": f"{data['upto_seq']} ({counted})", "root": data["mmr_root"]}
    shown = json.dumps(data["state"], indent=2, ensure_ascii=False)
    return Answer(data, [*fields({**head, "state hash": data["state_hash"]}), *shown.splitlines()])
