"""``veen quickstart`` itself."""

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
from veen_cli.hub.check import told as fsck_told
from veen_cli.quickstart import onward, story, tamper, world
from veen_cli.quickstart.narration import Narrator


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="veen-quickstart-") as name:
            yield Path(name)
        return
    if keep.exists() and any(keep.iterdir()):
        raise CommandFailed(f"{keep} is not empty: choose a new folder for --keep", Exit.USAGE)
    keep.mkdir(parents=True, exist_ok=True)
    yield keep


@command("veen quickstart", "veen quickstart --keep demo")
@click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), help="Leave everything in this folder."
)
def quickstart(out: Output, *, keep: Path | None) -> Answer:
    """See the whole model in a few seconds: a hub, three messages, every claim verified, one bit flipped.

    Makes a hub in a temporary folder, an admin, Alice and Bob; Alice writes, Bob reads and verifies; then
    the disk is tampered with. Nothing outside the folder is touched.
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
        commands = onward.with_what_was_kept(scene, hub) if keep is not None else onward.from_nothing(hub)
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
        "fsck": {"original": fsck_told(tampering.original), "tampered": fsck_told(tampering.copy)},
        "commands": commands,
    }
    return Answer(data)


async def _play(
    narrator: Narrator, scene: world.World, hub: world.Running
) -> tuple[list[story.Read], story.Evidence]:
    """From permission to evidence, each told as soon as it has happened."""
    narrator.token(await story.permit(scene, hub))
    narrator.messages(await story.write(scene, hub))
    found = await story.read(scene, hub)
    narrator.both_sides(found)
    evidence = await story.collect(scene, hub)
    story.verify(scene, found, evidence)
    narrator.evidence(evidence, story.keep(scene, evidence))
    return found, evidence
