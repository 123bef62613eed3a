"""The paths of logs, looked at before Spark starts, which takes seconds."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path

from veen_spark.commands.session import USAGE, SparkCommandError


def there(paths: Iterable[str], master: str) -> None:
    """Refuse a path that is not there; the paths of a Spark Connect server are not this machine's."""
    for path in () if master.startswith("sc://") else paths:
        if not (glob.glob(path) if glob.has_magic(path) else Path(path).exists()):
            raise SparkCommandError(
                f"{path} does not exist: check the name, and the folder you are in", USAGE
            )
