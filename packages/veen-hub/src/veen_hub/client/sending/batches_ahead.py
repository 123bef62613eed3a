"""The batches of one label that follow the one on its way (H14).

While a batch is on its way, the next ones are sealed. When the answer has arrived, the next batch is made
durable and leaves at once; the receipts of the answer are verified while the hub works on it. A hub accepts
each client_seq in order, so a batch never leaves before the answer to the one before it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from veen_core.errors import VeenError
from veen_hub.client.sending.body import Draft
from veen_hub.client.sending.sealing import SealedBatch, Slot

if TYPE_CHECKING:
    from veen_hub.client.sending.outbox import Outbox

MAX_BATCHES: Final = 8
"""Batches that leave one after the other before their receipts are handed over; fewer if another operation
waits for its turn on the label."""

MAX_SEALED: Final = 2
"""Batches that are sealed before they leave. With the second one, sealing fills the time in which an answer
is decoded, the next batch is written to disk, and the hub reads it."""

Following = Callable[[int], Sequence[Draft]]
"""Returns the next drafts after the first ones, whose number is given, without waiting for them."""


class BatchesAhead:
    """The batches after ``first``; the outbox, which has the label's turn, sends one after the other."""

    def __init__(self, outbox: Outbox, first: SealedBatch, following: Following, delivered: int) -> None:
        """``delivered``: how many drafts before ``first`` have left already; ``following`` counts them."""
        self._outbox = outbox
        self._following = following
        self._sent = delivered
        self._left = 1
        """Batches that have left, with the first one."""
        self._sealing: deque[asyncio.Task[SealedBatch]] = deque()
        """The batches that have not left, in order; the last one may still be sealed."""
        self._take(first.slot, len(first.sealed))
        self._seal_next()

    def _take(self, slot: Slot, count: int) -> None:
        self._slot, self._count = slot, count
        self._sent += count

    def _seal_next(self) -> None:
        """Start to seal the next batch, unless enough are sealed, or the client_id would reach its bounds."""
        log, waiting = self._outbox.log, len(self._sealing)
        if waiting == MAX_SEALED or self._left + waiting > MAX_BATCHES:
            return
        drafts = self._following(self._sent)
        if waiting and len(drafts) < log.connection.batch:  # it may still grow
            return
        slot = self._slot.after(self._count, log.client.size)
        last = slot.first + len(drafts) - 1
        if drafts and last <= log.connection.bounds.max_msgs_per_client_id_per_label:
            self._take(slot, len(drafts))
            task = asyncio.create_task(self._outbox.seal(slot, drafts))
            task.add_done_callback(self._sealed)
            self._sealing.append(task)

    def _sealed(self, task: asyncio.Task[SealedBatch]) -> None:
        if not task.cancelled() and task.exception() is None:
            self._seal_next()

    async def release(self) -> list[bytes]:
        """Make the next batch durable and return its messages, which may leave; empty if there is none."""
        log = self._outbox.log
        if self._left == MAX_BATCHES or self._outbox.is_awaited:
            return []
        if log.client.must_rotate(log.connection.time.now()):
            return []
        try:
            if (batch := await self.sealed()) is None:
                return []
            await self._outbox.make_pending(batch)  # the commit point
        except VeenError:  # raised again when the batch is the next one
            return []
        self._left += 1
        self._sealing.popleft()
        self._seal_next()
        return [one.wire for one in batch.sealed]

    async def sealed(self) -> SealedBatch | None:
        """Return the next batch that has not left, once it is sealed, if there is one."""
        return await self._sealing[0] if self._sealing else None

    async def close(self) -> None:
        tasks = tuple(self._sealing)
        self._left = MAX_BATCHES + 1  # a batch that is sealed from now on is the last one
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError, VeenError):
                await task
