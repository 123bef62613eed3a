"""Run ``veen query serve`` and end it with SIGKILL at its nth durable step after the start."""

from __future__ import annotations

import functools
import itertools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from veen_cli.frame.main import run
from veen_cli.query.record_log import HubRecordLog
from veen_overlays.live.query_service import result_files
from veen_overlays.live.query_service.job_store import JobStore
from veen_overlays.live.query_service.result_files import ResultFiles

steps = itertools.count(1)
last = int(sys.argv[1])


def step() -> None:
    if next(steps) == last:
        os.kill(os.getpid(), signal.SIGKILL)


def dying(function: Callable[..., Any]) -> Callable[..., Any]:
    """Count a step before and after each call."""

    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        step()
        result = function(*args, **options)
        step()
        return result

    return called


def dying_async(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def called(*args: Any, **options: Any) -> Any:
        step()
        result = await function(*args, **options)
        step()
        return result

    return called


JobStore.add = dying(JobStore.add)  # type: ignore[method-assign]
JobStore.change = dying(JobStore.change)  # type: ignore[method-assign]
ResultFiles.write_evidence = dying(ResultFiles.write_evidence)  # type: ignore[method-assign]
result_files.sync_folder = dying(result_files.sync_folder)  # after the files of rows have their names
HubRecordLog.append = dying_async(HubRecordLog.append)  # type: ignore[method-assign]
sys.exit(run(["query", "serve", *sys.argv[2:]]))
