"""Where the console script begins: Ctrl-C ends it quietly, also while it still imports what it needs."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """Being asked to end, or a terminal that goes away, is Ctrl-C: what runs is put away first."""
    raise KeyboardInterrupt


def complete() -> None:
    """A stream that was closed is empty; one that cannot write every character writes a mark in its place."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - for as long as we run
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - as above
        elif stream.errors == "strict":
            stream.reconfigure(errors="replace")


def main() -> None:
    complete()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup's choice stands
            signal.signal(number, interrupt)
    try:
        from veen_cli.frame.main import main as run  # noqa: PLC0415 - this is what may be interrupted

        run()
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
