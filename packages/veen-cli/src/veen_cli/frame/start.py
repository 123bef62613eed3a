"""Start of a console script: standard streams and signals are set up before anything slow is imported."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from veen_cli.frame.imports import own_process, without_collection

INTERRUPTED = 130


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """Treat SIGTERM and SIGHUP as Ctrl-C, so that commands clean up."""
    raise KeyboardInterrupt


def repair_streams() -> None:
    """Replace closed standard streams (``>&-``) by ``/dev/null``.

    Otherwise the next file that is opened would get the closed stream's number and its output. Characters
    that stdout or stderr cannot encode are replaced by a mark.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - open until the process ends
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - as above
        elif getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def start_process(run: Callable[[], int]) -> NoReturn:
    """Call ``run``, which does the slow imports itself, and exit with the code it returns.

    Ctrl-C ends the process without a traceback, also during those imports.
    """
    repair_streams()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # under nohup SIGHUP stays ignored
            signal.signal(number, _interrupt)
    try:
        sys.exit(run())
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)


def main() -> NoReturn:
    """Start ``veen``."""

    def run() -> int:
        own_process()
        with without_collection():
            from veen_cli.frame.main import run  # noqa: PLC0415 - slow, see start_process

        return run()

    start_process(run)
