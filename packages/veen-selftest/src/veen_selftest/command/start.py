"""Where the console script begins: Ctrl-C ends it quietly, also while it still imports what it needs."""

from __future__ import annotations

import os
from typing import NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    try:
        from veen_selftest.command.console import main as run  # noqa: PLC0415 - this is what may be interrupted

        run()
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
