"""Threads of the pipeline, all started before the first request.

A thread that cannot be started (memory, process limits) then keeps the hub from starting. It can no longer
leave a request without an answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from veen_core.errors import VeenError

T = TypeVar("T")


def started_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """Return a pool whose threads all run already: a later ``submit`` starts none."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
    running = threading.Barrier(threads + 1)
    try:
        for _ in range(threads):
            pool.submit(running.wait)
        running.wait()
    except RuntimeError as exc:
        running.abort()
        pool.shutdown()
        raise VeenError(
            f"{threads} threads {name} cannot be started: {exc}",
            action="raise the limits of processes (ulimit -u) and of memory",
        ) from exc
    return pool


def in_own_thread(work: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Run ``work`` in a new thread; raise RuntimeError, with nothing left behind, if none can be started."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # T may be None

    def run() -> None:
        result, failed = None, None
        try:
            result = work()
        except BaseException as exc:  # noqa: BLE001 - handed to the caller
            failed = exc
        loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done
