"""ProofOfWork off the event loop that cancelling cannot tear apart: a call that has begun is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from veen_core.errors import StateError

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """A few threads for crypto and files."""

    def __init__(self, count: int = 3) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="veen-client")
        self._closed = False

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What ``call`` returns. If cancelled meanwhile, raises only once the call has ended.

        Whoever holds a lock around this keeps it until the call's effects are complete.
        """
        if self._closed:
            raise StateError("this connection is closed: connect again")
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._pool, lambda: call(*args, **kwargs))
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.wait((future,))
            except asyncio.CancelledError as exc:
                cancelled = exc
        if cancelled is not None:
            future.exception()  # seen; the cancellation goes first
            raise cancelled
        return future.result()

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=True)
