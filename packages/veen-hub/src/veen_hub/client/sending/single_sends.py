"""Single messages of one label: those that are sent at the same time leave as one batch.

The first message leaves at once. Messages that come while it is on its way gather and leave together when its
receipt has arrived: a label has one sender at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from veen_core.cap import CapToken
from veen_core.errors import StateError, VeenError
from veen_core.receipt import Receipt
from veen_core.rejection import EPOCH
from veen_hub.client.errors import BoundsReached, CapRefused, Refused, Unreachable
from veen_hub.client.sending.body import Draft

if TYPE_CHECKING:
    from veen_hub.client.sending.outbox import Outbox


class SingleSend(NamedTuple):
    """One message, and whoever waits for its receipt."""

    draft: Draft
    token: CapToken | None
    receipt: asyncio.Future[Receipt]


class SingleSends:
    """The single messages of one label."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._waiting: deque[SingleSend] = deque()
        self._under_way: list[SingleSend] = []
        self._sending: asyncio.Task[None] | None = None

    async def send(self, draft: Draft, token: CapToken | None) -> Receipt:
        """Send one message; raises why it was not delivered.

        If this is cancelled before the message has left, the message does not leave.
        """
        receipt: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting.append(SingleSend(draft, token, receipt))
        receipt.add_done_callback(self._end_if_unwanted)
        self._start()
        return await receipt

    async def close(self) -> None:
        """Stop sending; a message under way stays pending."""
        closed = StateError("this connection was closed before the receipt arrived", action="connect again")
        for one in (*self._under_way, *self._waiting):
            if not one.receipt.done():
                one.receipt.set_exception(closed)
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait((self._sending,))

    def _start(self) -> None:
        if self._sending is None and self._waiting:
            self._sending = asyncio.create_task(self._send_waiting())
            self._sending.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = task.exception() if not task.cancelled() else None
        for one in self._under_way:
            if error is not None and not one.receipt.done():
                one.receipt.set_exception(error)
        self._sending, self._under_way = None, []
        self._start()

    def _end_if_unwanted(self, receipt: asyncio.Future[Receipt]) -> None:
        """Stop a batch if all who waited for it have been cancelled; its messages stay pending."""
        unwanted = all(one.receipt.cancelled() for one in self._under_way)
        if receipt.cancelled() and self._under_way and unwanted and self._sending is not None:
            self._sending.cancel()

    async def _send_waiting(self) -> None:
        """Send all that wait with the same token as the first."""
        wanted = [one for one in self._waiting if not one.receipt.done()]
        self._waiting.clear()
        for one in wanted:
            fits = len(self._under_way) < self._outbox.log.connection.batch
            (self._under_way if fits and one.token == wanted[0].token else self._waiting).append(one)
        if self._under_way:
            await self._send_batch(self._under_way)

    async def _send_batch(self, batch: Sequence[SingleSend]) -> None:
        receipts, failure, pending = await self._outbox.send_together(
            [one.draft for one in batch], batch[0].token
        )
        for one, receipt in zip(batch, receipts, strict=False):
            if not one.receipt.done():
                one.receipt.set_result(receipt)
        failed = batch[len(receipts) :]
        if failure is None or not failed:
            return
        if pending or len(failed) == 1 or concerns_all(failure):
            for one in failed:
                if not one.receipt.done():
                    one.receipt.set_exception(failure)
            return
        for one in failed:  # one of them is at fault, and the others must not suffer
            await self._send_batch([one])


def concerns_all(failure: VeenError) -> bool:
    """Return whether a failure is not the fault of one message: no other one would fare better now."""
    if isinstance(failure, Refused) and failure.detail_enum == EPOCH.detail:
        return True
    return isinstance(failure, Unreachable | CapRefused | BoundsReached)
