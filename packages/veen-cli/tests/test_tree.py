"""Rules for every installed command, also those of other distributions."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from veen_cli.frame.command_groups import CommandGroup
from veen_cli.frame.main import veen


def walk(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    yield ctx.command_path, command, ctx
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            found = command.get_command(ctx, name)
            assert found is not None, f"{ctx.command_path} {name} cannot be loaded"
            yield from walk(found, context_of(found, name, ctx))


def context_of(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    return click.Context(command, info_name=name, parent=parent, **command.context_settings)


TREE = list(walk(veen, context_of(veen, "veen", None)))
LEAVES = [(path, command, ctx) for path, command, ctx in TREE if not isinstance(command, click.Group)]


@pytest.mark.parametrize(("path", "command", "ctx"), LEAVES, ids=[path for path, _, _ in LEAVES])
def test_every_command_has_json_quiet_help_and_an_example(
    path: str, command: click.Command, ctx: click.Context
) -> None:
    options = {name for each in command.get_params(ctx) for name in each.opts}
    assert {"--json", "--quiet", "--help"} <= options
    text = command.get_help(ctx)
    assert "Example" in text
    assert f"\n  {path} " in f"{text} ".replace('eval "$(', "").replace("\n", " \n"), (
        "the example is of this command"
    )
    assert command.help
    undocumented = [each.name for each in command.params if isinstance(each, click.Option) and not each.help]
    assert not undocumented


@pytest.mark.parametrize(("path", "command", "ctx"), LEAVES, ids=[path for path, _, _ in LEAVES])
def test_every_option_for_a_file_or_folder_is_completed_by_the_shell(
    path: str, command: click.Command, ctx: click.Context
) -> None:
    for each in command.params:
        said = f"{each.metavar} {getattr(each, 'help', '')}"
        if re.search(r"\bFILE\b|\bPEM\b|[Ff]older|an identity\b", said) and not isinstance(
            each.type, click.Choice
        ):
            kinds = {item.type for item in each.shell_complete(ctx, "x")}
            assert kinds <= {"file", "dir"}, (path, each.name)
            assert kinds, (path, each.name)


def test_the_help_of_veen_lists_each_command_once_under_a_heading_and_on_one_line() -> None:
    ctx = context_of(veen, "veen", None)
    listed = [name for names in veen.sections.values() for name in names]
    assert len(listed) == len(set(listed))
    assert set(listed) == {*veen.own, *veen.plugins}
    text = click.Group.get_help(veen, ctx).splitlines()
    for heading, names in veen.sections.items():
        under = text[text.index(f"{heading}:") + 1 :]
        if not veen.plugins.keys() & names:
            assert [line.split()[0] for line in under[: len(names)]] == list(names)


def test_to_names_the_reader_of_messages_only() -> None:
    """``veen query`` takes ``--to`` for ``--until`` too, because descriptors have ``filter.time.to``."""
    for path, command, _ in LEAVES:
        for option in command.params:
            if isinstance(option, click.Option) and "--to" in option.opts:
                about_time = path.startswith("veen query ") and "--until" in option.opts
                assert about_time or "reader" in (option.help or "").lower(), path


@pytest.mark.parametrize(
    ("path", "command"),
    [(path, command) for path, command, _ in TREE if isinstance(command, CommandGroup)],
    ids=[path for path, command, _ in TREE if isinstance(command, CommandGroup)],
)
def test_the_line_in_a_command_table_is_the_first_line_of_the_help(path: str, command: CommandGroup) -> None:
    for name, own in command.own.items():
        loaded = own.load()
        assert loaded.name == name, f"{path} {name} calls itself {loaded.name}"
        assert (loaded.help or "").split("\n\n")[0].replace("\n", " ") == own.help
