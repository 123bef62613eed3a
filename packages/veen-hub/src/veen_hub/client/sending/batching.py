"""What is to be sent, a few at a time: whatever is there of a slow source, a full batch of a fast one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
S = TypeVar("S")
_READ_AHEAD = 256


class _End:
    """After the last item."""


class Lookahead(Generic[T]):
    """Items taken from a source and not yet dropped: what was not delivered can be delivered again."""

    def __init__(
        self, items: Iterator[T] | None, queue: asyncio.Queue[T | _End | BaseException] | None
    ) -> None:
        self._items = items
        self._queue = queue
        self._pump: asyncio.Task[None] | None = None
        self._held: deque[T] = deque()

    @classmethod
    def of(cls, items: Iterable[T]) -> Lookahead[T]:
        return cls(iter(items), None)

    @classmethod
    def mapped(cls, source: Iterable[S] | AsyncIterable[S], make: Callable[[S], T]) -> Lookahead[T]:
        """From either kind of iterable."""
        if isinstance(source, Iterable):
            return cls(map(make, source), None)
        chunks: Lookahead[T] = cls(None, asyncio.Queue(_READ_AHEAD))
        chunks._pump = asyncio.create_task(chunks._fill(source, make))
        return chunks

    async def _fill(self, source: AsyncIterable[S], make: Callable[[S], T]) -> None:
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
        """The next items, at least one and at most ``count``; none at the end."""
        self._take(count)
        if not self._held and self._queue is not None:
            self._receive(await self._queue.get())
            self._take(count)
        return [self._held[n] for n in range(min(count, len(self._held)))]

    def waiting(self, count: int) -> list[T]:
        """What follows the items just peeked, as far as it is there."""
        self._take(2 * count)
        return [self._held[n] for n in range(count, min(2 * count, len(self._held)))]

    def drop(self, count: int) -> None:
        """These are done."""
        for _ in range(count):
            self._held.popleft()

    def _take(self, count: int) -> None:
        while len(self._held) < count and self._items is not None:
            try:
                self._held.append(next(self._items))
            except StopIteration:
                self._items = None
        while self._queue is not None and len(self._held) < count and not self._queue.empty():
            self._receive(self._queue.get_nowait())

    def _receive(self, item: T | _End | BaseException) -> None:
        if isinstance(item, _End):
            self._queue = None
        elif isinstance(item, BaseException):
            self._queue = None
            raise item
        else:
            self._held.append(item)

    async def aclose(self) -> None:
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
