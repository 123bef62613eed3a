"""Looking ahead in a source of items, so that they can be sent in batches.

A fast source fills each batch. With a slow source, a batch contains the items that are available.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

T = TypeVar("T")
S = TypeVar("S")
MAX_READ_AHEAD: Final = 256
"""Items taken from an asynchronous source before they are asked for."""
MAX_HELD_BYTES: Final = 8 * 1_048_576
"""Bytes of items that are held at once, for this batch and the next one; one more item may exceed it."""


class _End:
    """Marks the end of the queue."""


class Lookahead(Generic[T]):
    """Items of a source that can be looked at several times until they are dropped."""

    def __init__(
        self,
        items: Iterator[T] | None,
        queue: asyncio.Queue[T | _End | BaseException] | None,
        size_of: Callable[[T], int],
    ) -> None:
        self._items = items
        self._queue = queue
        self._size_of = size_of
        self._held_bytes = 0
        self._failure: BaseException | None = None
        self._reader: asyncio.Task[None] | None = None
        self._held: deque[T] = deque()

    @classmethod
    def mapped(
        cls, source: Iterable[S] | AsyncIterable[S], make: Callable[[S], T], size_of: Callable[[T], int]
    ) -> Lookahead[T]:
        """Return a lookahead over ``make(item)`` for each item of a plain or an async iterable."""
        if isinstance(source, Iterable):
            return cls(map(make, source), None, size_of)
        made: Lookahead[T] = cls(None, asyncio.Queue(MAX_READ_AHEAD), size_of)
        made._reader = asyncio.create_task(made._read(source, make))
        return made

    async def _read(self, source: AsyncIterable[S], make: Callable[[S], T]) -> None:
        assert self._queue is not None
        last: _End | BaseException = _End()
        try:
            async for item in source:
                await self._queue.put(make(item))
        except asyncio.CancelledError:
            raise
        except BaseException as exc:  # noqa: BLE001 - raised again where the items are taken
            last = exc
        await self._queue.put(last)

    async def peek(self, count: int) -> list[T]:
        """Return up to ``count`` of the next items; waits for the first one. Empty only at the end.

        An error of the source is raised once all items before it were dropped.
        """
        self._take(count)
        if not self._held and self._queue is not None:
            self._receive(await self._queue.get())
            self._take(count)
        if not self._held and self._failure is not None:
            raise self._failure
        return [self._held[n] for n in range(min(count, len(self._held)))]

    def peek_after(self, count: int, first: int) -> list[T]:
        """Return up to ``count`` items after the ``first`` ones, without waiting for the source."""
        self._take(first + count)
        return [self._held[n] for n in range(first, min(first + count, len(self._held)))]

    def drop(self, count: int) -> None:
        """Drop the first ``count`` items."""
        for _ in range(count):
            self._held_bytes -= self._size_of(self._held.popleft())

    def _take(self, count: int) -> None:
        while self._has_room(count) and self._items is not None:
            try:
                self._hold(next(self._items))
            except StopIteration:
                self._items = None
            except Exception as exc:  # noqa: BLE001 - raised by ``peek``, after the items before it
                self._items, self._failure = None, exc
        while self._queue is not None and self._has_room(count) and not self._queue.empty():
            self._receive(self._queue.get_nowait())

    def _has_room(self, count: int) -> bool:
        return len(self._held) < count and self._held_bytes < MAX_HELD_BYTES

    def _hold(self, item: T) -> None:
        self._held.append(item)
        self._held_bytes += self._size_of(item)

    def _receive(self, item: T | _End | BaseException) -> None:
        if isinstance(item, _End):
            self._queue = None
        elif isinstance(item, BaseException):
            self._queue, self._failure = None, item
        else:
            self._hold(item)

    async def aclose(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
