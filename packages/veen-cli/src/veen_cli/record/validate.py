"""``veen record validate``: verify a checkpoint, and that the hub still has what it covers (SDR0 I2)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import Exit
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.record.checkpoint import checkpoint_dict, checkpoint_lines
from veen_cli.record.checkpointing import read_checkpoint
from veen_cli.record.role_file import RoleFile, role_options
from veen_cli.record.session import open_session
from veen_cli.record.validation import StreamFinding, compare_hub_log, compare_with_hub
from veen_core.errors import VeenError
from veen_core.ids import HubId
from veen_hub.client.hub_log import load_policy
from veen_overlays.recorder.checkpoint import RecorderCheckpoint, verify_checkpoint


@command(
    "veen record validate checkpoints --config admin/recorder.yaml",
    "veen record validate checkpoints --config admin/recorder.yaml --full",
    "veen record validate checkpoint.veenrc --config admin/recorder.yaml --offline --json",
)
@click.argument("checkpoint", type=click.Path(path_type=Path, exists=True))
@click.option("--full", is_flag=True, help="Read every entry that the checkpoint covers, and hash it again.")
@click.option("--offline", is_flag=True, help="Verify the file only; connect to no hub.")
@role_options
def validate(out: Output, *, file: RoleFile, checkpoint: Path, full: bool, offline: bool) -> Answer:
    """Verify a checkpoint, and that the hub still has everything that it covers.

    CHECKPOINT is a file, or a folder whose newest checkpoint is taken. Signature, proofs, hub and profile
    are verified offline. Then the hub must prove that its log and each stream extend the checkpoint. The
    exit code is 3 if anything differs.
    """
    if full and offline:
        raise click.UsageError("--full reads from the hub: omit --offline.")
    found = read_checkpoint(checkpoint)
    witnesses = file.access.witnesses
    verify_checkpoint(
        found,
        pinned=HubId.from_hex(file.access.trust),
        policy=load_policy(witnesses) if witnesses is not None else None,
        profile=file.role.profile.profile_id,
    )
    if offline:
        return Answer(
            {"valid": True, "faults": [], **checkpoint_dict(found)},
            [*checkpoint_lines(found), "the checkpoint is valid; it was not compared with the hub"],
        )
    return loop.run(_compare(out, file, found, full))


async def _compare(out: Output, file: RoleFile, found: RecorderCheckpoint, full: bool) -> Answer:
    faults: list[str] = []
    async with open_session(file) as session:
        try:
            await compare_hub_log(session, found)
        except VeenError as exc:
            faults.append(f"hub log: {exc.message}")
        with out.progress("entries", found.events if full else None) as progress:
            findings = await compare_with_hub(session, found, full=full, progress=progress.advance)
    faults += [f"{each.stream}: {each.fault}" for each in findings if each.fault is not None]
    data = {
        "valid": not faults,
        "faults": faults,
        "findings": [asdict(each) for each in findings],
        **checkpoint_dict(found),
    }
    verdict = (
        f"{plural(len(faults), 'fault')}: the hub contradicts the checkpoint"
        if faults
        else "valid: the hub log and every stream extend the checkpoint"
    )
    lines = [*map(_line, findings), *(f"FAULT  {each}" for each in faults), verdict]
    return Answer(data, lines, Exit.PROTOCOL if faults else Exit.OK)


def _line(each: StreamFinding) -> str:
    read = f", {plural(each.read, 'entry', 'entries')} read again" if each.read else ""
    pruned = f", {each.pruned} pruned" if each.pruned else ""
    state = "differs" if each.fault is not None else "extends the checkpoint"
    return f"{each.stream}  {each.last_seq} of {each.now_seq} covered, {state}{read}{pruned}"
