"""``veen hub labels``: every label of a hub with its head, proved against one hub checkpoint (P1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from veen_cli.arguments import times
from veen_cli.evidence.hub_log import cosigned_step
from veen_cli.frame import loop, settings
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import Target, may_connect
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.hub.data_directory import data_dir_flag, existing
from veen_cli.identity.identity_folder import Folder
from veen_cli.identity.known_streams import known_streams
from veen_core.ids import Epoch, HubId, Label, MmrRoot, StreamSeq, UnixTime
from veen_core.stream import control_label, label, routing_key, stream_id
from veen_hub.client import LabelHeads
from veen_hub.client.hub_log import load_policy
from veen_storage.shards.sharded_source import open_hub

CONTROL: str = "veen/control"


@command(
    "veen hub labels --verified --hub https://hub.example --trust HUB_ID",
    "veen hub labels --verified --witnesses policy.txt --json",
    "veen hub labels --data-dir hub",
)
@click.option(
    "--verified", is_flag=True, help="Read the hub's log and prove the list against its checkpoint."
)
@data_dir_flag("Without --verified: list the labels of this data directory as they are.")
@may_connect
def labels(out: Output, *, target: Target | None, verified: bool, data_dir: str | None) -> Answer:
    """List every label of a hub with its head.

    With --verified the whole hub log is read and its root recomputed: the list is complete under the hub
    checkpoint that is printed, and with --witnesses a quorum has cosigned that checkpoint. If a label is
    missing although you hold a receipt of one of its messages, the hub has hidden the label. Names of streams
    are shown if the identity of --client has used them.
    """
    if verified:
        source = click.get_current_context().get_parameter_source
        if source("data_dir") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--verified reads a running hub: give --hub, not --data-dir.")
        if target is None:
            raise click.UsageError("--verified reads the log of a running hub: give --hub URL.")
        return _verified(out, target)
    named = settings.value_or_context("data_dir", data_dir)
    if named is None:
        raise click.UsageError("give --verified to read the log of a hub, or --data-dir.")
    return _listed(existing(named))


def _verified(out: Output, target: Target) -> Answer:
    async def work() -> tuple[HubId, LabelHeads]:
        async with target.connect(anonymous=True) as hub:
            with out.progress("reading the hub log") as progress:
                return hub.hub_id, await hub.label_heads(progress=progress.update)

    hub_id, found = loop.run(work())
    head, names = found.checkpoint.head, _names(target.folder, hub_id)
    rows = [
        _row(each.label, each.upto_seq, each.mmr_root, each.hub_ts, names.get(each.label))
        for each in sorted(found.table.newest.values(), key=lambda each: each.label)
    ]
    policy = load_policy(target.witnesses) if target.witnesses is not None else None
    entries = plural(head.size, "entry", "entries")
    return Answer(
        {
            "hub_id": hub_id.hex(),
            "verified": True,
            "checkpoint": found.checkpoint.encode().decode(),
            "origin": head.origin,
            "size": head.size,
            "root": head.root.hex(),
            "quorum_at": found.cosigned.quorum_at if found.cosigned is not None else None,
            "labels": rows,
        },
        [
            *_lines(rows),
            f"{plural(len(rows), 'label')}: all that the hub log has, {entries} with the root "
            f"{head.root.hex()}",
            f"the hub signed it as {head.origin}; {cosigned_step(found.cosigned, policy)}",
        ],
    )


def _listed(data_dir: Path) -> Answer:
    rows, after = list[dict[str, Any]](), None
    with open_hub(data_dir) as hub:
        while some := hub.labels(after):
            heads = (hub.of(each).read.head(each) for each in some)
            rows += [
                _row(each.label, each.stream_seq, each.mmr_root, each.hub_ts, None)
                for each in heads
                if each is not None
            ]
            after = some[-1]
        hub_id = hub.main.identity.hub_id
    return Answer(
        {"hub_id": hub_id.hex(), "verified": False, "labels": rows},
        [*_lines(rows), f"{plural(len(rows), 'label')} in {data_dir}; not verified"],
    )


def _row(
    name: Label, upto_seq: StreamSeq, mmr_root: MmrRoot, hub_ts: UnixTime, stream: str | None
) -> dict[str, Any]:
    return {
        "label": name.hex(),
        "upto_seq": upto_seq,
        "mmr_root": mmr_root.hex(),
        "hub_ts": hub_ts,
        "stream": stream,
    }


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    width = max((len(str(row["upto_seq"])) for row in rows), default=0)
    for row in rows:
        named = f"  {row['stream']}" if row["stream"] is not None else ""
        yield (
            f"{row['label']}  {row['upto_seq']:>{width}}  {row['mmr_root']}  "
            f"{times.format_utc(row['hub_ts'])}{named}"
        )


def _names(folder: Folder | None, hub: HubId) -> dict[Label, str]:
    """Return the names of streams that the identity has used, by their labels in epoch 0."""
    routing = routing_key(hub)
    found = {control_label(routing): CONTROL}
    if folder is not None:
        used = known_streams(folder).get(hub.hex(), [])
        found |= {label(routing, stream_id(name), Epoch(0)): name for name in used}
    return found
