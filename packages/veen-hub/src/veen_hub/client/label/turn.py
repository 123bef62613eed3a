"""A lock whose holder can see whether another task waits for it."""

from __future__ import annotations

import asyncio
from typing import Literal


class Turn(asyncio.Lock):
    """A lock that counts the tasks that wait for it, in the order in which they get it."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0

    async def acquire(self) -> Literal[True]:
        self.waiting += 1
        try:
            return await super().acquire()
        finally:
            self.waiting -= 1

    @property
    def is_free(self) -> bool:
        """Whether ``acquire`` returns without waiting."""
        return not self.waiting and not self.locked()
