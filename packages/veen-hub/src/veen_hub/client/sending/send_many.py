"""Sending many messages in batches, with an exact account of what the hub has acknowledged (H14)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Final

from veen_core.cap import CapToken
from veen_core.errors import VeenError
from veen_core.ids import AuthRef, Label, LeafHash
from veen_core.receipt import Receipt
from veen_core.rejection import EPOCH, NOT_PRIMARY
from veen_hub.client.errors import BoundsReached, CapRefused, Refused
from veen_hub.client.sending.batches_ahead import Following
from veen_hub.client.sending.batching import Lookahead
from veen_hub.client.sending.body import MessageDraft
from veen_hub.client.sending.outbox import BatchDelivery
from veen_hub.client.sending.sealing import SealedBatch
from veen_hub.client.sending.settling import Delivery

if TYPE_CHECKING:
    from veen_hub.client.stream import Stream

MAX_CONTINUATIONS: Final = 3
"""How often in a row sending continues under the next epoch's label or a fresh client_id."""


async def can_continue(stream: Stream, failure: VeenError) -> bool:
    """Return whether sending can continue: at a successor, in the next epoch, or under another client_id."""
    if isinstance(failure, Refused) and failure.detail_enum == NOT_PRIMARY.detail:
        return await stream.hub.cut_over()
    if isinstance(failure, Refused) and failure.detail_enum == EPOCH.detail:
        await stream.hub.connection.refresh()
        return True
    if isinstance(failure, BoundsReached) and stream.hub.tokens.source is not None:
        outbox = await stream.hub.epochs(stream.id).outbox()
        await outbox.rotate(only=failure.client_id)  # another sender may have done it
        return True
    return False


def name_stream(stream: Stream, failure: VeenError) -> VeenError:
    """Add the stream's name to a refusal of a token; the hub knows only the label."""
    if isinstance(failure, CapRefused):
        return failure.with_message(f"stream {stream.name}: {failure.hub_message}")
    return failure


class Sending:
    """Messages that ``Stream.send_many`` sends: an async iterator of their receipts, in order.

    ``acknowledged`` counts the messages that the hub has made durable, beginning with the first, and is
    correct at any moment: after an error, after a cancellation, and before all receipts were iterated over.
    ``unanswered`` counts the messages that follow them and were on their way when sending was interrupted.
    ``settle`` finds out which of these are in the log, so that afterwards ``acknowledged`` is exact:

        sending = stream.send_many(lines)
        try:
            async for receipt in sending:
                ...
        finally:  # e.g. cancelled by Ctrl-C
            await sending.settle()
            print(sending.acknowledged, "lines are in the log; resume with the next one")
    """

    def __init__(
        self,
        stream: Stream,
        drafts: Callable[[], Lookahead[MessageDraft]],
        cap: CapToken | AuthRef | None,
        *,
        confirm_timeout: float | None = None,
    ) -> None:
        """``confirm_timeout``: how long to wait for a quorum at the end; None does not wait (P2)."""
        self._stream = stream
        self._drafts = drafts
        self._cap = cap
        self._confirm_timeout = confirm_timeout
        self.newest: dict[Label, Receipt] = {}
        """The newest receipt of each label that messages were sent to."""
        self._receipts = self._deliver()
        self._unanswered: frozenset[LeafHash] = frozenset()
        self.acknowledged = 0
        self.last: Receipt | None = None
        """The receipt of the last message acknowledged."""

    def __aiter__(self) -> Sending:
        return self

    async def __anext__(self) -> Receipt:
        return await anext(self._receipts)

    async def aclose(self) -> None:
        """Stop sending: no further batch leaves."""
        await self._receipts.aclose()

    @property
    def unanswered(self) -> int:
        """Messages after the acknowledged ones that may or may not have reached the hub."""
        return len(self._unanswered)

    async def settle(self) -> None:
        """Settle the unanswered messages, by sending them again byte for byte or finding them in the log.

        Call it before anything else is sent on the stream. Raises if the hub cannot be asked; then the
        messages stay unanswered.
        """
        if not self._unanswered:
            return
        delivery = await self._stream.settle()
        predecessor = self._stream.hub.predecessor
        resealed = predecessor.resealed if predecessor is not None else {}
        found = [
            receipt
            for receipt in delivery.receipts
            if resealed.get(receipt.leaf_hash, receipt.leaf_hash) in self._unanswered
        ]
        self._count(Delivery(found))

    def _count(self, delivery: Delivery) -> None:
        self.acknowledged += len(delivery.receipts)
        self.last = delivery.receipts[-1] if delivery.receipts else self.last
        self.newest |= {receipt.label: receipt for receipt in delivery.receipts}
        self._unanswered = frozenset(delivery.unanswered)

    async def _deliver(self) -> AsyncGenerator[Receipt, None]:
        """Send batch after batch to the label of the current epoch; a failure follows the receipts."""
        size, ready, continuations = self._stream.hub.connection.batch, None, 0
        async with aclosing(self._drafts()) as drafts:
            while batch := await drafts.peek(size):
                delivery = BatchDelivery()
                try:
                    await self._deliver_batch(batch, partial(drafts.peek_after, size), ready, delivery)
                finally:  # also when cancelled
                    self._count(delivery)
                ready = delivery.ahead
                drafts.drop(len(delivery.receipts))
                for receipt in delivery.receipts:
                    yield receipt
                if delivery.failure is None:
                    continuations = 0
                elif continuations < MAX_CONTINUATIONS and await can_continue(self._stream, delivery.failure):
                    continuations += 1
                else:
                    raise name_stream(self._stream, delivery.failure)
        if self._confirm_timeout is not None:
            await self._stream.hub.wait_confirmed(self.newest.values(), self._confirm_timeout)

    async def _deliver_batch(
        self,
        batch: list[MessageDraft],
        following: Following,
        ready: SealedBatch | None,
        delivery: BatchDelivery,
    ) -> None:
        stream = self._stream
        try:
            outbox = await stream.outbox()
        except Refused as exc:
            delivery.failure = exc
            return
        try:
            token = await stream.hub.tokens.choose(outbox.log, stream.id, self._cap)
        except BoundsReached as exc:
            delivery.failure = exc
            return
        try:
            await outbox.send(batch, delivery, token=token, ready=ready, following=following)
        except Refused as exc:  # what an earlier operation left pending cannot be settled here
            delivery.failure = exc
