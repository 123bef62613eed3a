"""What the commands that open messages share: reader keys, ``--quiet``, and examples in their help."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from veen_spark.reader_keys import ReaderKeys


class ExampleCommand(click.Command):
    """A command that shows how it is used."""

    def __init__(self, *args: Any, examples: tuple[str, ...] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")


HELP: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

quiet_option: Final = click.option(
    "--quiet", "-q", is_flag=True, help="Print nothing that was not asked for."
)
reader_option: Final = click.option(
    "--reader",
    "readers",
    multiple=True,
    type=click.Path(path_type=Path),
    help="File or folder with a reader key, under the same name on every executor; may be said again.",
)


def reader_keys(readers: tuple[Path, ...]) -> ReaderKeys | None:
    """By absolute name: an executor has another working folder."""
    if not readers:
        return None
    keys = ReaderKeys.from_files(*(path.absolute() for path in readers))
    keys.get()  # what is wrong with a file is better said before Spark starts
    return keys
