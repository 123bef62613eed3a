"""Reader keys of the commands that open messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from veen_spark.functions.reader_keys import ReaderKeys

F = TypeVar("F", bound=Callable[..., Any])


def reader_option(*, required: bool = False) -> Callable[[F], F]:
    """Return the option ``--reader``."""
    return click.option(
        "--reader",
        "readers",
        multiple=True,
        required=required,
        type=click.Path(path_type=Path),
        help="File or folder with a reader key, under the same path on every executor; may be repeated.",
    )


def reader_keys(readers: tuple[Path, ...]) -> ReaderKeys | None:
    """Return the keys by absolute path, because executors have other working folders."""
    if not readers:
        return None
    keys = ReaderKeys.from_files(*(path.absolute() for path in readers))
    keys.get()  # reports an unusable file before Spark starts
    return keys
