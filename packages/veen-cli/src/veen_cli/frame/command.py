"""What every command of this distribution shares, written once.

    @command("veen send 'two coffees' --stream orders")
    @click.argument("body")
    def send(out: Output, body: str) -> Answer:
        ...

gives ``--json``, ``--quiet``, ``--help`` with the examples, and prints the ``Answer``: as one JSON object,
as nothing, or for a person. Commands of other distributions cannot import this; they are plain click
commands with the same two flags and an epilog of examples, and ``tests/test_tree.py`` holds them to it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from veen_cli.frame.command_groups import HELP_NAMES
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, silenced


class Command(click.Command):
    """A command that shows how it is used."""

    def __init__(self, *args: Any, examples: tuple[str, ...] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; a path of no letters is a variable that was not set, not the folder one is in."""
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        for param in self.params:
            empty = given.get(param.name or "") in ("", [""])
            if empty and isinstance(param, click.Option) and isinstance(param.type, click.Path):
                flag = max(param.opts, key=len)
                raise click.UsageError(f"{flag} is empty: a variable of your shell that is not set?", ctx)
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Examples" if len(self.examples) > 1 else "Example"):
            for example in self.examples:
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")


def say(out: Output, answer: Answer) -> None:
    """The work is done by now: whoever is told to make room and try again would send a message twice."""
    try:
        out.say(answer)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandFailed(
            f"done, but the answer cannot be written to stdout: {error.strerror}; make room, and repeat it "
            "only if it changes nothing",
            Exit.USAGE,
        ) from None


def command(
    *examples: str, name: str | None = None, **settings: Any
) -> Callable[[Callable[..., Answer | None]], Command]:
    """Make a function a command; it gets an ``Output`` first and returns what there is to say."""

    def declare(work: Callable[..., Answer | None]) -> Command:
        @wraps(work)
        def run(*, as_json: bool, quiet: bool, **options: Any) -> None:
            out = Output(as_json=as_json, quiet=quiet)
            try:
                answer = work(out, **options)
                if answer is not None:
                    say(out, answer)
            except BrokenPipeError:
                raise click.exceptions.Exit(silenced()) from None

        flagged = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(
            click.option("--quiet", "-q", is_flag=True, help="Print nothing that was not asked for.")(run)
        )
        return click.command(
            name,
            cls=Command,
            examples=examples,
            context_settings={**HELP_NAMES, "max_content_width": 100},
            **settings,
        )(flagged)

    return declare
