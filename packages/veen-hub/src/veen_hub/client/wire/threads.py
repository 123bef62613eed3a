"""Worker threads whose calls run to their end: cancelling the caller does not interrupt a call."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Final, Generic, ParamSpec, TypeVar, cast

from veen_core.errors import StateError

P = ParamSpec("P")
T = TypeVar("T")
Ended = Callable[[T | None, BaseException | None], None]
"""Takes the value of a call, or its exception."""


class WorkOutcome(Generic[T]):
    """The outcome of work that is not interrupted if the one task that waits for it is cancelled.

    ``asyncio.shield`` does the same with one more future and one more turn of the event loop.
    """

    __slots__ = ("_failure", "_is_set", "_value", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._value: T | None = None
        self._failure: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    def set(self, value: T | None, failure: BaseException | None = None) -> None:
        """Set the outcome, on the event loop: a value, or why there is none."""
        self._is_set, self._value, self._failure = True, value, failure
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> T:
        """Wait for the outcome. If cancelled, raise CancelledError only when it is set."""
        cancelled: asyncio.CancelledError | None = None
        while not self._is_set:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            except asyncio.CancelledError as exc:
                cancelled = exc
        if cancelled is not None:  # it takes precedence over a failure
            raise cancelled
        if self._failure is not None:
            raise self._failure
        return cast(T, self._value)


MAX_GIL_SECONDS: Final = 0.002
"""Longest time for which a thread that computes in Python should keep the event loop waiting."""
GIL_PAUSE_SECONDS: Final = 0.000_05
"""Pause in which a waiting thread takes the GIL; after a pause of 0 that thread wakes up too late."""


class GilPauses:
    """Pauses of a thread that computes in Python, so that the event loop is not kept waiting.

    A thread that wants the GIL gets it 5 ms later if the holder never releases it. The event loop wants it
    several times to read one response.
    """

    __slots__ = ("_resumed",)

    def __init__(self) -> None:
        self._resumed = time.perf_counter()

    def pause_if_due(self) -> None:
        """Release the GIL if the last pause was at least 2 ms ago; call it after each message."""
        if time.perf_counter() - self._resumed > MAX_GIL_SECONDS:
            time.sleep(GIL_PAUSE_SECONDS)
            self._resumed = time.perf_counter()


class SerialThread:
    """A thread for calls that run one after the other.

    A pool with several idle threads wakes two of them for each call. This thread does not keep the process
    from ending: a call that is interrupted has not returned, so no caller relies on it.
    """

    __slots__ = ("_calls", "_thread")

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], None]) -> None:
        """Run ``work``, which must not raise; raises RuntimeError if the thread cannot be started."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="veen-client-commit", daemon=True)
            thread.start()
            self._thread = thread
        self._calls.put(work)

    def _run(self) -> None:
        while (work := self._calls.get()) is not None:
            work()

    def close(self) -> None:
        """Run the calls that wait, and end the thread."""
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join()


MAX_INLINE_MESSAGES: Final = 4
"""Messages that are sealed or verified on the event loop, which they block for about a millisecond."""


class Workers:
    """A few threads for cryptography and files."""

    def __init__(self, count: int = 3) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="veen-client")
        self._commits = SerialThread()
        self._closed = False

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``call`` in a thread. If cancelled, raise CancelledError only after the call has ended.

        A lock held around ``run`` is therefore held until the effects of the call are complete.
        """
        outcome: WorkOutcome[T] = WorkOutcome()
        self.start(lambda: call(*args, **kwargs), outcome.set)
        return await outcome.wait()

    def start(self, call: Callable[[], T], ended: Ended[T]) -> None:
        """Run ``call`` in a thread, then ``ended`` on the event loop, with its value or its exception.

        Once the main thread has ended, no pool accepts calls; then ``call`` runs on the event loop, so that
        a service can send its last messages while it exits.
        """
        self._start(self._pool.submit, call, ended)

    def start_commit(self, call: Callable[[], T], ended: Ended[T]) -> None:
        """Do what ``start`` does, in the thread of the commits."""
        self._start(self._commits.submit, call, ended)

    def _start(
        self, submit: Callable[[Callable[[], None]], object], call: Callable[[], T], ended: Ended[T]
    ) -> None:
        if self._closed:
            raise StateError("this connection is closed", action="connect again")
        loop, once = asyncio.get_running_loop(), threading.Lock()

        def end(value: T | None, failure: BaseException | None) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop was closed: no task waits
                loop.call_soon_threadsafe(ended, value, failure)

        def work() -> None:
            if not once.acquire(blocking=False):
                return  # the pool kept a call for which it could not start a thread
            try:
                value = call()
            except BaseException as exc:  # noqa: BLE001 - handed over to ``ended``
                end(None, exc)
            else:
                end(value, None)

        try:
            submit(work)
        except RuntimeError:  # the interpreter is shutting down, or there are no more threads
            work()

    async def run_sized(self, count: int, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call that handles ``count`` messages: here if they are few, else in a thread.

        A thread costs more than a few messages: two switches of threads and two turns of the event loop.
        """
        if count <= MAX_INLINE_MESSAGES:
            return call(*args, **kwargs)
        return await self.run(call, *args, **kwargs)

    def close(self) -> None:
        self._closed = True
        self._commits.close()
        self._pool.shutdown(wait=True)
