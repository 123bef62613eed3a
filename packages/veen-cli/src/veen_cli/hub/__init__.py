"""``veen hub``: create, run, check and copy a hub."""

from __future__ import annotations

from typing import Final

from veen_cli.frame.command_groups import CommandGroup, LazyCommand

COMMANDS: Final = {
    "init": LazyCommand(
        "veen_cli.hub.init:init", "Create a hub: a data directory with an identity of its own."
    ),
    "start": LazyCommand("veen_cli.hub.process:start", "Run a hub, in the foreground or with --detach."),
    "stop": LazyCommand("veen_cli.hub.process:stop", "Stop the hub that has a data directory open."),
    "status": LazyCommand("veen_cli.hub.status:status", "Show the status of a running hub."),
    "health": LazyCommand("veen_cli.hub.status:health", "Check once whether a hub is alive and ready."),
    "metrics": LazyCommand("veen_cli.hub.status:metrics", "Print a hub's metrics."),
    "keys": LazyCommand(
        "veen_cli.hub.keys:keys", "Show a hub's identity, hub_id and keys, or write it to a file."
    ),
    "labels": LazyCommand("veen_cli.hub.labels:labels", "List every label of a hub with its head."),
    "rotate": LazyCommand("veen_cli.hub.keys:rotate", "Give a stopped hub its next signing key."),
    "checkpoint": LazyCommand("veen_cli.hub.admin:checkpoint", "Have the hub sign checkpoints now."),
    "anchor": LazyCommand("veen_cli.hub.admin:anchor", "Have the hub anchor its newest checkpoints now."),
    "retention": LazyCommand("veen_cli.hub.admin:retention", "Have the hub apply its retention rules now."),
    "fsck": LazyCommand("veen_cli.hub.check:fsck", "Check everything in a stopped hub's data directory."),
    "repair": LazyCommand("veen_cli.hub.check:repair", "Rebuild what can be rebuilt from the log."),
    "clone": LazyCommand("veen_cli.hub.copies:clone", "Copy a hub, running or not, into a new directory."),
    "reshard": LazyCommand("veen_cli.hub.copies:reshard", "Move a stopped hub to another number of shards."),
    "fork": LazyCommand(
        "veen_cli.hub.copies:fork", "Create a new hub that keeps another hub's log as evidence."
    ),
    "successor": LazyCommand(
        "veen_cli.hub.cutover:successor", "Make the key of a hub's successor, and print its hub_id."
    ),
    "handover": LazyCommand("veen_cli.hub.cutover:handover", "End a running hub in favour of its successor."),
    "promote": LazyCommand(
        "veen_cli.hub.cutover:promote", "Make a replica's successor: a new hub with the old log as evidence."
    ),
    "lost": LazyCommand(
        "veen_cli.hub.cutover:lost", "List acknowledged messages that a successor never had."
    ),
    "export": LazyCommand(
        "veen_cli.hub.copies:export",
        "Write a range of a stream, or a whole hub, to a folder that can be verified offline.",
    ),
}
hub = CommandGroup("hub", COMMANDS, path="hub", help="Create, run, check and copy a hub.")
