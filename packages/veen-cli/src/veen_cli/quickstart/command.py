"""The command ``veen quickstart``."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_cli.hub.check import report_dict
from veen_cli.quickstart import next_commands, story, tamper, world
from veen_cli.quickstart.narration import Narrator


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="veen-quickstart-") as name:
            yield Path(name)
        return
    if keep.exists() and any(keep.iterdir()):
        raise CommandFailed(f"{keep} is not empty", Exit.USAGE, "choose a new folder for --keep")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep


@command("veen quickstart", "veen quickstart --keep demo")
@click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep all files in this folder."
)
def quickstart(out: Output, *, keep: Path | None) -> Answer:
    """See how VEEN works in a few seconds; every claim is verified.

    Creates a hub, an admin, Alice and Bob in a temporary folder. Alice writes, Bob reads and verifies, then
    one bit of the hub's log is flipped. Nothing outside the folder is changed.
    """
    started = time.monotonic()
    narrator = Narrator(quiet=not out.for_people)
    with contextlib.ExitStack() as stack:
        root = stack.enter_context(_folder(keep))
        narrator.opening(root, kept=keep is not None)
        scene = world.build(root)
        narrator.people(scene)
        with world.running(scene) as hub:
            narrator.hub(scene, hub)
            found, evidence = loop.run(_play(narrator, scene, hub))
        tampering = tamper.flip_one_bit(scene, found[1].ciphertext)
        narrator.tampering(tampering)
        seconds = time.monotonic() - started
        commands = next_commands.continuing(scene, hub) if keep is not None else next_commands.anew(hub)
        narrator.closing(seconds, commands)
    data: dict[str, Any] = {
        "ok": True,
        "seconds": round(seconds, 2),
        "folder": str(root) if keep is not None else None,
        "hub_id": scene.identity.hub_id.hex(),
        "messages": [
            {
                "stream_seq": each.message.stream_seq,
                "id": each.message.id.hex(),
                "text": each.message.text,
                "ciphertext": each.ciphertext.hex(),
                "attachments": len(each.message.attachments),
            }
            for each in found
        ],
        "verified": {
            "receipts": len(evidence.receipts),
            "checkpoint": evidence.checkpoint.upto_seq,
            "inclusion": 1,
            "consistency": [evidence.consistency.from_seq, evidence.consistency.to_seq],
        },
        "fsck": {"original": report_dict(tampering.original), "tampered": report_dict(tampering.copy)},
        "commands": commands,
    }
    return Answer(data)


async def _play(
    narrator: Narrator, scene: world.World, hub: world.Running
) -> tuple[list[story.Read], story.Evidence]:
    """Play the story from the token to the evidence, and narrate each step."""
    narrator.token(await story.permit(scene, hub))
    narrator.messages(await story.write(scene, hub))
    found = await story.read(scene, hub)
    narrator.both_sides(found)
    evidence = await story.collect(scene, hub)
    story.verify(scene, found, evidence)
    narrator.evidence(evidence, story.keep(scene, evidence))
    return found, evidence
