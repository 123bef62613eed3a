"""Uploads under way: each has a thread that writes what arrives, so there are only so many (H17)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from veen_core.errors import ApiError
from veen_core.rejection import Code

T = TypeVar("T")

MOST: Final = 64


class Uploads:
    """Used from the event loop."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(MOST, thread_name_prefix="veen-upload")
        self._open = 0

    def start(self, write: Callable[[], T]) -> asyncio.Future[T]:
        """``write`` in a thread of its own, or a refusal: nobody queues behind slow uploads."""
        if self._open >= MOST:
            raise ApiError(Code.UNAVAILABLE, f"{MOST} attachments are being uploaded already", retry_after=1)
        self._open += 1
        writing = asyncio.get_running_loop().run_in_executor(self._pool, write)
        writing.add_done_callback(self._ended)
        return writing

    def _ended(self, _writing: asyncio.Future[T]) -> None:
        self._open -= 1

    def close(self) -> None:
        self._pool.shutdown()
