"""Getting pending messages answered, whatever happened to earlier attempts (RESYNC0.1, H14).

A message that may have left is sent again byte for byte. A receipt settles it; so does finding it in the log.
``DUPLICATE`` says that it was accepted, and where an earlier attempt's outcome is unknown, no other refusal
is believed before the log has been searched: a token may have expired after the message was accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from veen_core.errors import DivergenceError, VeenError
from veen_core.ids import NO_ENTRIES, LeafHash
from veen_core.receipt import Receipt
from veen_core.rejection import CLIENT_SEQ, DUPLICATE, PREV_ACK, Code
from veen_hub.client.errors import Misbehaved, OutOfTime, Refused, Unavailable, Unreachable
from veen_hub.client.label.label_log import LabelLog
from veen_hub.client.sending.proof_of_work import ProofOfWork
from veen_hub.client.sending.searching import find
from veen_hub.client.wire.retry import Attempts, is_retryable

MAX_SEQUENCE: Final = 4 * 1_048_576
"""Bytes in one request; the hub takes 8 MiB."""


@dataclass(slots=True)
class Delivery:
    """What became of a batch: receipts of its first messages, and why there are no more."""

    receipts: list[Receipt] = field(default_factory=list)
    failure: VeenError | None = None


class Settler:
    """Delivers what is pending on one label; the outbox lets one at a time in."""

    def __init__(self, log: LabelLog) -> None:
        self._log = log
        self._answers: dict[LeafHash, Receipt] = {}
        self._work = ProofOfWork(log.connection)

    async def deliver(self, *, uncertain: bool, passed: bool = False) -> Delivery:
        """Until each pending message is answered or refused for good, or patience ends.

        ``uncertain``: they may have left before. ``passed``: the label's window has, so they are only looked
        for (§12). What is not answered at the end stays pending, except after a final refusal, which frees
        its client_seq and those after it.
        """
        wanted = self._log.client.pending_leaves
        self._answers, self._work = {}, ProofOfWork(self._log.connection)
        failure: VeenError | None = None
        try:
            if passed:
                await self._find_or_free()
            else:
                await self._deliver(self._log.connection.retry.begin(), uncertain=uncertain)
        except VeenError as exc:
            failure = exc
        for leaf in wanted:
            if (met := self._log.answers.pop(leaf, None)) is not None:
                self._answers.setdefault(leaf, met)
        return Delivery([self._answers[leaf] for leaf in wanted if leaf in self._answers], failure)

    async def _deliver(self, attempts: Attempts, *, uncertain: bool) -> None:
        while self._log.client.state.pending:
            try:
                outcomes = await self._work.submit(self._next_wires(), attempts)
            except Unreachable as exc:
                uncertain = True
                await attempts.wait(exc)
                continue
            except Refused as exc:
                outcomes = [exc]
            receipts, why = _split(outcomes)
            if receipts:
                await self._take(receipts)
                attempts.renew()
            if why is None or (receipts and why.detail_enum == CLIENT_SEQ.detail):
                continue  # what follows a hole in a batch is simply next
            if is_retryable(why):
                uncertain = uncertain or isinstance(why, Unavailable)  # a proxy may say so too late
                await attempts.wait(why)
            elif not await self._settled_otherwise(why, uncertain=uncertain):
                await self._give_back()
                raise why

    async def _find_or_free(self) -> None:
        """What is not in the log of a label whose window has passed will never be (§12)."""
        await self._search()
        if count := len(self._log.client.state.pending):
            await self._give_back()
            raise OutOfTime(
                Code.TIME,
                f"{count} message(s) did not reach the hub while it took messages for label "
                f"{self._log.label.hex()}: send them again",
            )

    async def _settled_otherwise(self, why: Refused, *, uncertain: bool) -> bool:
        """Whether a refusal is not the end: accepted before, or work to be done first."""
        if (uncertain or why.detail_enum == DUPLICATE.detail) and await self._search():
            return True
        if await self._work.is_wanted(why):
            return True
        if why.detail_enum in (PREV_ACK.detail, CLIENT_SEQ.detail):
            async with self._log.prefix:
                await self._log.check_head()  # it may have forgotten what it acknowledged
        return False

    # --- asking

    def _next_wires(self) -> list[bytes]:
        wires: list[bytes] = []
        size = 0
        for wire in self._log.client.state.pending[: self._log.connection.batch]:
            size += len(wire)
            if wires and size > MAX_SEQUENCE:
                break
            wires.append(wire)
        return wires

    async def _search(self) -> bool:
        """Look for pending messages in the log; True if any was there."""
        log = self._log
        messages = log.client.unanswered
        after = min((msg.prev_ack for msg in messages), default=NO_ENTRIES)
        if found := await find(log, [msg.leaf_hash for msg in messages], after):
            await self._take(found)
        return bool(found) or not log.client.state.pending

    # --- believing

    async def _take(self, receipts: Sequence[Receipt]) -> None:
        """Verify receipts of own messages and settle them, wherever in the log they lie."""
        await self._log.judged(lambda: self._settle(receipts))

    async def _settle(self, receipts: Sequence[Receipt]) -> None:
        log, todo = self._log, self._still_pending(receipts)
        while todo:
            count = 1
            if todo[0].stream_seq <= log.client.size:
                await log.confirm(todo[0])
            elif todo[0].stream_seq > log.client.size + 1:
                await log.catch_up(todo[0])
            else:
                count = _run_length(todo)
                await log.connection.workers.run(log.client.accept_receipts, todo[:count])
            for receipt in todo[:count]:
                self._answers[receipt.leaf_hash] = receipt
                log.connection.time.hear(receipt.hub_ts)
            del todo[:count]
        await log.state.save(durable=False)  # a crash from here on finds them in the log again

    def _still_pending(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """In order of stream_seq; a reader may have come across some already, and then they must agree."""
        log, pending = self._log, set(self._log.client.pending_leaves)
        if len({receipt.leaf_hash for receipt in receipts}) != len(receipts):
            raise Misbehaved("two receipts for one message")
        todo: list[Receipt] = []
        for receipt in sorted(receipts, key=lambda r: r.stream_seq):
            met = log.answers.get(receipt.leaf_hash) or self._answers.get(receipt.leaf_hash)
            if receipt.leaf_hash in pending:
                todo.append(receipt)
            elif met is None:
                raise Misbehaved("a receipt for a message that was not sent")
            elif (met.stream_seq, met.mmr_root) != (receipt.stream_seq, receipt.mmr_root):
                log.client.verify_own(receipt)  # signed too, or it is only a forgery
                raise DivergenceError(
                    "two receipts for one message", held=met.encode(), shown=receipt.encode()
                )
        return todo

    async def _give_back(self) -> None:
        """Refused for good: the client_seq of the oldest, and of all after it, is free again."""
        async with self._log.prefix:
            if self._log.client.state.pending:
                self._log.client.refused()
                await self._log.state.save(durable=False)


def _split(outcomes: Sequence[Receipt | Refused]) -> tuple[list[Receipt], Refused | None]:
    """All receipts, and the first refusal."""
    receipts = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
    return receipts, next((outcome for outcome in outcomes if isinstance(outcome, Refused)), None)


def _run_length(receipts: Sequence[Receipt]) -> int:
    first = receipts[0].stream_seq
    return next((n for n, r in enumerate(receipts) if r.stream_seq != first + n), len(receipts))
