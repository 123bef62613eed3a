"""Getting an answer for every pending message, whatever happened to earlier attempts (RESYNC0.1, H14).

A message that may have left is sent again, byte for byte. It is settled by a receipt, or by being found in
the log. ``DUPLICATE`` means that it was accepted. If the outcome of an earlier attempt is unknown, the log is
searched before any other refusal is believed: a token may have expired after the message was accepted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from veen_core.errors import DivergenceError, VeenError
from veen_core.ids import NO_ENTRIES, LeafHash
from veen_core.plural import plural
from veen_core.receipt import Receipt
from veen_core.rejection import CLIENT_SEQ, DUPLICATE, NOT_PRIMARY, PREV_ACK, Code
from veen_hub.client.errors import Misbehaved, OutOfTime, Refused, Unavailable, Unreachable
from veen_hub.client.label.label_log import LabelLog
from veen_hub.client.sending.batches_ahead import BatchesAhead
from veen_hub.client.sending.proof_of_work import ProofOfWork
from veen_hub.client.sending.searching import find
from veen_hub.client.wire.outcomes import Outcomes
from veen_hub.client.wire.retry import Attempts, is_retryable
from veen_hub.client.wire.shared_submits import MAX_REQUEST_BYTES


@dataclass(slots=True)
class Delivery:
    """The outcome of a batch of messages.

    ``receipts`` are those of its first messages, ``failure`` says why there are no more, and ``unanswered``
    are the messages that may have reached the hub and have no receipt yet. They stay pending, and the next
    operation on the stream settles them.
    """

    receipts: list[Receipt] = field(default_factory=list)
    failure: VeenError | None = None
    unanswered: tuple[LeafHash, ...] = ()


class SendOutcome(NamedTuple):
    """The outcome of a request that has left with one message."""

    leaf: LeafHash
    outcome: Receipt | VeenError
    since: float
    """When the attempts began, on the monotonic clock."""


class Settler:
    """Delivers the pending messages of one label; the outbox runs one delivery at a time."""

    def __init__(self, log: LabelLog) -> None:
        self._log = log
        self._wanted: list[LeafHash] = []
        """The messages of the delivery under way, in order."""
        self._is_resumed = False
        """Whether an earlier operation sent the messages: this one cannot seal them again."""
        self._receipts: dict[LeafHash, Receipt] = {}
        self._work = ProofOfWork(log.connection)

    async def deliver(
        self,
        delivery: Delivery,
        *,
        uncertain: bool,
        window_passed: bool = False,
        ahead: BatchesAhead | None = None,
        answered: SendOutcome | None = None,
    ) -> None:
        """Send until each pending message is answered or refused for good, or the retry policy gives up.

        The outcome is written into ``delivery``, also if this is cancelled. ``uncertain``: the messages may
        have left before. ``window_passed``: the label takes no messages any more, so the log is searched and
        nothing is sent (§12). ``ahead`` are batches that follow. ``answered``: the only message has left
        once, with this outcome. Messages without an answer stay pending, except after a final refusal: then
        their client_seqs are free again.
        """
        self._wanted = [answered.leaf] if answered is not None else self._log.client.pending_leaves
        self._is_resumed = uncertain
        if window_passed:
            await self._run(delivery, self._find_or_drop())
        else:
            attempts = self._log.connection.retry.begin(answered.since if answered is not None else None)
            await self._run(delivery, self._deliver(attempts, uncertain, ahead, answered))

    async def find(self, delivery: Delivery) -> None:
        """Search the log for the pending messages; send nothing, and keep pending what is not found."""
        self._wanted = self._log.client.pending_leaves
        await self._run(delivery, self._search())

    async def _run(self, delivery: Delivery, work: Coroutine[None, None, object]) -> None:
        """Run a delivery and write its outcome into ``delivery``, also if it is cancelled."""
        self._receipts, self._work = {}, ProofOfWork(self._log.connection)
        try:
            try:
                await work
            except VeenError as exc:
                delivery.failure = exc
            async with self._log.prefix:
                pass  # a reader that has settled one of the messages has noted its receipt by now
        finally:
            for leaf in self._wanted:
                if (seen := self._log.receipts_read.pop(leaf, None)) is not None:
                    self._receipts.setdefault(leaf, seen)
            delivery.receipts += [self._receipts[leaf] for leaf in self._wanted if leaf in self._receipts]
            delivery.unanswered = tuple(self._log.client.pending_leaves)

    async def _deliver(
        self, attempts: Attempts, uncertain: bool, ahead: BatchesAhead | None, answered: SendOutcome | None
    ) -> None:
        request: asyncio.Task[Outcomes] | None = None
        try:
            while self._log.client.state.pending:
                outcomes: Outcomes = []
                try:
                    if answered is not None:
                        outcome, answered = answered.outcome, None
                        outcomes = _outcomes_of(outcome)
                    else:
                        answer = request or self._work.submit(self._next_request(), attempts)
                        request = None
                        outcomes = await answer
                except Unreachable as exc:
                    uncertain = True
                    await attempts.wait(exc)
                    continue
                except Refused as exc:
                    outcomes = [exc]
                receipts, refusal = _split(outcomes)
                if receipts:
                    if ahead is not None and refusal is None:
                        request = await self._send_next(ahead, len(receipts), attempts)
                    await self._accept(receipts)
                    attempts.renew()
                if refusal is None or (receipts and refusal.detail_enum == CLIENT_SEQ.detail):
                    continue  # messages after a refused one in the batch are refused too: send them again
                uncertain = await self._handle(refusal, attempts, uncertain)
        finally:
            if request is not None:
                request.cancel()
                await asyncio.gather(request, return_exceptions=True)

    async def _send_next(
        self, ahead: BatchesAhead, answered: int, attempts: Attempts
    ) -> asyncio.Task[Outcomes] | None:
        """Send the next batch if all that is pending was answered; its messages are pending from now on."""
        if answered < len(self._log.client.state.pending) or not (wires := await ahead.release()):
            return None
        self._wanted += self._log.client.pending_leaves[-len(wires) :]
        return asyncio.create_task(self._work.submit(wires, attempts))

    async def _handle(self, refusal: Refused, attempts: Attempts, uncertain: bool) -> bool:
        """Prepare another attempt after a refusal, or raise it; returns whether the outcome is uncertain."""
        if is_retryable(refusal):
            await attempts.wait(refusal)
            # A proxy may refuse after the hub accepted the message.
            return uncertain or isinstance(refusal, Unavailable)
        if uncertain and refusal.detail_enum == NOT_PRIMARY.detail:
            if self._is_resumed:
                raise refusal  # the messages stay pending: the stream is moved to the successor with them
            await self._wait_for_handover(refusal, attempts)
        if not await self._can_continue(refusal, uncertain=uncertain):
            await self._drop_pending()
            raise refusal
        return uncertain

    async def _wait_for_handover(self, refusal: Refused, attempts: Attempts) -> None:
        """Wait until the hub shows its handover; until then, an earlier attempt may reach the log (P9)."""
        connection = self._log.connection
        await connection.refresh()
        while connection.status.handover is None:
            await attempts.wait(Unavailable(Code.UNAVAILABLE, refusal.hub_message))
            await connection.refresh()

    async def _find_or_drop(self) -> None:
        """Search the log of a label whose window has passed; drop messages that are not in it (§12)."""
        await self._search()
        if count := len(self._log.client.state.pending):
            await self._drop_pending()
            raise OutOfTime(
                Code.TIME,
                f"{plural(count, 'message')} did not reach the hub while it accepted messages for label "
                f"{self._log.label.hex()}",
                action="send them again",
            )

    async def _can_continue(self, refusal: Refused, *, uncertain: bool) -> bool:
        """Return whether to continue: the refused message is in the log, or the hub wants proof of work."""
        if (uncertain or refusal.detail_enum == DUPLICATE.detail) and await self._search():
            return True
        if await self._work.is_wanted(refusal):
            return True
        if refusal.detail_enum in (PREV_ACK.detail, CLIENT_SEQ.detail):
            async with self._log.prefix:
                await self._log.check_head()  # the hub may have lost messages that it acknowledged
        return False

    # --- asking

    def _next_request(self) -> list[bytes]:
        wires: list[bytes] = []
        size = 0
        for wire in self._log.client.state.pending[: self._log.connection.batch]:
            size += len(wire)
            if wires and size > MAX_REQUEST_BYTES:
                break
            wires.append(wire)
        return wires

    async def _search(self) -> bool:
        """Search the log for pending messages; True if one was found, or none is pending any more."""
        log = self._log
        messages = log.client.unanswered
        after = min((msg.prev_ack for msg in messages), default=NO_ENTRIES)
        if found := await find(log, [msg.leaf_hash for msg in messages], after):
            await self._accept(found)
        return bool(found) or not log.client.state.pending

    # --- verifying

    async def _accept(self, receipts: Sequence[Receipt]) -> None:
        """Verify receipts of pending messages and settle these, wherever in the log they are."""
        last = max(receipt.stream_seq for receipt in receipts)
        if last > self._log.client.size:
            await self._log.followers.reached(last)
        await self._log.verifying(lambda: self._settle(receipts))

    async def _settle(self, receipts: Sequence[Receipt]) -> None:
        log, todo = self._log, self._still_pending(receipts)
        while todo:
            count = 1
            if todo[0].stream_seq <= log.client.size:
                await log.confirm(todo[0])
                self._record(todo[:1])
            elif todo[0].stream_seq > log.client.size + 1:
                await log.catch_up(todo[0])
                self._record(todo[:1])
            else:
                count = _run_length(todo)
                await log.connection.workers.run_sized(count, self._accept_run, todo[:count])
            for receipt in todo[:count]:
                log.connection.time.observe(receipt.hub_ts)
            del todo[:count]
        log.state.note_receipts()

    def _accept_run(self, receipts: Sequence[Receipt]) -> None:
        """Accept receipts, to the end even if cancelled: a settled message always has its receipt."""
        self._log.client.accept_receipts(receipts)
        self._record(receipts)

    def _record(self, receipts: Sequence[Receipt]) -> None:
        self._receipts |= {receipt.leaf_hash: receipt for receipt in receipts}

    def _still_pending(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Receipts to settle, by stream_seq. A receipt that a reader has seen already must agree."""
        log, pending = self._log, set(self._log.client.pending_leaves)
        if len({receipt.leaf_hash for receipt in receipts}) != len(receipts):
            raise Misbehaved("the hub answered with two receipts for one message")
        todo: list[Receipt] = []
        for receipt in sorted(receipts, key=lambda r: r.stream_seq):
            seen = log.receipts_read.get(receipt.leaf_hash) or self._receipts.get(receipt.leaf_hash)
            if receipt.leaf_hash in pending:
                todo.append(receipt)
            elif seen is None:
                raise Misbehaved("the hub answered with a receipt for a message that was not sent")
            elif (seen.stream_seq, seen.mmr_root) != (receipt.stream_seq, receipt.mmr_root):
                log.client.verify_own(receipt)  # without a valid signature it is a forgery, not evidence
                raise DivergenceError(
                    "the hub signed two receipts for one message", held=seen.encode(), shown=receipt.encode()
                )
        return todo

    async def _drop_pending(self) -> None:
        """Free the client_seqs of the oldest pending message, which was refused, and of all after it."""
        async with self._log.prefix:
            if self._log.client.state.pending:
                self._log.client.refused()
                await self._log.state.save(durable=False)


def _outcomes_of(outcome: Receipt | VeenError) -> Outcomes:
    """Return the outcome of one message as a request would have; raises if the request has failed."""
    if isinstance(outcome, Receipt | Refused):
        return [outcome]
    raise outcome


def _split(outcomes: Sequence[Receipt | Refused]) -> tuple[list[Receipt], Refused | None]:
    """Return the receipts before the first refusal, and that refusal.

    Receipts settle messages from the oldest on. If the hub knows the first messages of a batch and accepts
    the others, ``DUPLICATE`` comes before receipts; the search for the duplicates finds those messages too.
    """
    receipts: list[Receipt] = []
    for outcome in outcomes:
        if isinstance(outcome, Refused):
            return receipts, outcome
        receipts.append(outcome)
    return receipts, None


def _run_length(receipts: Sequence[Receipt]) -> int:
    """How many receipts from the first on have consecutive stream_seqs."""
    first = receipts[0].stream_seq
    return next((n for n, r in enumerate(receipts) if r.stream_seq != first + n), len(receipts))
