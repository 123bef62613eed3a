"""The paths of logs, looked at before Spark starts, which takes seconds."""

from __future__ import annotations

import os
from collections.abc import Iterable

from veen_spark.commands.session import USAGE, SparkCommandError
from veen_spark.read.log_files import matching
from veen_spark.session.master import is_connect


def require_paths(paths: Iterable[str], master: str) -> None:
    """Refuse a path that is not there; the paths of a Spark Connect server are not this machine's."""
    for path in () if is_connect(master) else paths:
        if not any(map(os.path.exists, matching(path))):
            raise SparkCommandError(
                f"{path} does not exist: check the name, and the folder you are in", USAGE
            )
