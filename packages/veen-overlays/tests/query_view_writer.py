"""A process that writes a query view until it is killed: ``query_view_writer.py FOLDER [STEP]``.

It prints a line when it starts to write. With STEP it kills itself with SIGKILL at that call of the operating
system, counted over all calls that make something durable.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from recorder_logs import NOON, RecorderLog, event, feed_of

from veen_core.ids import UnixTime
from veen_overlays.live.query_view import QueryView, ViewFollower, view
from veen_overlays.live.query_view.feed import follower
from veen_overlays.live.query_view.files import compaction, merging

STREAM = "record/app/http"
EVENTS = 120
SECONDS_PER_EVENT = 1_200
"""The log covers two days."""
DURABLE = ("open", "write", "fdatasync", "fsync", "rename", "ftruncate", "unlink", "mkdir", "rmdir")


def log_of(count: int = EVENTS) -> RecorderLog:
    """The same log in every process."""
    log = RecorderLog(STREAM)
    for n in range(count):
        log.now = UnixTime(NOON + n * SECONDS_PER_EVENT)
        log.record(event(n))
    return log


def small_commits() -> None:
    """Commit every few rows and merge often, so that each kind of step happens many times."""
    view.FLUSH_ROWS = 4  # type: ignore[misc]
    follower.PAGE_ENTRIES = 4  # type: ignore[misc]
    compaction.TIER_ROWS = 8  # type: ignore[misc]
    merging.MAX_FILE_ROWS = 10  # type: ignore[misc]
    compaction.RUNS_PER_MERGE = 3  # type: ignore[misc]


def die_at(step: int) -> None:
    """Kill this process before the call of that number."""
    calls = 0

    def counted(real: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)

        return call

    for name in DURABLE:
        setattr(os, name, counted(getattr(os, name)))


def write(folder: Path, log: RecorderLog) -> None:
    """Bring the view up to date."""
    with QueryView.open(folder) as opened:
        following = ViewFollower(opened, [feed_of(log)])
        asyncio.run(following.open())
        asyncio.run(following.catch_up())
        asyncio.run(following.settle())


if __name__ == "__main__":
    small_commits()
    known = log_of()
    print("writing", flush=True)  # noqa: T201 - the parent waits for it
    if len(sys.argv) > 2:
        die_at(int(sys.argv[2]))
    write(Path(sys.argv[1]), known)
