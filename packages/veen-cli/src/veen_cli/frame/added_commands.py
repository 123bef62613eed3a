"""Commands that other distributions add to ``veen``: found by entry point (see ``command_groups``)."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Final, Never

import click

from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.help_lines import help_line
from veen_cli.frame.imports import without_collection

ENTRY_POINT_GROUP: Final = "veen.commands"


@dataclass(frozen=True, slots=True)
class AddedCommand:
    """A command of another distribution, which is imported when it is run."""

    entry: EntryPoint

    @property
    def help(self) -> str:
        """The command's line of help; the command is not imported."""
        return help_line(self.entry)

    def load(self) -> click.Command:
        """Import the command; if that fails, return a command that says why."""
        try:
            with without_collection():
                command = self.entry.load()
        except Exception as error:  # noqa: BLE001 - the module is another distribution's code
            return broken(self.entry, f"{type(error).__name__}: {error}")
        if not isinstance(command, click.Command):
            return broken(self.entry, f"{self.entry.value} is not a click command")
        return command


def added_commands(path: str) -> dict[str, AddedCommand]:
    """Return the commands added to the group at ``path``, by name; the root group's path is empty."""
    prefix = f"{path}." if path else ""
    found: dict[str, AddedCommand] = {}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name.startswith(prefix) and "." not in (name := entry.name.removeprefix(prefix)):
            found.setdefault(name, AddedCommand(entry))
    return found


def broken(entry: EntryPoint, why: str) -> click.Command:
    """Return a stand-in for a command that cannot be loaded; running it fails with the reason."""
    distribution = entry.dist.name if entry.dist else "an unknown distribution"

    def fail(_args: tuple[str, ...]) -> Never:
        raise CommandFailed(
            f"'{entry.name}' of {distribution} cannot be loaded ({why})",
            Exit.BUG,
            f"reinstall {distribution}",
        )

    return click.Command(
        entry.name,
        callback=fail,
        params=[click.Argument(["_args"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        add_help_option=False,
        help=f"(broken) {distribution} cannot be loaded",
    )
