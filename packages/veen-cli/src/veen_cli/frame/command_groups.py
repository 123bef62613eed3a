"""Command groups that import a command only when it is run, and that other distributions can extend.

A group has a table of its commands: name, module and one line of help. Listing them imports nothing, so
``veen --help`` stays fast. Entry points of the group ``veen.commands`` add commands:

    bridge = "veen_bridge.commands:bridge"               the command or group ``veen bridge``
    "id.principal" = "veen_overlays.commands:principal"  the command ``principal`` inside ``veen id``

If an added command cannot be imported, ``veen`` still works: only running that command fails, and says why.
``added_commands`` finds them; it is imported only if a command is not in the table, or to list all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from veen_cli.frame import settings
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.imports import without_collection

if TYPE_CHECKING:
    from veen_cli.frame.added_commands import AddedCommand

HELP_NAMES: Final = {"help_option_names": ["-h", "--help"]}


OTHER_COMMANDS: Final = "Other commands"
"""The heading of commands that no section names, which other distributions have added."""


class Plugin(NamedTuple):
    """A command of another distribution (``veen-NAME``), listed even if that is not installed."""

    help: str


class LazyCommand(NamedTuple):
    """A command that is imported when it is run: ``module:attribute``, and its line of help."""

    where: str
    help: str

    def load(self) -> click.Command:
        module, _, attribute = self.where.partition(":")
        with without_collection():
            command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


class CommandGroup(click.Group):
    """A group with a table of its own commands, extended by the entry points under ``path``."""

    def __init__(
        self,
        name: str,
        commands: Mapping[str, LazyCommand | Plugin],
        *,
        path: str = "",
        sections: Mapping[str, Collection[str]] | None = None,
        **settings: Any,
    ) -> None:
        """``sections``: the names of the commands by heading, for the help; None shows one list."""
        super().__init__(
            name,
            no_args_is_help=True,
            subcommand_metavar="COMMAND …",
            context_settings=HELP_NAMES,
            **settings,
        )
        self.own = {name: each for name, each in commands.items() if isinstance(each, LazyCommand)}
        self.plugins = {name: each for name, each in commands.items() if isinstance(each, Plugin)}
        self.sections = sections or {}
        self.path = path

    def _added(self) -> dict[str, AddedCommand]:
        # Imported here: `veen --version` does not need importlib.metadata, which takes about 15 ms to import.
        from veen_cli.frame.added_commands import added_commands  # noqa: PLC0415

        return added_commands(self.path)

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return [*self.own, *sorted(self._added().keys() - self.own.keys())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if (own := self.own.get(cmd_name)) is not None:
            return own.load()
        added = self._added().get(cmd_name)
        return added.load() if added is not None else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; give commands of other distributions the current context's values as defaults."""
        if ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        command = self.get_command(ctx, args[0])
        if command is None and not args[0].startswith("-"):
            raise self._unknown(ctx, args[0])
        if command is not None and not self._is_of_this_distribution(args[0]):
            ctx.default_map = {args[0]: defaults_of(command, settings.current_context().as_dict())}
        return super().resolve_command(ctx, args)

    def _is_of_this_distribution(self, name: str) -> bool:
        return name in self.own and self.own[name].where.startswith("veen_cli.")

    def _unknown(self, ctx: click.Context, name: str) -> CommandFailed:
        """Say what installs the command, or which command has a similar name."""
        from difflib import get_close_matches  # noqa: PLC0415 - only a misspelt name needs it

        if name in self.plugins:
            return CommandFailed(
                f"`veen {name}` needs veen-{name}, which is not installed",
                Exit.USAGE,
                f"run `pip install packages/veen-{name}` in a checkout of VEEN",
            )
        names = [each for each, _ in self.lines()]
        close = get_close_matches(name, names, n=1, cutoff=0.6)
        path = ctx.command_path
        action = f"did you mean `{path} {close[0]}`? See `{path} --help`" if close else f"see `{path} --help`"
        return CommandFailed(f"there is no command `{path} {name}`", Exit.USAGE, action)

    def lines(self) -> list[tuple[str, str]]:
        """Return each command's name and line of help; import none of them."""
        added = {name: each.help for name, each in self._added().items() if name not in self.own}
        missing = {name: f"{each.help} (needs veen-{name})" for name, each in self.plugins.items()}
        own = [(name, own.help) for name, own in self.own.items()]
        return own + sorted({**missing, **added}.items())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        lines = dict(self.lines())
        named = {name for names in self.sections.values() for name in names}
        others = [name for name in lines if name not in named]
        width = max(map(len, lines))
        for heading, names in {**self.sections, OTHER_COMMANDS if named else "Commands": others}.items():
            if names:
                with formatter.section(heading):
                    formatter.write_dl([(name.ljust(width), lines[name]) for name in names])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [
            CompletionItem(name, help=line) for name, line in self.lines() if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


def defaults_of(command: click.Command, values: Mapping[str, str]) -> dict[str, Any]:
    """Return those values of a context for which the command, or one below it, has an option."""
    if isinstance(command, click.Group):
        return {name: defaults_of(each, values) for name, each in command.commands.items()}
    return {
        each.name: values[each.name]
        for each in command.params
        if isinstance(each, click.Option) and each.name in values and settings.flag(each.name) in each.opts
    }
