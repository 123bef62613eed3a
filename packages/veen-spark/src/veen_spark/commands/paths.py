"""The paths of a command, checked before Spark starts, because starting it takes seconds."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click

from veen_cli.frame import CommandFailed, Exit, Output
from veen_core.errors import VeenError
from veen_spark.read.log_files import find_logs, matching
from veen_spark.session.master import is_connect, is_local

SMALL_LOG_BYTES: Final = 64 * 1_048_576
"""One process verifies a log of this size in about the time that Spark takes to start."""


def _absolute(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(os.path.abspath, values))


log_paths: Final = click.argument("paths", nargs=-1, required=True, callback=_absolute)
"""The logs to read, made absolute: executors and a Spark Connect server have other working folders."""
out_option: Final = click.option(
    "--out", "target", type=click.Path(path_type=Path), help="New folder for the result, as Parquet."
)
required_out_option: Final = click.option(
    "--out", "target", type=click.Path(path_type=Path), required=True, help="Folder for the Parquet files."
)


def require_paths(paths: Iterable[str], master: str) -> None:
    """Refuse a path that does not exist. The paths of a Spark Connect server cannot be checked here."""
    for path in () if is_connect(master) else paths:
        if not any(map(os.path.exists, matching(path))):
            raise CommandFailed(f"{path} does not exist", Exit.USAGE, "check the path and the working folder")


def require_new_folder(target: Path | None, action: str = "choose another folder") -> None:
    """Refuse an existing folder before the work starts, not hours later."""
    if target is not None and target.exists():
        raise CommandFailed(f"{target} exists already", Exit.USAGE, action)


def note_small_logs(out: Output, paths: Iterable[str], master: str) -> None:
    """Tell the user of a small log that it can be verified without Spark."""
    if not out.for_people or not is_local(master):
        return
    try:
        size = sum(segment.size for segment in find_logs(paths).segments)
    except (VeenError, OSError):
        return  # the verification reports it
    if size < SMALL_LOG_BYTES:
        out.note(
            f"these logs hold only {size / 1_048_576:.1f} MiB: `veen verify` (an export) or "
            "`veen hub fsck` (a clone) verifies them without Spark"
        )
