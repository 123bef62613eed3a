"""Shell completions for options that are plain text to click."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from veen_cli.frame import settings
from veen_cli.frame.exits import CommandFailed


def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete files and folders."""
    return [CompletionItem(incomplete, type="file")]


def folders(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete folders."""
    return [CompletionItem(incomplete, type="dir")]


def contexts(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of contexts; none if their file cannot be read, which the command then reports."""
    try:
        named = settings.load().named
    except (CommandFailed, OSError):
        return []
    return [
        CompletionItem(name, help=each.hub or "")
        for name, each in sorted(named.items())
        if name.startswith(incomplete)
    ]


def codes(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the codes that ``veen explain`` knows."""
    # Imported here: it reads the admission table, which no other completion needs.
    from veen_cli.frame.explanations import all_explanations  # noqa: PLC0415

    wanted = incomplete.upper()
    return [
        CompletionItem(each.name, help=each.means)
        for each in all_explanations()
        if each.name.startswith(wanted)
    ]
