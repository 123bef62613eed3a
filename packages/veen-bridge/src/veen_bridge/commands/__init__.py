"""``veen bridge …``: one module per command, imported when the command is run."""

from __future__ import annotations

from typing import Final

from veen_cli.frame import CommandGroup, LazyCommand

LINES: Final = {
    "init": (
        "init",
        "Make the identity of one role, issue exactly the token that it needs, and write its configuration.",
    ),
    "doctor": (
        "doctor",
        "Check every token that a role holds, and say whether a path leads back to the source.",
    ),
    "export": ("export", "Write new entries of STREAMs and their evidence into bundles."),
    "inspect": ("inspect", "Show headers and part tables of bundle files, without verifying anything."),
    "verify": ("verify", "Verify bundles offline: parts, chain, entries, roots, heads and signatures."),
    "import": ("import_", "Verify bundles and write their events to the import streams of the target hub."),
    "reconcile": ("reconcile", "Compare what the source zone exported with what the target zone imported."),
    "mirror": ("mirror", "Follow streams of one hub and copy their events to another, until SIGTERM."),
}
"""Name of each command, its module in this package, and its line of help."""

COMMANDS: Final = {
    name: LazyCommand(f"{__name__}.{module}:{module}", line) for name, (module, line) in LINES.items()
}

bridge = CommandGroup(
    "bridge",
    COMMANDS,
    path="bridge",
    help="Move evidence across an air gap; mirror streams between hubs.",
)
