"""Where commands that talk to a hub wait: one event loop from beginning to end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """As ``asyncio.run``, whose task holds no result.

    When it ends it looks up the signal handler it had set, and Python, to say that this is no number, writes
    out the task with what it returned: of an attachment of 60 MB, that took longer than fetching it.
    """
    found: list[T] = []

    async def worked() -> None:
        found.append(await work)

    asyncio.run(worked())
    return found[0]
