"""Attachment uploads in progress, bounded in number: each has a thread that writes the body (H17)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from veen_core.errors import ApiError
from veen_core.rejection import Code
from veen_hub.pipeline.threads import in_own_thread

T = TypeVar("T")

MAX_UPLOADS: Final = 64


class Uploads:
    """Starts uploads, at most ``MAX_UPLOADS`` at a time; used from the event loop only."""

    def __init__(self) -> None:
        self._open: set[asyncio.Future[object]] = set()

    def start(self, write: Callable[[], T]) -> asyncio.Future[T]:
        """Run ``write`` in a new thread; raise E.UNAVAILABLE rather than queue behind slow uploads."""
        if len(self._open) >= MAX_UPLOADS:
            message = f"{MAX_UPLOADS} attachments are being uploaded already"
            raise ApiError(Code.UNAVAILABLE, message, retry_after=1)
        try:
            writing = in_own_thread(write, "veen-upload")
        except RuntimeError:
            raise ApiError(Code.UNAVAILABLE, "no thread is available for an upload", retry_after=5) from None
        self._open.add(writing)  # type: ignore[arg-type]  # only counted
        writing.add_done_callback(self._open.discard)
        return writing

    async def drain(self) -> None:
        """Wait for the threads, which end once their requests have ended."""
        if self._open:
            await asyncio.wait(self._open)
