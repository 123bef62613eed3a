"""The end of a process: recorders that are still open send their queued events, and report the others.

``atexit`` calls ``close_open_recorders`` when all threads of the service, except daemon threads, have ended.
``logging`` closes its handlers later.
"""

from __future__ import annotations

import atexit
import sys
import time
from typing import Protocol


class OpenRecorder(Protocol):
    """A recorder that must be closed before the process ends."""

    @property
    def close_seconds(self) -> float: ...
    def close(self, timeout: float | None = None) -> int: ...
    def lost_text(self) -> str: ...


_open: dict[int, OpenRecorder] = {}


def close_at_exit(recorder: OpenRecorder) -> None:
    """Close ``recorder`` when the process ends, unless ``forget`` is called before."""
    _open[id(recorder)] = recorder


def forget(recorder: OpenRecorder) -> None:
    """Take back ``close_at_exit``: the recorder is closed."""
    _open.pop(id(recorder), None)


@atexit.register
def close_open_recorders() -> None:
    """Close all open recorders, in at most the longest ``close_seconds`` of any of them."""
    recorders = list(_open.values())
    end = time.monotonic() + max((each.close_seconds for each in recorders), default=0.0)
    for each in recorders:
        if each.close(max(0.0, end - time.monotonic())):
            report_lost(each)


def report_lost(recorder: OpenRecorder) -> None:
    """Report lost events on stderr: a service that exits may have closed its log files."""
    if sys.stderr is not None:
        sys.stderr.write(f"veen: {recorder.lost_text()}\n")
