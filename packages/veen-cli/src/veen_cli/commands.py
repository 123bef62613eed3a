"""Command groups of other distributions, found through the entry point group ``veen.commands``.

A group is imported only when it is named or listed. One that cannot be imported does
not take ``veen`` down: it is listed as broken, and running it says why.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Final, Never

import click

from veen_cli.exits import CommandFailed, Exit

ENTRY_POINT_GROUP: Final = "veen.commands"


class DiscoveringGroup(click.Group):
    """Its own commands first, then those that installed distributions bring."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        brought = {entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)}
        return sorted(brought.union(super().list_commands(ctx)))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        for entry in entry_points(group=ENTRY_POINT_GROUP, name=cmd_name):
            return load(entry)
        return None


def load(entry: EntryPoint) -> click.Command:
    """Import the command behind ``entry``, or stand in for it if that fails."""
    try:
        command = entry.load()
    except Exception as error:  # noqa: BLE001 - whatever a stranger's module raises
        return broken(entry, f"{type(error).__name__}: {error}")
    if not isinstance(command, click.Command):
        return broken(entry, f"{entry.value} is not a click command")
    return command


def broken(entry: EntryPoint, why: str) -> click.Command:
    """Stand in for a command that cannot be loaded: say so when listed, fail when run."""
    distribution = entry.dist.name if entry.dist else "an unknown distribution"

    def fail(_args: tuple[str, ...]) -> Never:
        raise CommandFailed(f"'{entry.name}' of {distribution} cannot be loaded ({why})", Exit.BUG)

    return click.Command(
        entry.name,
        callback=fail,
        params=[click.Argument(["_args"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        add_help_option=False,
        short_help=f"(broken) {distribution} cannot be loaded",
    )
