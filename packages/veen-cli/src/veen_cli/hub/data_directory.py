"""``--data-dir``: from the flag, VEEN_DATA_DIR or the context in use; there, unless it is to be made."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from shlex import quote
from typing import Any

import click

from veen_cli.frame import settings
from veen_cli.frame.exits import CommandFailed, Exit


def existing(named: str | Path) -> Path:
    """The data directory of that name, which must be there."""
    data_dir = Path(named).expanduser()
    if not data_dir.is_dir():
        raise CommandFailed(
            f"{data_dir}: there is no such data directory; make it with "
            f"`veen hub init -d {quote(str(data_dir))}`",
            Exit.USAGE,
        )
    return data_dir


def data_dir_option(work: Callable[..., Any]) -> Callable[..., Any]:
    """For commands that work on a data directory."""

    @wraps(work)
    def run(*args: Any, data_dir: Path, **options: Any) -> Any:
        return work(*args, data_dir=existing(data_dir), **options)

    return new_data_dir_option(run)


def new_data_dir_option(work: Callable[..., Any]) -> Callable[..., Any]:
    """For the command that makes one."""

    @wraps(work)
    def run(*args: Any, data_dir: str | None, **options: Any) -> Any:
        path = Path(settings.required_value("data_dir", data_dir)).expanduser()
        return work(*args, data_dir=path, **options)

    return click.option(
        "--data-dir",
        "-d",
        envvar="VEEN_DATA_DIR",
        show_envvar=True,
        type=click.Path(),
        help="The hub's data directory.",
    )(run)


keys_dir_option = click.option(
    "--keys-dir",
    type=click.Path(path_type=Path),
    envvar="VEEN_KEYS_DIR",
    help="Where the hub's keys lie, if not in the data directory.",
)
