"""Producing the next item while the consumer handles this one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Ended:
    """The source has no more items: it has ended, or it has raised ``error``."""

    error: BaseException | None = None


async def one_ahead(source: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Yield the items of ``source``, which runs in a task of its own and is at most one item ahead.

    An error comes after the items before it. When the consumer closes this generator, the task is cancelled
    and ``source`` is closed before ``aclose`` returns.
    """
    ready: asyncio.Queue[tuple[T] | _Ended] = asyncio.Queue()
    wanted = asyncio.Semaphore(1)

    async def produce() -> None:
        ended = _Ended()
        try:
            async with aclosing(source):
                await wanted.acquire()
                async for item in source:
                    ready.put_nowait((item,))
                    await wanted.acquire()
        except BaseException as exc:
            ended = _Ended(exc)
            raise
        finally:
            ready.put_nowait(ended)

    producer = asyncio.create_task(produce(), name="veen-one-ahead")
    try:
        while not isinstance(item := await ready.get(), _Ended):
            wanted.release()
            yield item[0]
        if item.error is not None:
            raise item.error
    finally:
        producer.cancel()
        await asyncio.gather(producer, return_exceptions=True)
