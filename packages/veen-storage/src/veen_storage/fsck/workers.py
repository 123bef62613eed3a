"""Sharing work among processes: results in order, memory bounded."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

from veen_storage.fsck.entries import EntryRun, EntryRunResult, LogTrust, check_span

BUNDLE_FRAMES: Final = 512
"""Frames handed to a process at once."""
BUNDLES_IN_FLIGHT: Final = 3
"""Bundles handed out and not yet returned, for each process."""
MAX_THREAD_EXIT_SEC: Final = 0.02
"""Longest wait for the kernel to remove a thread that has ended."""
T = TypeVar("T")
R = TypeVar("R")
E = TypeVar("E")


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


_trust: LogTrust | None = None


def _start_worker(trust: LogTrust) -> None:
    global _trust  # noqa: PLW0603 - set once, when the worker process starts
    _trust = trust
    gc.disable()
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """Exit when the parent is killed: an orphan would wait for work for ever, and may hold the lock."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _start_now() -> None:
    """Do nothing: the first job makes the pool start its processes."""


def _check_spans(spans: list[EntryRun]) -> list[EntryRunResult]:
    assert _trust is not None
    return [check_span(_trust, span) for span in spans]


@dataclass(slots=True)
class FsckWorkers:
    """A pool that checks spans in ``processes`` processes, or in this one. A context manager."""

    trust: LogTrust
    processes: int
    _pool: ProcessPoolExecutor | None = field(default=None)
    _gc_was_on: bool = field(default=False)

    def __enter__(self) -> FsckWorkers:
        # Millions of small tuples and no cycles: the collector would take 5 % of the time.
        self._gc_was_on = gc.isenabled()
        gc.disable()
        if self.processes > 1:
            self._pool = ProcessPoolExecutor(
                self.processes,
                mp_context=process_context(),
                initializer=_start_worker,
                initargs=(self.trust,),
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

    def verify(self, events: Iterable[E | EntryRun]) -> Iterator[tuple[E | EntryRun, EntryRunResult | None]]:
        """Yield the events in their order, each span with its result."""
        for bundle, future in self._ahead(self._submit(bundle) for bundle in _bundles(events)):
            results = iter(future())
            for event in bundle:
                yield event, next(results) if isinstance(event, EntryRun) else None

    def _submit(
        self, bundle: list[E | EntryRun]
    ) -> tuple[list[E | EntryRun], Callable[[], list[EntryRunResult]]]:
        spans = [event for event in bundle if isinstance(event, EntryRun)]
        if self._pool is None:
            return bundle, lambda: [check_span(self.trust, span) for span in spans]
        return bundle, self._pool.submit(_check_spans, spans).result

    def map(self, call: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yield the results of any other work, in order."""
        if (pool := self._pool) is None:
            yield from map(call, items)
            return
        flying: Iterator[Future[R]] = (pool.submit(call, item) for item in items)
        yield from (future.result() for future in self._ahead(flying))

    def _ahead(self, submitted: Iterator[T]) -> Iterator[T]:
        """Keep as much work in flight as the processes need, and no more."""
        flying: deque[T] = deque()
        for job in submitted:
            flying.append(job)
            if len(flying) > (BUNDLES_IN_FLIGHT * self.processes if self._pool is not None else 0):
                yield flying.popleft()
        yield from flying


def _bundles(events: Iterable[E | EntryRun]) -> Iterator[list[E | EntryRun]]:
    """Group events so that handing them over costs little."""
    bundle: list[E | EntryRun] = []
    weight = 0
    for event in events:
        bundle.append(event)
        weight += event.weight if isinstance(event, EntryRun) else 0
        if weight >= BUNDLE_FRAMES or len(bundle) >= 8 * BUNDLE_FRAMES:
            yield bundle
            bundle, weight = [], 0
    if bundle:
        yield bundle
