"""``veen record …``: record events, checkpoint their streams, replay them, and see who caused them (SDR0).

``role_file`` reads recorder.yaml, ``session`` connects a role to its hub; each other module is a command, or
the work of one.
"""

from __future__ import annotations

from typing import Final

from veen_cli.frame.command_groups import Group, LazyCommand

LINES: Final = {
    "init": ("init", "Set up one role of a recorder: its identity, its token, its recorder.yaml."),
    "emit": ("emit", "Record one event, or a JSON line per event."),
    "migrate": ("migrate", "Record that streams were renamed, split or merged."),
    "checkpoint": ("checkpoint", "Make a checkpoint over all streams of the recorder, now or regularly."),
    "validate": ("validate", "Verify a checkpoint, and that the hub still has what it covers."),
    "safe-window": ("safe_window", "Show the range and the time that a checkpoint proves."),
    "replay": ("replay", "Replay events by range or time, in order, with receipts and proofs."),
    "actors": ("actors", "Show who caused what; unattributed events are marked."),
}
"""Name of each command, its module in this package, and its line of help."""

COMMANDS: Final = {
    name: LazyCommand(f"{__name__}.{module}:{module}", line) for name, (module, line) in LINES.items()
}

record = Group(
    "record",
    COMMANDS,
    path="record",
    help="Record events, checkpoint their streams, and replay them with proofs.",
)
