"""Single messages of one label: those that are sent at the same time leave as one batch.

A label has one sender at a time. Messages that come while another one is on its way wait, and leave together
when its receipt has arrived.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from veen_core.cap import CapToken
from veen_core.errors import DecodeError, OpenError, StateError, VeenError
from veen_core.receipt import Receipt
from veen_hub.client.errors import BadRequest, Conflict, TooLarge
from veen_hub.client.sending.body import MessageDraft
from veen_hub.client.sending.settling import SendOutcome

if TYPE_CHECKING:
    from veen_hub.client.sending.outbox import BatchDelivery, Outbox
    from veen_hub.client.sending.shared_sends import SendGroup, SharedSends

MAX_BATCH_WHILE_FOLLOWING: Final = 32
"""Most messages of a batch if this client also follows the stream: readers answer one small batch while the
next one is on its way."""
TURNS_TO_REACT: Final = 3
"""Turns of the event loop between a failure and the next attempt. In these turns the task of the failed
message wakes up, ends, and calls back, and its caller can cancel the other messages."""


class SingleSend(NamedTuple):
    """One message, and the future of its receipt; a sender that no longer waits has cancelled the future."""

    draft: MessageDraft
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

    def __init__(self, outbox: Outbox, shared: SharedSends) -> None:
        self.outbox = outbox
        self._shared = shared
        self._waiting: deque[SingleSend] = deque()
        self._under_way: list[SingleSend] = []
        self._is_busy = False
        """Whether messages are being sent, in a group with other labels or without one."""
        self._group: SendGroup | None = None
        """The group that the message under way is sent with."""
        self._sending: asyncio.Task[None] | None = None
        """The task that sends this label's messages without a group."""
        self._closed = False

    async def send(self, draft: MessageDraft, token: CapToken | None) -> Receipt:
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

    def stop(self) -> None:
        """Fail all messages and take no more; a message under way stays pending."""
        self._closed = True
        closed = StateError("this connection was closed before the receipt arrived", action="connect again")
        for one in (*self._under_way, *self._waiting):
            one.fail(closed)

    async def close(self) -> None:
        """Stop, and wait until the task that sends has ended."""
        self.stop()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait((self._sending,))

    @property
    def is_wanted(self) -> bool:
        """Whether a sender waits for the messages under way or, if there are none, for the next ones."""
        return any(one.is_wanted for one in self._under_way or self._waiting)

    def _start(self) -> None:
        if not self._is_busy and any(one.is_wanted for one in self._waiting):
            self._is_busy = True
            self._shared.add(self)

    def _stop_if_unwanted(self) -> None:
        """Stop sending once no sender waits for it any more; a message that has left stays pending."""
        if self._group is not None:
            self._group.stop_if_unwanted()
        elif self._sending is not None and not self.is_wanted:
            self._sending.cancel()

    # --- together with other labels

    def begin(self, group: SendGroup, max_bytes: int) -> SingleSend | None:
        """Take the waiting message for ``group``; None if several wait, or if the message is large."""
        wanted = [one for one in self._waiting if one.is_wanted]
        if len(wanted) != 1 or len(wanted[0].draft.body) > max_bytes:
            return None
        self._waiting.clear()
        self._under_way, self._group = wanted, group
        return wanted[0]

    def end(self, outcome: Receipt | Exception | None) -> None:
        """End a sending with a receipt, with a failure, or, if it was cancelled, with None."""
        for one in self._under_way:
            if isinstance(outcome, Exception):
                one.fail(outcome)
            elif outcome is None:
                one.receipt.cancel()
            elif one.is_wanted:
                one.receipt.set_result(outcome)
        self._under_way, self._group, self._is_busy = [], None, False
        self._start()

    # --- without a group

    def start_alone(self) -> None:
        """Start a task that sends the waiting messages without a group."""
        self._waiting.extendleft(self._under_way)
        self._under_way = []
        self._run(lambda: self.outbox.send_together(self._take))

    def continue_alone(self, answered: SendOutcome) -> None:
        """Start a task that handles the answer to the message under way and then releases the turn."""
        (one,) = self._under_way
        task = self._run(lambda: self.outbox.continue_alone(one.draft, one.token, answered))
        task.add_done_callback(lambda _: self.outbox.turn.release())

    def _run(self, deliver: Deliver) -> asyncio.Task[None]:
        self._group = None
        self._sending = asyncio.create_task(self._send_waiting(deliver))
        self._sending.add_done_callback(self._ended)
        return self._sending

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._sending = None
        failure = task.exception() if not task.cancelled() else None
        self.end(failure if isinstance(failure, Exception) else None)

    async def _send_waiting(self, deliver: Deliver) -> None:
        """Send messages with the same token, and hand over their outcomes."""
        delivery = await deliver()
        batch = self._under_way
        failure, failed = delivery.failure, self._conclude(batch, delivery.receipts)
        if failure is None:
            return
        if not batch:  # failed before a message was taken
            for one in self._waiting:
                one.fail(failure)
            return
        if delivery.unanswered or len(failed) == 1 or not is_own_fault(failure):
            for one in failed:
                one.fail(failure)
            return
        for one in failed:  # one message caused the refusal: send each by itself
            await self._send_alone(one)
            for _ in range(TURNS_TO_REACT):
                await asyncio.sleep(0)

    async def _send_alone(self, one: SingleSend) -> None:
        delivery = await self.outbox.send_together(lambda: ([one.draft] if one.is_wanted else [], one.token))
        if self._conclude([one], delivery.receipts) and delivery.failure is not None:
            one.fail(delivery.failure)

    def _take(self) -> tuple[Sequence[MessageDraft], CapToken | None]:
        """Choose the messages to send now; those that were cancelled meanwhile are left out."""
        wanted = [one for one in self._waiting if one.is_wanted]
        self._waiting.clear()
        log = self.outbox.log
        most = (
            min(MAX_BATCH_WHILE_FOLLOWING, log.connection.batch)
            if log.followers.count
            else log.connection.batch
        )
        for one in wanted:
            fits = len(self._under_way) < most
            (self._under_way if fits and one.token == wanted[0].token else self._waiting).append(one)
        return [one.draft for one in self._under_way], wanted[0].token if wanted else None

    @staticmethod
    def _conclude(batch: Sequence[SingleSend], receipts: Sequence[Receipt]) -> Sequence[SingleSend]:
        """Hand out receipts, in order; returns the messages without one."""
        for one, receipt in zip(batch, receipts, strict=False):
            if one.is_wanted:
                one.receipt.set_result(receipt)
        return batch[len(receipts) :]


Deliver = Callable[[], Awaitable["BatchDelivery"]]
Take = Callable[[], tuple[Sequence[MessageDraft], CapToken | None]]
"""Chooses the drafts to send and their token, at the moment when the label can take them."""


def is_own_fault(failure: VeenError) -> bool:
    """Return whether a failure concerns one message's content, so that the others may be accepted."""
    return isinstance(failure, TooLarge | BadRequest | Conflict | DecodeError | OpenError)
