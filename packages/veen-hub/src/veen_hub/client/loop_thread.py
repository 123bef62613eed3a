"""An event loop in a thread, for callers that do not use asyncio; Ctrl-C cancels the call under way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, Final, Protocol, TypeVar

from veen_core.errors import StateError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
SIGNAL_POLL_SECONDS: Final = 0.25
"""Longest time until a waiting thread notices a signal that arrived just before it began to wait."""


class ClosableIterator(Protocol[T_co]):
    """An async iterator with ``aclose``: an async generator, or a ``Sending``."""

    def __aiter__(self) -> AsyncIterator[T_co]: ...
    async def __anext__(self) -> T_co: ...
    async def aclose(self) -> None: ...


class _End:
    """Marks the end of an iterator."""


async def _next(items: ClosableIterator[T]) -> T | _End:
    try:
        return await items.__anext__()
    except StopAsyncIteration:
        return _End()


def _wait(event: threading.Event) -> None:
    while not event.wait(SIGNAL_POLL_SECONDS):
        pass


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._calls: set[asyncio.Task[Any]] = set()
        """Calls under way; used on the event loop only."""
        self._closer: threading.Thread | None = None
        """The thread that closes the connection; calls of other threads are refused from then on."""
        self._thread = threading.Thread(target=self._loop.run_forever, name="veen-blocking", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` to its end. Ctrl-C cancels it, and is raised once it has ended."""
        caller = threading.current_thread()
        refused = self.closed or self._is_closed_for(caller)
        if refused or caller is self._thread:
            work.close()
            if refused:
                raise StateError("this connection is closed", action="connect again")
            raise StateError(
                "the blocking client was called from its own event loop, where it would wait for ever",
                action="use veen_hub.client there",
            )
        tasks: list[asyncio.Task[T]] = []
        ended = threading.Event()

        def start() -> None:
            tasks.append(self._loop.create_task(work))
            self._calls.add(tasks[0])
            tasks[0].add_done_callback(self._calls.discard)
            tasks[0].add_done_callback(lambda _: ended.set())
            if self._is_closed_for(caller):  # closed after the check above
                tasks[0].cancel()

        def cancel() -> None:
            if not tasks:
                start()  # the interrupt came before the loop was asked to start it
            tasks[0].cancel()

        try:
            self._loop.call_soon_threadsafe(start)
            _wait(ended)
        except BaseException:
            self._loop.call_soon_threadsafe(cancel)
            _wait(ended)
            if not tasks[0].cancelled():
                tasks[0].exception()  # mark it as retrieved: the interrupt takes precedence
            raise
        if tasks[0].cancelled() and self._is_closed_for(caller):
            raise StateError("this connection was closed during the call", action="connect again")
        return tasks[0].result()

    def _is_closed_for(self, caller: threading.Thread) -> bool:
        return self._closer is not None and caller is not self._closer

    def cancel_calls(self) -> None:
        """Cancel the calls of other threads, and refuse new ones: this thread closes the connection."""
        self._closer = threading.current_thread()
        self.run(self._cancel_calls())

    async def _cancel_calls(self) -> None:
        others = self._calls - {asyncio.current_task()}
        for call in others:
            call.cancel()
        if others:
            await asyncio.wait(others)

    def each(self, items: ClosableIterator[T]) -> Iterator[T]:
        """Iterate over an async iterator, one item at a time."""
        try:
            while True:
                item = self.run(_next(items))
                if isinstance(item, _End):
                    return
                yield item
        finally:
            caller = threading.current_thread()
            if not self.closed and not self._is_closed_for(caller):  # closing the loop closes all iterators
                self.run(items.aclose())

    @property
    def closed(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        """Close all async generators and end the thread."""
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
