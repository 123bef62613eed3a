"""What a shell offers to complete where a value is text to click, which offers nothing then."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from veen_cli.frame import settings
from veen_cli.frame.exits import CommandFailed


def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files and folders, as the shell itself lists them."""
    return [CompletionItem(incomplete, type="file")]


def folders(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]


def contexts(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Their names; none if their file cannot be read: that is said when one is used."""
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
    """Those that ``veen explain`` knows."""
    # Imported here: it reads the table of admission, which nothing else on a command line needs.
    from veen_cli.frame.explanations import all_of_them  # noqa: PLC0415

    wanted = incomplete.upper()
    return [
        CompletionItem(each.name, help=each.means) for each in all_of_them() if each.name.startswith(wanted)
    ]
