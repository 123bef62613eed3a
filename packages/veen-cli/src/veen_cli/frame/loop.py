"""The event loop of commands that talk to a hub."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, as ``asyncio.run`` does, but keep its result out of the task.

    At its end ``asyncio.run`` looks up its signal handler, and Python formats the task for an error message
    that is never shown. With an attachment of 60 MB as the task's result, that took longer than the download.
    """
    results: list[T] = []

    async def keep_result() -> None:
        results.append(await work)

    asyncio.run(keep_result())
    return results[0]
