"""The option ``--data-dir``: from the flag, VEEN_DATA_DIR or the context."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from shlex import quote
from typing import Any

import click

from veen_cli.frame import settings
from veen_cli.frame.exits import CommandFailed, Exit


def existing(named: str | Path) -> Path:
    """Return the path of a data directory that must exist."""
    data_dir = Path(named).expanduser()
    if not data_dir.is_dir():
        similar = get_close_matches(data_dir.name, _data_dirs(data_dir.parent), n=1)
        raise CommandFailed(
            f"there is no data directory {data_dir}",
            Exit.USAGE,
            f"did you mean {data_dir.with_name(similar[0])}?"
            if similar
            else f"check the name, or create it with `veen hub init -d {quote(str(data_dir))}`",
        )
    return data_dir


def is_sharded_directory(root: Path) -> bool:
    """Return whether a directory has several shards; False if its VERSION cannot be read."""
    # Imported here: most commands do not need the storage.
    from veen_storage import StorageError  # noqa: PLC0415
    from veen_storage.shards.sharded_layout import is_sharded  # noqa: PLC0415

    try:
        return is_sharded(root)
    except StorageError:
        return False


def _data_dirs(folder: Path) -> list[str]:
    """Return the names of the data directories in a folder."""
    try:
        return [each.name for each in folder.iterdir() if (each / "VERSION").is_file()]
    except OSError:
        return []


def data_dir_option(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--data-dir`` to a command that works on an existing data directory."""

    @wraps(work)
    def run(*args: Any, data_dir: Path, **options: Any) -> Any:
        return work(*args, data_dir=existing(data_dir), **options)

    return new_data_dir_option(run)


def data_dir_flag(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option ``--data-dir`` with a help text of its own; its value is a string or None."""
    return click.option(
        "--data-dir", "-d", envvar="VEEN_DATA_DIR", show_envvar=True, type=click.Path(), help=text
    )


def new_data_dir_option(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--data-dir`` to the command that creates one."""

    @wraps(work)
    def run(*args: Any, data_dir: str | None, **options: Any) -> Any:
        path = Path(settings.required_value("data_dir", data_dir)).expanduser()
        return work(*args, data_dir=path, **options)

    return data_dir_flag("The hub's data directory.")(run)


keys_dir_option = click.option(
    "--keys-dir",
    type=click.Path(path_type=Path),
    envvar="VEEN_KEYS_DIR",
    help="Folder of the hub's keys, if it is not in the data directory.",
)
