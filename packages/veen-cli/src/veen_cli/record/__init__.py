"""``veen record …``: record events, checkpoint their streams, replay them, and see who caused them (SDR0).

``role_file`` reads recorder.yaml, ``session`` connects a role to its hub; each other module is a command, or
the work of one.
"""

from __future__ import annotations

from typing import Final

from veen_cli.frame.command_groups import CommandGroup, LazyCommand

LINES: Final = {
    "init": (
        "init",
        "Make the identity of one role, issue exactly the token that it needs, and write its recorder.yaml.",
    ),
    "emit": ("emit", "Record one event, or one event per JSON line; end when the hub has made them durable."),
    "migrate": ("migrate", "Record that streams were renamed, split, merged, added or retired."),
    "checkpoint": ("checkpoint", "Make a checkpoint over all streams of the recorder."),
    "validate": ("validate", "Verify a checkpoint, and that the hub still has everything that it covers."),
    "safe-window": (
        "safe_window",
        "Show which entries and which time a checkpoint proves: the window that is safe to replay.",
    ),
    "replay": (
        "replay",
        "Replay the entries of STREAMs, by default of all streams of the recorder, in order.",
    ),
    "actors": ("actors", "Show who caused what: events by subject, principal, origin and event type."),
}
"""Name of each command, its module in this package, and its line of help."""

COMMANDS: Final = {
    name: LazyCommand(f"{__name__}.{module}:{module}", line) for name, (module, line) in LINES.items()
}

record = CommandGroup(
    "record",
    COMMANDS,
    path="record",
    help="Record events, checkpoint them, and replay them with proofs.",
)
