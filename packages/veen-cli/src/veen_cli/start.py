"""Where the console script begins: Ctrl-C ends it quietly, also while it still imports what it needs."""

from __future__ import annotations

import os

INTERRUPTED = 130


def main() -> None:
    try:
        from veen_cli.main import main as run  # noqa: PLC0415 - this is what may be interrupted

        run()
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
