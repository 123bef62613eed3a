"""Where the console script begins: Ctrl-C ends it quietly, also while it still imports what it needs."""

from __future__ import annotations

import os
import signal
from types import FrameType

INTERRUPTED = 130


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """Being asked to end, or a terminal that goes away, is Ctrl-C: what runs is put away first."""
    raise KeyboardInterrupt


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup's choice stands
            signal.signal(number, interrupt)
    try:
        from veen_cli.main import main as run  # noqa: PLC0415 - this is what may be interrupted

        run()
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
