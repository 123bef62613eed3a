"""Access to the log for everything but submits: actions in the sequencer, reads off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from veen_core.errors import VeenError
from veen_hub.pipeline.sequencer import Sequencer, Ticket
from veen_storage import Batch

T = TypeVar("T")


class LogAccess:
    """Runs actions in the sequencer and reads in reader threads; used from the event loop only."""

    def __init__(self, sequencer: Sequencer, readers: ThreadPoolExecutor) -> None:
        self._sequencer = sequencer
        self._readers = readers

    async def act(self, action: Callable[[Batch], T], *, reads: bool = False, ends_batch: bool = False) -> T:
        """Run one action in the sequencer; its result is durable when this returns.

        An action with ``reads`` set changes nothing, and runs even while the hub cannot acknowledge messages.
        One with ``ends_batch`` is the last of its batch.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def answer(tickets: list[Ticket[Any]]) -> None:
            loop.call_soon_threadsafe(done.set_result, tickets[0].outcome)

        self._sequencer.put([Ticket(action, 0, reads, ends_batch=ends_batch)], answer)
        outcome = await asyncio.shield(done)
        if isinstance(outcome, VeenError):
            raise outcome
        return outcome  # type: ignore[no-any-return]  # the action returned a T

    async def read(self, read: Callable[[], T]) -> T:
        """Run work that may block on the disk, and does not change the log, in a reader thread."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, read)
