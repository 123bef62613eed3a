"""Batches sealed ahead: those of one label that follow the batch on its way (H14).

While a batch is on its way, the next one is sealed. When the answer has arrived, the next batch is made
durable and leaves at once; the receipts of the answer are verified while the hub works on it. A hub accepts
each client_seq in order, so a batch never leaves before the answer to the one before it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from veen_core.errors import VeenError
from veen_hub.client.sending.body import MessageDraft
from veen_hub.client.sending.sealing import SealedBatch

if TYPE_CHECKING:
    from veen_hub.client.sending.outbox import Outbox

MAX_BATCHES: Final = 8
"""Most batches that are sent before their receipts are handed to the caller; fewer if another operation waits
for its turn on the label."""

Following = Callable[[int], Sequence[MessageDraft]]
"""``following(n)`` returns the drafts after the first ``n``, as far as they are known already."""


class BatchesAhead:
    """The batches after ``first``; the outbox, which has the label's turn, sends one after the other."""

    def __init__(self, outbox: Outbox, first: SealedBatch, following: Following, delivered: int) -> None:
        """``delivered``: how many drafts came before ``first``; ``following`` counts them too."""
        self._outbox = outbox
        self._following = following
        self._sent = delivered
        self._batches = 0
        self._sealing: asyncio.Task[SealedBatch] | None = None
        self._seal_after(first)

    def _seal_after(self, batch: SealedBatch) -> None:
        """Start to seal the batch after ``batch``, unless the client_id would reach its bounds."""
        log, count = self._outbox.log, len(batch.sealed)
        self._sent += count
        self._batches += 1
        drafts = self._following(self._sent)
        slot = batch.slot.after(count, log.client.size)
        last = slot.first + len(drafts) - 1
        if drafts and last <= log.connection.bounds.max_msgs_per_client_id_per_label:
            self._sealing = asyncio.create_task(self._outbox.seal(slot, drafts))
        else:
            self._sealing = None

    async def release(self) -> list[bytes]:
        """Make the next batch durable and return its messages, which may leave; empty if there is none."""
        log = self._outbox.log
        if self._batches == MAX_BATCHES or self._outbox.is_awaited:
            return []
        if log.client.must_rotate(log.connection.time.now()):
            return []
        try:
            if (batch := await self.sealed()) is None:
                return []
            await self._outbox.make_pending(batch)  # the commit point
        except VeenError:  # raised again when the batch is the next one
            return []
        self._seal_after(batch)
        return [one.wire for one in batch.sealed]

    async def sealed(self) -> SealedBatch | None:
        """Return the batch that is sealed and has not left, if there is one."""
        return await self._sealing if self._sealing is not None else None

    async def close(self) -> None:
        if self._sealing is not None:
            self._sealing.cancel()
            with contextlib.suppress(asyncio.CancelledError, VeenError):
                await self._sealing
