"""Single messages of one label: those that are sent at the same time leave as one batch.

A label has one sender at a time. Messages that come while another one is on its way wait, and leave together
when its receipt has arrived.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from veen_core.cap import CapToken
from veen_core.errors import DecodeError, OpenError, StateError, VeenError
from veen_core.receipt import Receipt
from veen_hub.client.errors import BadRequest, Conflict, TooLarge
from veen_hub.client.sending.body import Draft

if TYPE_CHECKING:
    from veen_hub.client.sending.outbox import Outbox

TURNS_TO_REACT: Final = 3
"""Turns of the event loop in which the sender of a failed message can cancel those that were sent with it.
Its task wakes up, ends, and calls back."""


class SingleSend(NamedTuple):
    """One message, and the future of its receipt; a sender that no longer waits has cancelled the future."""

    draft: Draft
    token: CapToken | None
    receipt: asyncio.Future[Receipt]

    @property
    def is_wanted(self) -> bool:
        return not self.receipt.done()

    def fail(self, failure: BaseException) -> None:
        if self.is_wanted:
            self.receipt.set_exception(failure)


class SingleSends:
    """The single messages of one label."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._waiting: deque[SingleSend] = deque()
        self._under_way: list[SingleSend] = []
        self._sending: asyncio.Task[None] | None = None
        self._closed = False

    async def send(self, draft: Draft, token: CapToken | None) -> Receipt:
        """Send one message; raises why it was not delivered.

        If this is cancelled before the message has left, the message does not leave.
        """
        if self._closed:
            raise StateError("this connection is closed", action="connect again")
        receipt: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting.append(SingleSend(draft, token, receipt))
        self._start()
        try:
            return await receipt
        except asyncio.CancelledError:
            self._stop_if_unwanted()
            raise

    async def close(self) -> None:
        """Stop sending; a message under way stays pending."""
        self._closed = True
        closed = StateError("this connection was closed before the receipt arrived", action="connect again")
        for one in (*self._under_way, *self._waiting):
            one.fail(closed)
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait((self._sending,))

    def _start(self) -> None:
        if self._sending is None and any(one.is_wanted for one in self._waiting):
            self._sending = asyncio.create_task(self._send_waiting())
            self._sending.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        for one in self._under_way:
            if task.cancelled():
                one.receipt.cancel()
            elif (error := task.exception()) is not None:
                one.fail(error)
        self._sending, self._under_way = None, []
        self._start()

    def _stop_if_unwanted(self) -> None:
        """Stop sending once no sender waits for it any more; a message that has left stays pending."""
        concerned = self._under_way or self._waiting
        if self._sending is not None and not any(one.is_wanted for one in concerned):
            self._sending.cancel()

    async def _send_waiting(self) -> None:
        """Send all that wait with the same token as the first."""
        delivery = await self._outbox.send_together(self._take)
        batch = self._under_way
        failure, failed = delivery.failure, self._conclude(batch, delivery.receipts)
        if failure is None:
            return
        if not batch:  # the label could not be used at all
            for one in self._waiting:
                one.fail(failure)
            return
        if delivery.unanswered or len(failed) == 1 or not is_own_fault(failure):
            for one in failed:
                one.fail(failure)
            return
        for one in failed:  # one of them is at fault: the others are sent without it
            await self._send_alone(one)
            for _ in range(TURNS_TO_REACT):
                await asyncio.sleep(0)

    async def _send_alone(self, one: SingleSend) -> None:
        delivery = await self._outbox.send_together(lambda: ([one.draft] if one.is_wanted else [], one.token))
        if self._conclude([one], delivery.receipts) and delivery.failure is not None:
            one.fail(delivery.failure)

    def _take(self) -> tuple[Sequence[Draft], CapToken | None]:
        """Choose the messages to send now; those that were cancelled meanwhile are left out."""
        wanted = [one for one in self._waiting if one.is_wanted]
        self._waiting.clear()
        for one in wanted:
            fits = len(self._under_way) < self._outbox.log.connection.batch
            (self._under_way if fits and one.token == wanted[0].token else self._waiting).append(one)
        return [one.draft for one in self._under_way], wanted[0].token if wanted else None

    @staticmethod
    def _conclude(batch: Sequence[SingleSend], receipts: Sequence[Receipt]) -> Sequence[SingleSend]:
        """Hand out receipts, in order; returns the messages without one."""
        for one, receipt in zip(batch, receipts, strict=False):
            if one.is_wanted:
                one.receipt.set_result(receipt)
        return batch[len(receipts) :]


Take = Callable[[], tuple[Sequence[Draft], CapToken | None]]
"""Chooses the drafts to send and their token, at the moment when the label can take them."""


def is_own_fault(failure: VeenError) -> bool:
    """Return whether a failure concerns the content of one message, and the others may be accepted."""
    return isinstance(failure, TooLarge | BadRequest | Conflict | DecodeError | OpenError)
