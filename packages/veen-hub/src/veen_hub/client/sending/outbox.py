"""Sending on one label, in steps that a crash or a cancellation may interrupt anywhere (§9, RESYNC0).

    1. become the label's only writer, and settle what an earlier attempt left pending
    2. choose the client_id, seal
    3. add the messages to the state and write it durably      ← commit point: from here on they may leave
    4. send, verify the receipts, write the state again

If step 3 is not complete, nothing was sent. After step 3 the messages are pending, and step 1 of the next
operation settles them. A label has one sender at a time, because client_seq increases by exactly 1.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from veen_core.cap import CapToken
from veen_core.client_state import UNUSED
from veen_core.errors import StateError, VeenError
from veen_core.ids import NO_ENTRIES, ClientId, ClientSeq, StreamSeq
from veen_core.msg import SealedMsg, verify_signature
from veen_core.rejection import CLIENT_BOUNDS, CLIENT_SEQ, DUPLICATE, NOT_PRIMARY
from veen_hub.client.errors import BoundsReached, NotFound, Refused
from veen_hub.client.label.label_log import SEARCH_PAGE_ENTRIES, LabelLog
from veen_hub.client.label.turn import Turn
from veen_hub.client.sending.batches_ahead import BatchesAhead, Following
from veen_hub.client.sending.body import MessageDraft
from veen_hub.client.sending.sealing import SealedBatch, Slot, seal_all
from veen_hub.client.sending.settling import Delivery, SendOutcome, Settler
from veen_hub.client.sending.shared_sends import SharedSends
from veen_hub.client.sending.single_sends import SingleSends, Take

logger: Final = logging.getLogger("veen.client")


@dataclass(slots=True)
class BatchDelivery(Delivery):
    """A delivery, and the batch after it, which was sealed meanwhile and has not left."""

    ahead: SealedBatch | None = field(default=None)


class Outbox:
    """The sender of one label."""

    def __init__(self, log: LabelLog, shared: SharedSends) -> None:
        self.log = log
        self.singles = SingleSends(self, shared)
        self.turn = Turn()
        self._settler = Settler(log)
        self._proven: ClientId | None = None
        """The client_id under which the hub has accepted a message of this sender: its stored client_seq is
        up to date. If the state were older, the hub would refuse the first messages of a batch, whose
        client_seqs are used, and might accept the later ones."""

    @property
    def is_awaited(self) -> bool:
        """Whether another operation waits for its turn on this label."""
        return self.turn.waiting > 0

    @property
    def is_ready(self) -> bool:
        """Whether a message can be sealed and sent now: no other operation, and nothing to do before."""
        log = self.log
        return (
            self.turn.is_free
            and log.prefix.is_free
            and log.state.is_owned
            and log.is_head_checked
            and not log.client.state.pending
            and not log.connection.status.pow_difficulty
        )

    # --- step 1

    async def settle(self, *, window_passed: bool = False) -> Delivery:
        """Settle the pending messages and return their outcome.

        ``window_passed``: the label takes no messages any more, so nothing is sent (§12).
        """
        async with self.turn:
            return await self._begin(window_passed=window_passed)

    async def _begin(self, *, window_passed: bool = False) -> Delivery:
        """Own the label, and settle what is pending; the caller holds ``turn``."""
        if not self.log.state.is_owned:
            await self.log.state.own()
        await self.log.check_head_once()
        delivery = Delivery()
        if not (count := len(self.log.client.state.pending)):
            return delivery
        await self._settler.deliver(delivery, uncertain=True, window_passed=window_passed)
        if delivery.failure is not None and (
            not isinstance(delivery.failure, Refused)
            or (delivery.failure.detail_enum == NOT_PRIMARY.detail and self.log.client.state.pending)
        ):
            raise delivery.failure
        if delivery.failure is not None:
            logger.warning(
                "pending_messages_refused label=%s count=%d reason=%s",
                self.log.label.hex(),
                count - len(delivery.receipts),
                delivery.failure,
            )
        return delivery

    # --- moving to a successor (P9); ``veen_hub.client.sending.moving`` has the order of the steps

    async def settle_closed(self) -> Delivery:
        """Find pending messages in the log of a hub that has handed over; the others stay pending."""
        async with self.turn:
            await self.log.check_head_once()
            delivery = Delivery()
            if self.log.client.state.pending:
                await self._settler.find(delivery)
            if delivery.failure is not None:
                raise delivery.failure
            return delivery

    async def withdraw_all(self) -> None:
        """Remove all pending messages, durably: another hub's label has taken them over."""
        async with self.turn, self.log.prefix:
            if self.log.client.state.pending:
                self.log.client.refused()
                await self.log.state.save(durable=True)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Settle what is pending, and keep other senders of this label waiting."""
        async with self.turn:
            await self._begin()
            yield

    async def seal_next(
        self, drafts: Sequence[MessageDraft], token: CapToken | None
    ) -> tuple[SealedMsg, ...]:
        """Seal drafts for the next client_seqs, whose key is stored before this returns; within ``alone``."""
        slot = await self._slot(token)
        async with self.log.prefix:
            await self.log.state.save(durable=True)
        return (await self.seal(slot, drafts)).sealed

    async def deliver_moved(self, sealed: Sequence[SealedMsg]) -> Delivery:
        """Deliver messages of ``seal_next``, unless their client_seqs are used already; within ``alone``."""
        delivery, client, first = Delivery(), self.log.client, sealed[0].msg
        if (client.state.client_id, client.state.client_seq + 1) == (first.client_id, first.client_seq):
            slot = Slot(
                client_id=first.client_id,
                first=first.client_seq,
                prev_ack=first.prev_ack,
                auth_ref=first.auth_ref,
            )
            await self._dispatch(SealedBatch(slot, tuple(sealed)), delivery)
        return delivery

    # --- steps 2 to 4

    async def send(
        self,
        drafts: Sequence[MessageDraft],
        delivery: BatchDelivery,
        *,
        token: CapToken | None = None,
        ready: SealedBatch | None = None,
        following: Following | None = None,
    ) -> None:
        """Deliver drafts in order; the outcome is written into ``delivery``, also if this is cancelled.

        ``ready`` are these drafts, sealed before. ``following`` returns the drafts after them: some of them
        may be delivered too, and ``delivery.ahead`` are those that were sealed and have not left.
        """
        async with self.turn:
            await self._begin()
            await self._send(drafts, delivery, token, ready, following)

    async def send_together(self, take: Take) -> BatchDelivery:
        """Deliver the drafts that ``take`` chooses once the label can take them; never raises a VeenError."""
        delivery = BatchDelivery()
        try:
            async with self.turn:
                await self._begin()
                drafts, token = take()
                await self._send(drafts, delivery, token)
        except VeenError as exc:
            delivery.failure = exc
        return delivery

    async def continue_alone(
        self, draft: MessageDraft, token: CapToken | None, answered: SendOutcome
    ) -> BatchDelivery:
        """Deliver a draft whose message is pending and was answered; the caller has the label's turn."""
        delivery = BatchDelivery()
        try:
            await self._settler.deliver(delivery, uncertain=False, answered=answered)
            failure = delivery.failure
            if failure is not None and not delivery.receipts and await self._repair(failure, token):
                delivery.failure = None
                await self._send([draft], delivery, token, repaired=True)
        except VeenError as exc:
            delivery.failure = exc
        return delivery

    async def _send(
        self,
        drafts: Sequence[MessageDraft],
        delivery: BatchDelivery,
        token: CapToken | None,
        ready: SealedBatch | None = None,
        following: Following | None = None,
        *,
        repaired: bool = False,
    ) -> None:
        todo = list(drafts)
        while todo:
            try:
                batch = await self._prepare(todo, token, ready)
            except BoundsReached as exc:
                delivery.failure = exc
                return
            before, ready = len(delivery.receipts), None
            is_proven = self._is_proven(batch.slot)
            if following is not None and is_proven and len(batch.sealed) == len(todo):
                await self._dispatch_with_following(batch, delivery, following)
            else:
                await self._dispatch(batch, delivery)
            if len(delivery.receipts) > before:
                self._proven = batch.slot.client_id
            del todo[: len(delivery.receipts) - before]
            if delivery.failure is not None:
                if repaired or not await self._repair(delivery.failure, token):
                    return
                repaired, delivery.failure = True, None

    @asynccontextmanager
    async def reserve(self, token: CapToken | None) -> AsyncIterator[Slot]:
        """Reserve the next client_seq while attachments are sealed and stored; ``send_sealed`` uses it."""
        async with self.turn:
            await self._begin()
            yield await self._slot(token)

    async def send_sealed(self, slot: Slot, sealed: SealedMsg) -> Delivery:
        """Send one sealed message in the slot that ``reserve`` gave."""
        delivery = Delivery()
        await self._dispatch(SealedBatch(slot, (sealed,)), delivery)
        return delivery

    async def _slot(self, token: CapToken | None) -> Slot:
        async with self.log.prefix:
            return self._slot_now(token)

    def _slot_now(self, token: CapToken | None) -> Slot:
        """Choose the client_id and return its next place; the caller holds ``prefix``."""
        log, now = self.log, self.log.connection.time.now()
        if token is not None:
            log.ring.use(log.client, token.subject_pk, now)
            if log.client.must_rotate(now):
                raise BoundsReached(log.client_id)
        elif log.client.must_rotate(now):
            exhausted = log.client.must_rotate(log.connection.time.signed)
            log.ring.rotate(log.client, now, exhausted=exhausted)
        return Slot(
            client_id=log.client_id,
            first=ClientSeq(log.client.state.client_seq + 1),
            prev_ack=log.client.size,
            auth_ref=token.auth_ref if token is not None else None,
        )

    async def _prepare(
        self, drafts: Sequence[MessageDraft], token: CapToken | None, ready: SealedBatch | None
    ) -> SealedBatch:
        slot = await self._slot(token)
        if ready is not None and ready.slot.is_next(self.log.client, slot.auth_ref):
            return ready
        room = self.log.connection.bounds.max_msgs_per_client_id_per_label - slot.first + 1
        most = min(room, self.log.connection.batch) if self._is_proven(slot) else 1
        return await self.seal(slot, drafts[:most])

    def _is_proven(self, slot: Slot) -> bool:
        """Whether the slot's client_seq is certainly the next one; a drawn client_id was not used before."""
        return slot.client_id == self._proven or (slot.auth_ref is None and slot.first == 1)

    def seal_now(self, drafts: Sequence[MessageDraft], token: CapToken | None) -> SealedBatch:
        """Seal a few drafts on the event loop; the caller has the label's turn and holds ``prefix``."""
        log, slot = self.log, self._slot_now(token)
        return seal_all(log.connection, log.client, log.ring.signer(slot.client_id), slot, drafts)

    async def seal(self, slot: Slot, drafts: Sequence[MessageDraft]) -> SealedBatch:
        """Seal drafts for a slot; nothing shared changes."""
        log = self.log
        return await log.connection.workers.run_sized(
            len(drafts), seal_all, log.connection, log.client, log.ring.signer(slot.client_id), slot, drafts
        )

    async def _dispatch_with_following(
        self, batch: SealedBatch, delivery: BatchDelivery, following: Following
    ) -> None:
        """Send a batch, and the batches after it, each as soon as the one before is answered."""
        ahead = BatchesAhead(self, batch, following, delivered=len(delivery.receipts))
        try:
            await self._dispatch(batch, delivery, ahead)
            if delivery.failure is None:
                with contextlib.suppress(VeenError):  # raised again when its message is the next one
                    delivery.ahead = await ahead.sealed()
        finally:
            await ahead.close()

    async def _dispatch(
        self, batch: SealedBatch, delivery: Delivery, ahead: BatchesAhead | None = None
    ) -> None:
        await self.make_pending(batch)  # the commit point
        await self._settler.deliver(delivery, uncertain=False, ahead=ahead)

    async def make_pending(self, batch: SealedBatch) -> None:
        """Add a batch to the pending messages, durably; if this raises, the batch never leaves."""
        log = self.log
        async with log.prefix:
            log.client.submit_all(batch.sealed)
            try:
                await log.state.save(durable=True)
            except BaseException:
                log.client.withdraw(len(batch.sealed))
                with contextlib.suppress(StateError):
                    await log.state.save(durable=False)
                raise

    # --- when a client_id cannot be used any more

    async def _repair(self, failure: VeenError, token: CapToken | None) -> bool:
        """Handle a refused client_seq or an exhausted client_id; return whether to send again."""
        if not isinstance(failure, Refused):
            return False
        taken = failure.detail_enum in (DUPLICATE.detail, CLIENT_SEQ.detail)
        if not taken and failure.detail_enum != CLIENT_BOUNDS.detail:
            return False
        if token is None:
            await self._rotate()
            return True
        return taken and await self._catch_up_client_seq()

    async def rotate(self, *, only: ClientId | None = None) -> None:
        """Settle pending messages, then use a fresh client_id; ``only``: if this client_id is in use."""
        async with self.turn:
            await self._begin()
            if only is None or self.log.client_id == only:
                await self._rotate()

    async def _rotate(self) -> None:
        async with self.log.prefix:
            self.log.ring.rotate(self.log.client, self.log.connection.time.now())

    async def _catch_up_client_seq(self) -> bool:
        """Take client_seq from the log if the state is older, e.g. lost or restored; False: no change."""
        log, head, last = self.log, await self.log.head(), UNUSED
        end = head.stream_seq if head is not None else NO_ENTRIES
        while end and not last:
            start = StreamSeq(max(1, end - SEARCH_PAGE_ENTRIES + 1))
            last = await self._last_own(start, end)
            end = StreamSeq(start - 1)
        if last == log.client.state.client_seq:
            return False
        async with log.prefix:
            log.client.switch(log.client_id, log.client.state.created_at, last)
        return True

    async def _last_own(self, start: StreamSeq, end: StreamSeq) -> ClientSeq:
        """Our last client_seq among the readable entries from ``start`` to ``end``, or ``UNUSED``."""
        log, at, more, last = self.log, start, True, UNUSED
        while more and at <= end:
            try:
                entries, more = await log.page(at, SEARCH_PAGE_ENTRIES, end)
            except NotFound as exc:  # pruned
                at = StreamSeq(max(at + 1, exc.stream_seq or end + 1))
                continue
            for entry in entries:
                msg = entry.msg
                if msg.client_id == log.client_id and msg.client_seq > last:
                    verify_signature(msg, entry.msg_bytes)
                    last = msg.client_seq
            at = StreamSeq(at + len(entries))
        return last
