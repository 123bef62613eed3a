"""The reference of all commands as Markdown, from the commands themselves.

    python -m veen_cli.commands.reference > docs/cli.md

This distribution's own, then what the others that are installed bring: make the page where all of them are.
Tests fail while it is out of date.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from veen_cli.frame.command_class import Command
from veen_cli.frame.exits import MEANINGS
from veen_cli.frame.main import veen

HEAD = """# The `veen` command

<!-- Made by `python -m veen_cli.commands.reference > docs/cli.md`; change the commands, not this page. -->

Every command takes `--json` (one object on stdout, whose keys are an interface), `--quiet` (nothing that was
not asked for) and `--help`; they are not repeated below. Errors are one line on stderr that says what to do
next. `VEEN_HUB`, `VEEN_CLIENT`, `VEEN_DATA_DIR` and the other variables named below, and the context in use
(`veen context`, or `veen --context NAME …` for one command), fill in flags that are not given: flag before
variable before context.

Completion: `eval "$(veen completion bash)"`, the same for zsh, or a file for fish.
"""
WIDTH = 100
SHARED = {"--json", "--quiet", "--help"}


def page() -> str:
    """The whole page."""
    parts = [HEAD, "## Exit codes", "", "| code | means |", "|---|---|"]
    parts += [f"| {int(code)} | {means} |" for code, means in MEANINGS.items()]
    parts += ["", *_of_group(veen, click.Context(veen, info_name="veen", **veen.context_settings), 2)]
    return "\n".join(parts).rstrip() + "\n"


def _of_group(group: click.Group, ctx: click.Context, level: int) -> Iterator[str]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=ctx, **command.context_settings)
        if isinstance(command, click.Group):
            yield from (f"{'#' * level} `{inner.command_path}`", "", command.help or "", "")
            yield from _of_group(command, inner, level + 1)
        else:
            yield from _of_command(command, inner, level)


def _of_command(command: click.Command, ctx: click.Context, level: int) -> Iterator[str]:
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    yield from (f"{'#' * level} `{ctx.command_path}`", "", "```text", usage, "```", "")
    for paragraph in (command.help or "").split("\n\n"):
        yield from (" ".join(paragraph.split()), "")
    rows = [_row(each, ctx) for each in command.params if isinstance(each, click.Option) and not each.hidden]
    told = [row for row in rows if row is not None]
    if told:
        yield from ("| option | |", "|---|---|", *told, "")
    yield from ("```text", *_examples(command, ctx), "```", "")


def _examples(command: click.Command, ctx: click.Context) -> list[str]:
    """Ours know them; of a plain click command, what it writes below its options."""
    if isinstance(command, Command):
        return list(command.examples)
    formatter = click.HelpFormatter(width=WIDTH)
    command.format_epilog(ctx, formatter)
    return formatter.getvalue().strip("\n").splitlines()


def _row(option: click.Option, ctx: click.Context) -> str | None:
    if SHARED & set(option.opts):
        return None
    record = option.get_help_record(ctx)
    assert record is not None
    names, text = record
    bar = "\\|"  # a bare one would end the cell
    return f"| `{names.replace('|', bar)}` | {' '.join(text.split()).replace('|', bar)} |"


if __name__ == "__main__":
    click.echo(page(), nl=False)
