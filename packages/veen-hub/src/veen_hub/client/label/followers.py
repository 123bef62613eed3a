"""How far the followers of a label have read, so that a sender can wait for its own message (§9).

A receipt beyond the verified prefix costs its sender two proofs, if other clients' messages lie in between,
and then its follower a proof for each page within the prefix. If a follower is about to read the message
anyway, waiting for the follower costs neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MAX_ENTRIES_BEHIND: Final = 512
"""A follower that is further behind is not waited for."""
MAX_WAIT_SECONDS: Final = 0.1
"""Longest wait for a follower; then the receipt is verified by proofs."""


class Followers:
    """The live streams of one label that wait for entries."""

    def __init__(self) -> None:
        self.count = 0
        """Live streams that are open, also those whose consumer is at work."""
        self._read: dict[object, int] = {}
        self._waiting: dict[asyncio.Future[None], int] = {}

    @contextmanager
    def follower(self) -> Iterator[object]:
        """Register a follower until the block ends; yields the key that ``advance`` and ``pause`` take."""
        key = object()
        self.count += 1
        try:
            yield key
        finally:
            self.count -= 1
            self._read.pop(key, None)

    def pause(self, key: object) -> None:
        """Note that a follower's consumer is at work: messages that it sends do not wait for the follower."""
        self._read.pop(key, None)

    def advance(self, key: object, seq: int) -> None:
        """Note that a follower has verified all entries up to ``seq`` and waits for more."""
        self._read[key] = seq
        for waiter, wanted in self._waiting.items():
            if wanted <= seq and not waiter.done():
                waiter.set_result(None)

    async def reached(self, seq: int) -> None:
        """Wait up to ``MAX_WAIT_SECONDS`` for a follower to verify entry ``seq``, if one is close to it."""
        position = max(self._read.values(), default=0)
        if position >= seq or position < seq - MAX_ENTRIES_BEHIND or not self._read:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = seq
        try:
            await asyncio.wait((waiter,), timeout=MAX_WAIT_SECONDS)
        finally:
            del self._waiting[waiter]
            waiter.cancel()
