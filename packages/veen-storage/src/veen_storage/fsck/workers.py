"""Sharing work among processes: results in order, memory bounded."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

JOB_WEIGHT: Final = 512
"""Weight of a job: the items that are handed to a process at once. An entry weighs 1."""
JOBS_IN_FLIGHT: Final = 3
"""Jobs handed out and not yet returned, for each process."""
MAX_THREAD_EXIT_SEC: Final = 0.02
"""Longest wait for the kernel to remove a thread that has ended."""
T = TypeVar("T")
R = TypeVar("R")


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def process_context() -> multiprocessing.context.BaseContext:
    """Return how to start processes: by fork, which takes milliseconds, if this process has one thread.

    With several threads a fork could inherit a lock that is never released, so a fork server is used.
    """
    if _has_one_thread():
        return multiprocessing.get_context("fork")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["veen_storage.fsck.index_check", "veen_storage.fsck.entries"])
    return context


def _has_one_thread() -> bool:
    """Return whether this process has no other thread, known to Python or not.

    The kernel lists a thread for a moment after ``join`` has returned, as after the end of a pool. Without
    waiting for it, a check could lose half a second to the fork server.
    """
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        return False
    deadline = time.monotonic() + MAX_THREAD_EXIT_SEC
    while len(os.listdir(tasks)) > 1:
        if threading.active_count() > 1 or time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def _start_worker() -> None:
    gc.disable()
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """Exit when the parent is killed: an orphan would wait for work for ever, and may hold the lock."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _start_now() -> None:
    """Do nothing: the first job makes the pool start its processes."""


def _call_all(call: Callable[[T], R], items: list[T]) -> list[R]:
    return [call(item) for item in items]


@dataclass(slots=True)
class FsckWorkers:
    """A pool of ``processes`` processes; with one, the work is done in this process. A context manager."""

    processes: int
    _pool: ProcessPoolExecutor | None = field(default=None)
    _gc_was_on: bool = field(default=False)

    def __enter__(self) -> FsckWorkers:
        # Millions of small tuples and no cycles: the collector would take 5 % of the time.
        self._gc_was_on = gc.isenabled()
        gc.disable()
        if self.processes > 1:
            self._pool = ProcessPoolExecutor(
                self.processes, mp_context=process_context(), initializer=_start_worker
            )
            self._pool.submit(_start_now)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _exc: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._gc_was_on:
            gc.enable()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=kind is not None)

    def map(
        self, call: Callable[[T], R], items: Iterable[T], weight: Callable[[T], int]
    ) -> Iterator[tuple[T, R]]:
        """Yield each item with its result, in order; as much is in flight as the processes need."""
        if (pool := self._pool) is None:
            yield from ((item, call(item)) for item in items)
            return
        flying = deque[tuple[list[T], Callable[[], list[R]]]]()
        for job in _jobs(items, weight):
            flying.append((job, pool.submit(_call_all, call, job).result))
            if len(flying) > JOBS_IN_FLIGHT * self.processes:
                yield from _results(*flying.popleft())
        while flying:
            yield from _results(*flying.popleft())


def _results(job: list[T], results: Callable[[], list[R]]) -> Iterator[tuple[T, R]]:
    return zip(job, results(), strict=True)


def _jobs(items: Iterable[T], weight: Callable[[T], int]) -> Iterator[list[T]]:
    """Group items so that handing them over costs little."""
    job, size = list[T](), 0
    for item in items:
        job.append(item)
        size += weight(item)
        if size >= JOB_WEIGHT:
            yield job
            job, size = [], 0
    if job:
        yield job
