"""Worker threads whose calls run to their end: cancelling the caller does not interrupt a call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from veen_core.errors import StateError

P = ParamSpec("P")
T = TypeVar("T")


async def finished(future: asyncio.Future[T]) -> T:
    """Wait for a result. If cancelled, raise CancelledError only when there is one."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError as exc:
            if not future.cancelled():
                cancelled = exc
        except Exception:  # noqa: BLE001 - it is raised below
            break
    if cancelled is not None:
        future.exception()  # mark it as retrieved: the cancellation takes precedence
        raise cancelled
    return future.result()


MAX_GIL_SECONDS: Final = 0.002
"""Longest time for which a thread that computes in Python should keep the event loop waiting."""
GIL_PAUSE_SECONDS: Final = 0.000_05
"""A pause in which a waiting thread takes the GIL; with a pause of 0 it wakes up too late to take it."""


class GilPauses:
    """Pauses of a thread that computes in Python, so that the event loop is not kept waiting.

    A thread that wants the GIL gets it 5 ms later if the holder never releases it. The event loop wants it
    several times to read one response.
    """

    __slots__ = ("_resumed",)

    def __init__(self) -> None:
        self._resumed = time.perf_counter()

    def pause_if_due(self) -> None:
        """Release the GIL if the last pause is 2 ms ago; call it after each message."""
        if time.perf_counter() - self._resumed > MAX_GIL_SECONDS:
            time.sleep(GIL_PAUSE_SECONDS)
            self._resumed = time.perf_counter()


MAX_INLINE_MESSAGES: Final = 4
"""Messages that are sealed or verified on the event loop, which they block for about a millisecond."""


class Workers:
    """A few threads for cryptography and files."""

    def __init__(self, count: int = 3) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="veen-client")
        self._closed = False

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``call`` in a thread. If cancelled, raise CancelledError only after the call has ended.

        A lock held around ``run`` is therefore held until the effects of the call are complete.
        """
        if self._closed:
            raise StateError("this connection is closed", action="connect again")
        loop = asyncio.get_running_loop()
        return await finished(loop.run_in_executor(self._pool, lambda: call(*args, **kwargs)))

    async def run_sized(self, count: int, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call that handles ``count`` messages: here if they are few, else in a thread.

        A thread costs more than a few messages: two switches of threads and two turns of the event loop.
        """
        if count <= MAX_INLINE_MESSAGES:
            return call(*args, **kwargs)
        return await self.run(call, *args, **kwargs)

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=True)
