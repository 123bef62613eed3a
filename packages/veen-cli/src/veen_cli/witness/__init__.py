"""``veen witness``: cosign the checkpoints of logs, and remember them."""

from __future__ import annotations

from typing import Final

from veen_cli.frame.command_groups import CommandGroup, LazyCommand

COMMANDS: Final = {
    "init": LazyCommand("veen_cli.witness.run:init", "Create a witness: a folder with a key of its own."),
    "serve": LazyCommand("veen_cli.witness.run:serve", "Run a witness in the foreground."),
    "status": LazyCommand(
        "veen_cli.witness.status:status", "Show what a witness has cosigned, and contradictions it has found."
    ),
    "evidence": LazyCommand(
        "veen_cli.witness.evidence:evidence", "Write the contradictions that a witness has found to files."
    ),
}
witness = CommandGroup(
    "witness", COMMANDS, path="witness", help="Cosign the checkpoints of logs, and remember them."
)
