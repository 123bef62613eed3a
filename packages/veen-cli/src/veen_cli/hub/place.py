"""``--data-dir``: from the flag, VEEN_DATA_DIR or the context in use."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from veen_cli import settings


def data_dir_option(work: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(work)
    def run(*args: Any, data_dir: str | None, **options: Any) -> Any:
        path = Path(settings.needed("data_dir", data_dir)).expanduser()
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
