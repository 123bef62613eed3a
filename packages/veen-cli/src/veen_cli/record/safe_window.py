"""``veen record safe-window``: the range and the time that a checkpoint proves (SDR0 3.3.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from veen_cli.arguments import times
from veen_cli.frame.command_class import command
from veen_cli.frame.output import Answer, Output
from veen_cli.record.checkpointing import read_checkpoint
from veen_cli.record.role_file import RoleFile, role_options
from veen_core.errors import EvidenceError
from veen_core.ids import HubId
from veen_overlays.recorder.checkpoint import RecorderCheckpoint, verify_checkpoint


@command(
    "veen record safe-window checkpoints --config admin/recorder.yaml",
    "veen record safe-window new.veenrc --after old.veenrc --config admin/recorder.yaml --json",
)
@click.argument("checkpoint", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--after",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Earlier checkpoint: the window starts where it ends.",
)
@role_options
def safe_window(out: Output, *, file: RoleFile, checkpoint: Path, after: Path | None) -> Answer:
    """Show which entries and which time a checkpoint proves: the window that is safe to replay.

    Every entry of a stream up to its last entry in the checkpoint is provable. An entry that the checkpoint
    does not cover is not older than the newest head in the checkpoint, so every event before the time of that
    head is covered. The hub claims that the file has the newest head of each stream; the file does not prove
    it. `veen hub labels --verified` proves it for a running hub. The command verifies the files offline;
    `veen record validate` compares them with the hub.
    """
    del out
    pinned, profile = HubId.from_hex(file.access.trust), file.role.profile.profile_id
    found = read_checkpoint(checkpoint)
    verify_checkpoint(found, pinned=pinned, profile=profile)
    earlier = None
    if after is not None:
        earlier = read_checkpoint(after)
        verify_checkpoint(earlier, pinned=pinned)
        _check_order(earlier, found)
    return _answer(found, earlier)


def _check_order(earlier: RecorderCheckpoint, found: RecorderCheckpoint) -> None:
    before = earlier.heads
    for each in found.streams:
        if each.label in before and before[each.label].last_seq > each.last_seq:
            raise EvidenceError(
                f"stream {each.stream}: the earlier checkpoint covers {before[each.label].last_seq} entries, "
                f"the later one {each.last_seq}",
                action="give the older file as --after; if it is older, keep both as evidence",
            )


def _answer(found: RecorderCheckpoint, earlier: RecorderCheckpoint | None) -> Answer:
    before = {} if earlier is None else earlier.heads
    until = found.covered_until
    since = earlier.covered_until if earlier is not None else None
    streams: list[dict[str, Any]] = []
    for each in found.streams:
        start = before[each.label].last_seq + 1 if each.label in before else 1
        streams.append(
            {"stream": each.stream, "epoch": each.epoch, "from_seq": start, "to_seq": each.last_seq}
        )
    data = {"from_time": since, "to_time": until, "streams": streams, "hub_id": found.identity.hub_id.hex()}
    lines = [
        f"{each['stream']}  entries {each['from_seq']} to {each['to_seq']}"
        if each["to_seq"] >= each["from_seq"]
        else f"{each['stream']}  no entries"
        for each in streams
    ]
    start_text = "the beginning" if since is None else times.format_utc(since)
    end_text = "nothing is covered" if until is None else f"{times.format_utc(until)}, exclusive"
    return Answer(data, [*lines, f"safe window: from {start_text} to {end_text}"])
