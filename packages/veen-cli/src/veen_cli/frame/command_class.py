"""The decorator that makes a function a ``veen`` command (see ``veen_cli.frame``)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from veen_cli.frame.command_groups import HELP_NAMES
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, discard_stdout


class Command(click.Command):
    """A click command with examples at the end of its help."""

    def __init__(self, *args: Any, examples: tuple[str, ...] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; refuse an empty path, which would mean the current folder.

        An empty path is nearly always a shell variable that is not set.
        """
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        for param in self.params:
            empty = given.get(param.name or "") in ("", [""])
            if empty and isinstance(param, click.Option) and isinstance(param.type, click.Path):
                flag = max(param.opts, key=len)
                raise click.UsageError(f"{flag} is empty: a shell variable may be unset.", ctx)
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, with the name by which the command was called."""
        own_name = ctx.find_root().info_name or "veen"
        with formatter.section("Examples" if len(self.examples) > 1 else "Example"):
            for example in self.examples:
                shown = example if own_name == "veen" else example.replace(f"veen {self.name}", own_name, 1)
                formatter.write(f"{'':{formatter.current_indent}}{shown}\n")


def print_answer(out: Output, answer: Answer) -> None:
    """Print the answer of a finished command; say that the work is done if stdout cannot be written.

    A plain "disk full" would make the user repeat the command, and send a message twice.
    """
    try:
        out.print_answer(answer)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandFailed(
            f"the command has succeeded, but its answer cannot be written to stdout: {error.strerror}",
            Exit.USAGE,
            "free disk space; do not repeat a command that changes something",
        ) from None


def command(
    *examples: str, name: str | None = None, cls: type[Command] = Command, **settings: Any
) -> Callable[[Callable[..., Answer | None]], Command]:
    """Make a function a command with ``--json``, ``--quiet`` and these examples.

    The function gets an ``Output`` as its first argument and returns an ``Answer``, or None if it has printed
    everything itself.
    """

    def declare(work: Callable[..., Answer | None]) -> Command:
        @wraps(work)
        def run(*, as_json: bool, quiet: bool, **options: Any) -> None:
            out = Output(as_json=as_json, quiet=quiet)
            try:
                answer = work(out, **options)
                if answer is not None:
                    print_answer(out, answer)
            except BrokenPipeError:
                raise click.exceptions.Exit(discard_stdout()) from None
            if answer is not None and answer.exit_code:
                raise click.exceptions.Exit(answer.exit_code)

        with_flags = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(
            click.option("--quiet", "-q", is_flag=True, help="Print errors and requested data only.")(run)
        )
        return click.command(
            name,
            cls=cls,
            examples=examples,
            context_settings={**HELP_NAMES, "max_content_width": 100},
            **settings,
        )(with_flags)

    return declare
