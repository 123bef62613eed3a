"""Reader keys, of the commands that open messages."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from veen_spark.functions.reader_keys import ReaderKeys

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
