"""Groups of commands, each imported when it is run, and extended by what other distributions bring.

A group knows its own commands as a table: name, where it is, one line of help. So listing them imports
nothing, and ``veen --help`` stays fast. Entry points of the group ``veen.commands`` add to it:

    bridge = "veen_bridge.commands:bridge"              a command or group of its own
    "id.principal" = "veen_overlays.commands:principal"  a command inside the group ``veen id``

One that cannot be imported does not take ``veen`` down: running it says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, NamedTuple, Never

import click
from click.shell_completion import CompletionItem

from veen_cli.frame import settings
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.listing import line_of

ENTRY_POINT_GROUP: Final = "veen.commands"
ELSEWHERE: Final = {
    "selftest": ("veen-bridge", "veen-selftest"),
    "spark": ("veen-spark",),
}
"""Commands that another distribution brings, the last of these; those before it, it needs beside veen-cli."""
HELP_NAMES: Final = {"help_option_names": ["-h", "--help"]}


class Own(NamedTuple):
    """A command of this distribution: ``module:attribute``, and its line in a list."""

    where: str
    help: str

    def load(self) -> click.Command:
        module, _, attribute = self.where.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


class Group(click.Group):
    """Its own commands first, then those that installed distributions bring to ``path``."""

    def __init__(self, name: str, own: Mapping[str, Own], *, path: str = "", **settings: Any) -> None:
        super().__init__(
            name,
            no_args_is_help=True,
            subcommand_metavar="COMMAND …",
            context_settings=HELP_NAMES,
            **settings,
        )
        self.own = own
        self.path = path

    def _brought(self) -> Iterator[tuple[str, EntryPoint]]:
        prefix = f"{self.path}." if self.path else ""
        for entry in entry_points(group=ENTRY_POINT_GROUP):
            if entry.name.startswith(prefix) and "." not in (name := entry.name.removeprefix(prefix)):
                yield name, entry

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        brought = {name for name, _ in self._brought()}
        return [*self.own, *sorted(brought - self.own.keys())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if (own := self.own.get(cmd_name)) is not None:
            return own.load()
        for name, entry in self._brought():
            if name == cmd_name:
                return load(entry)
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Commands that others bring get what the context in use says, below flag and variable."""
        if not self.path and args[0] in ELSEWHERE and self.get_command(ctx, args[0]) is None:
            raise CommandFailed(missing(args[0]), Exit.USAGE)
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None and name not in self.own and not ctx.resilient_parsing:
            ctx.default_map = {name: defaults_of(command, settings.in_use().told())}
        return name, command, rest

    def lines(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Every command with its line of help; none is imported for it."""
        del ctx
        brought = {name: entry for name, entry in self._brought() if name not in self.own}
        own = [(name, own.help) for name, own in self.own.items()]
        return own + [(name, line_of(entry)) for name, entry in sorted(brought.items())]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self.lines(ctx))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [
            CompletionItem(name, help=line) for name, line in self.lines(ctx) if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


def missing(name: str) -> str:
    """What brings a command that is not here."""
    packages = " ".join(f"packages/{each}" for each in ELSEWHERE[name])
    return (
        f"`veen {name}` comes with {ELSEWHERE[name][-1]}, which is not installed: "
        f"run `pip install {packages}` in a checkout of VEEN"
    )


def defaults_of(command: click.Command, told: Mapping[str, str]) -> dict[str, Any]:
    """Those of a context's values for which the command, or one below it, has an option of that name."""
    if isinstance(command, click.Group):
        return {name: defaults_of(each, told) for name, each in command.commands.items()}
    return {
        each.name: told[each.name]
        for each in command.params
        if isinstance(each, click.Option) and each.name in told and settings.flag(each.name) in each.opts
    }


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
        raise CommandFailed(
            f"'{entry.name}' of {distribution} cannot be loaded ({why}): reinstall {distribution}", Exit.BUG
        )

    return click.Command(
        entry.name,
        callback=fail,
        params=[click.Argument(["_args"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        add_help_option=False,
        help=f"(broken) {distribution} cannot be loaded",
    )
