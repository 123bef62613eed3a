"""Sending on one label: steps that a crash or a cancellation may interrupt anywhere (§9, RESYNC0).

    1. become the label's only writer, and settle what an earlier attempt left open
    2. choose the client_id, seal
    3. take the messages into the state and write it durably      ← from here on they may leave
    4. send, verify the receipts, write the state again

Interrupted before 3 is complete, nothing happened; after it, the messages are pending and step 1 of the next
operation settles them. One sender at a time per label: client_seq is strictly +1.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from veen_core.cap import CapToken
from veen_core.client_state import UNUSED
from veen_core.errors import StateError, VeenError
from veen_core.ids import NO_ENTRIES, ClientSeq, StreamSeq
from veen_core.msg import SealedMsg, verify_signature
from veen_core.rejection import CLIENT_BOUNDS, CLIENT_SEQ, DUPLICATE
from veen_hub.client.errors import BoundsReached, NotFound, Refused
from veen_hub.client.label.label_log import SEARCH_PAGE, LabelLog
from veen_hub.client.sending.body import Draft
from veen_hub.client.sending.sealing import SealedBatch, Slot, seal_all
from veen_hub.client.sending.settling import Delivery, Settler

logger: Final = logging.getLogger("veen.client")


@dataclass(slots=True)
class Sending(Delivery):
    """A delivery, and what was sealed for the next one meanwhile."""

    ahead: SealedBatch | None = field(default=None)


class Outbox:
    """The way out of one label."""

    def __init__(self, log: LabelLog) -> None:
        self.log = log
        self._settler = Settler(log)
        self._turn = asyncio.Lock()

    # --- step 1

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[None]:
        async with self._turn:
            await self.log.state.own()
            await self.log.check_head_once()
            await self._settle()
            yield

    async def settle(self, *, passed: bool = False) -> Delivery:
        """Get what is pending answered, if anything is; tells what became of it.

        ``passed``: the label's window has, so that nothing may be sent any more (§12).
        """
        async with self._turn:
            await self.log.state.own()
            await self.log.check_head_once()
            return await self._settle(passed=passed)

    async def _settle(self, *, passed: bool = False) -> Delivery:
        if not (count := len(self.log.client.state.pending)):
            return Delivery()
        delivery = await self._settler.deliver(uncertain=True, passed=passed)
        if delivery.failure is not None and not isinstance(delivery.failure, Refused):
            raise delivery.failure
        if delivery.failure is not None:
            logger.warning(
                "label %s: %d message(s) of an earlier attempt were refused and are not in the log: %s",
                self.log.label.hex(),
                count - len(delivery.receipts),
                delivery.failure,
            )
        return delivery

    # --- steps 2 to 4

    async def send(
        self,
        drafts: Sequence[Draft],
        *,
        token: CapToken | None = None,
        ready: SealedBatch | None = None,
        ahead: Sequence[Draft] = (),
    ) -> Sending:
        """Deliver drafts in order. ``ready`` are these, sealed before; ``ahead`` is what will follow them."""
        done = Sending()
        todo, repaired = list(drafts), False
        async with self._writing():
            while todo:
                try:
                    prepared = await self._prepare(todo, token, ready)
                except BoundsReached as exc:
                    done.failure = exc
                    break
                last = len(prepared.sealed) == len(todo)
                async with self._sealing_ahead(prepared, ahead if last else ()) as sealing:
                    delivery = await self._dispatch(prepared)
                    done.ahead = await sealing if sealing is not None and delivery.failure is None else None
                done.receipts += delivery.receipts
                del todo[: len(delivery.receipts)]
                ready = None
                if delivery.failure is not None:
                    if repaired or not await self._repaired(delivery.failure, token):
                        done.failure = delivery.failure
                        break
                    repaired = True
        return done

    @asynccontextmanager
    async def place(self, token: CapToken | None) -> AsyncIterator[Slot]:
        """The next place, kept while attachments for it are sealed and stored; fill it with ``fill``."""
        async with self._writing():
            yield await self._slot(token)

    async def fill(self, slot: Slot, sealed: SealedMsg) -> Delivery:
        """Inside ``place``."""
        return await self._dispatch(SealedBatch(slot, (sealed,)))

    async def _slot(self, token: CapToken | None) -> Slot:
        log, now = self.log, self.log.connection.time.now()
        async with log.prefix:
            if token is not None:
                log.ring.use(log.client, token.subject_pk, now)
                if log.client.must_rotate(now):
                    raise BoundsReached(log.client_id)
            elif log.client.must_rotate(now):
                log.ring.rotate(log.client, now, worn=log.client.must_rotate(log.connection.time.signed))
            return Slot(
                client_id=log.client_id,
                first=ClientSeq(log.client.state.client_seq + 1),
                prev_ack=log.client.size,
                auth_ref=token.auth_ref if token is not None else None,
            )

    async def _prepare(
        self, drafts: Sequence[Draft], token: CapToken | None, ready: SealedBatch | None
    ) -> SealedBatch:
        slot = await self._slot(token)
        if ready is not None and ready.slot.fits(self.log.client, slot.auth_ref):
            return ready
        room = self.log.connection.bounds.max_msgs_per_client_id_per_label - slot.first + 1
        return await self._seal(slot, drafts[: min(room, self.log.connection.batch)])

    async def _seal(self, slot: Slot, drafts: Sequence[Draft]) -> SealedBatch:
        log = self.log
        return await log.connection.workers.run(
            seal_all, log.connection, log.client, log.ring.signer(slot.client_id), slot, drafts
        )

    @asynccontextmanager
    async def _sealing_ahead(
        self, prepared: SealedBatch, drafts: Sequence[Draft]
    ) -> AsyncIterator[asyncio.Task[SealedBatch] | None]:
        """Seals the next batch for the places after this one while this one travels."""
        count = len(prepared.sealed)
        most = self.log.connection.bounds.max_msgs_per_client_id_per_label
        if not drafts or prepared.slot.first + count + len(drafts) - 1 > most:
            yield None
            return
        slot = prepared.slot.after(count, self.log.client.size)
        task = asyncio.create_task(self._seal(slot, drafts))
        try:
            yield task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, VeenError):
                await task

    async def _dispatch(self, prepared: SealedBatch) -> Delivery:
        log = self.log
        async with log.prefix:
            log.client.submit_all(prepared.sealed)
            try:
                await log.state.save(durable=True)
            except BaseException:
                log.client.refused()  # they have not left, and now they never will
                with contextlib.suppress(StateError):
                    await log.state.save(durable=False)
                raise
        return await self._settler.deliver(uncertain=False)  # they may have left

    # --- when a client_id cannot go on

    async def _repaired(self, why: VeenError, token: CapToken | None) -> bool:
        """Another message has our client_seq, or the hub's bounds are tighter: whether we can go on."""
        if not isinstance(why, Refused):
            return False
        taken = why.detail_enum in (DUPLICATE.detail, CLIENT_SEQ.detail)
        if not taken and why.detail_enum != CLIENT_BOUNDS.detail:
            return False
        if token is None:
            await self._rotate()
            return True
        return taken and await self._catch_up_client_seq()

    async def rotate(self) -> None:
        """A fresh client_id from here on, once what is open is settled."""
        async with self._writing():
            await self._rotate()

    async def _rotate(self) -> None:
        async with self.log.prefix:
            self.log.ring.rotate(self.log.client, self.log.connection.time.now())

    async def _catch_up_client_seq(self) -> bool:
        """The state is older than the log, e.g. lost or restored: look back for our last message there."""
        log, head, last = self.log, await self.log.head(), UNUSED
        end = head.stream_seq if head is not None else NO_ENTRIES
        while end and not last:
            start = StreamSeq(max(1, end - SEARCH_PAGE + 1))
            last = await self._last_own(start, end)
            end = StreamSeq(start - 1)
        if last == log.client.state.client_seq:
            return False
        async with log.prefix:
            log.client.switch(log.client_id, log.client.state.created_at, last)
        return True

    async def _last_own(self, start: StreamSeq, end: StreamSeq) -> ClientSeq:
        """The last client_seq of ours among entries that can be read; ``UNUSED`` if there is none."""
        log, at, more, last = self.log, start, True, UNUSED
        while more and at <= end:
            try:
                entries, more = await log.page(at, SEARCH_PAGE, end)
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
