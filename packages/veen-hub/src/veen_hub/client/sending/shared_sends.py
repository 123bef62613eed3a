"""Single messages of several labels that are sent together.

Each label has at most one message here. The messages of a group share one commit, one request and one
verification of their receipts, in one task:

    1. seal, add to the states, write the states durably      ← commit point: from here on they may leave
    2. send them in one request
    3. check the receipts, verify their signatures together, accept them

This module handles only the usual case. A label that is not ready, for example because another operation uses
it, sends without a group. A message whose answer is not the receipt of the label's next entry leaves the
group and continues with that answer. So no message waits for another one that fails.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from veen_core.errors import SignatureError, StateError, VeenError
from veen_core.msg import SealedMsg
from veen_core.pipelined_client import CheckedReceipt
from veen_core.receipt import Receipt
from veen_core.signatures import SignatureClaim, verify_all
from veen_hub.client.label.label_log import LabelLog
from veen_hub.client.sending.settling import SendOutcome
from veen_hub.client.wire.connection import HubConnection
from veen_hub.client.wire.retry import MIN_ANSWER_SECONDS, Attempts

if TYPE_CHECKING:
    from veen_hub.client.sending.single_sends import SingleSends

MAX_GROUPS: Final = 4
"""Groups at once: while one is at the hub, another one is written to disk, and the next one is sealed."""
MAX_GROUP_MESSAGES: Final = 16
"""Messages in a group. They are sealed on the event loop, which they block for about 2 ms."""
MAX_GROUP_BYTES: Final = 1_048_576
"""Bytes of messages after which a group takes no more of them."""
MAX_BODY_BYTES: Final = 64 * 1_024
"""Largest body that is sealed on the event loop; a larger message is sent without a group."""

Answer = Receipt | VeenError
"""The hub's answer to one message, or why there is none."""


@dataclass(slots=True, eq=False)
class Member:
    """A label with one message in a group; the group has the label's turn."""

    singles: SingleSends
    log: LabelLog
    sealed: SealedMsg
    record: bytes
    """The label's record with the message."""

    def check(self, answer: Answer, claims: list[SignatureClaim]) -> CheckedReceipt | None:
        """Check an answer except its signature; None unless it is the receipt of the next entry."""
        log, before = self.log, len(claims)
        if not isinstance(answer, Receipt) or answer.stream_seq != log.client.size + 1:
            return None
        if log.client.state.pending != (self.sealed.wire,) or not log.prefix.is_free:
            return None
        with contextlib.suppress(VeenError):  # raised again when the label continues without the group
            if isinstance(checked := log.client.check_receipt(answer, claims), CheckedReceipt):
                return checked
        del claims[before:]
        return None

    def accept(self, checked: CheckedReceipt) -> None:
        """Accept a receipt whose signature was verified, and hand it over."""
        self.log.client.accept_checked(checked)
        self.log.connection.time.observe(checked.receipt.hub_ts)
        self.log.state.note_receipts()
        self.end(checked.receipt)

    def end(self, outcome: Receipt | Exception | None) -> None:
        """Release the label's turn, and hand over the outcome; None: the sending was cancelled."""
        self.singles.outbox.turn.release()
        self.singles.end(outcome)


class SendGroup:
    """The labels whose messages are sent together; a label stays until its turn is released."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.size = 0
        """Bytes of all messages that were added."""
        self.task: asyncio.Task[None] | None = None

    def stop_if_unwanted(self) -> None:
        """Stop once no sender waits for any of the messages."""
        if self.task is not None and not any(member.singles.is_wanted for member in self.members):
            self.task.cancel()


class SharedSends:
    """The single messages of all labels of one connection."""

    def __init__(self, connection: HubConnection) -> None:
        self._connection = connection
        self._waiting: deque[SingleSends] = deque()
        self._groups: set[SendGroup] = set()
        self._is_gathering = False
        """Whether a group was started that has not taken its labels yet."""
        self._closed = False

    def add(self, singles: SingleSends) -> None:
        """Send a label's waiting message; ``singles.end`` is called with the outcome."""
        if self._closed:  # the label was opened while the connection closes
            singles.stop()
            return
        self._waiting.append(singles)
        self._start()

    async def close(self) -> None:
        """Stop sending; messages under way stay pending."""
        self._closed = True
        self._waiting.clear()
        if tasks := [group.task for group in self._groups if group.task is not None]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _start(self) -> None:
        """Start a group; it takes its labels once all tasks that are ready now have added theirs."""
        if self._waiting and not self._is_gathering and len(self._groups) < MAX_GROUPS:
            self._is_gathering = True
            group = SendGroup()
            self._groups.add(group)
            group.task = asyncio.create_task(self._send(group))
            group.task.add_done_callback(partial(self._ended, group))

    def _ended(self, group: SendGroup, task: asyncio.Task[None]) -> None:
        """Release the labels that are left in a group that failed or was cancelled."""
        self._groups.discard(group)
        failure = task.exception() if not task.cancelled() else None
        for member in group.members:
            member.end(failure if isinstance(failure, Exception) else None)
        self._start()

    async def _send(self, group: SendGroup) -> None:
        """Send one group, steps 1 to 3."""
        self._is_gathering = False
        max_messages = min(MAX_GROUP_MESSAGES, self._connection.batch)
        while self._waiting and len(group.members) < max_messages and group.size < MAX_GROUP_BYTES:
            await self._join(group, self._waiting.popleft())
        self._start()
        if group.members:
            await self._make_durable(group)
        if group.members:
            attempts = self._connection.retry.begin()
            answers = await self._submit(group, attempts)
            self._settle(group, answers, attempts)

    async def _join(self, group: SendGroup, singles: SingleSends) -> None:
        """Seal a label's message and add it to the label's state, if the label is ready."""
        outbox = singles.outbox
        if not singles.is_wanted:
            singles.end(None)
            return
        one = singles.begin(group, MAX_BODY_BYTES) if outbox.is_ready else None
        if one is None:
            singles.start_alone()
            return
        await outbox.turn.acquire()  # both locks are free (is_ready)
        await outbox.log.prefix.acquire()
        try:
            (sealed,) = outbox.seal_now([one.draft], one.token).sealed
            outbox.log.client.submit_all((sealed,))
            record = outbox.log.state.record()
        except Exception:  # noqa: BLE001 - raised again when the label sends without the group
            if count := len(outbox.log.client.state.pending):
                outbox.log.client.withdraw(count)
            outbox.log.prefix.release()
            outbox.turn.release()
            singles.start_alone()
        else:
            group.members.append(Member(singles, outbox.log, sealed, record))
            group.size += len(sealed.wire)

    async def _make_durable(self, group: SendGroup) -> None:
        """Write the states of all members: the commit point. Messages that are unwanted by now stay here."""
        members, stay = tuple(group.members), list[Member]()
        try:
            await self._commit(members)
            while unwanted := [one for one in members if not (one in stay or one.singles.is_wanted)]:
                stay += unwanted
                await self._withdraw(unwanted)  # meanwhile, more of them may have become unwanted
        except BaseException:
            await self._withdraw([one for one in members if one not in stay])
            raise
        finally:
            for one in members:
                one.log.prefix.release()
        for one in stay:
            group.members.remove(one)
            one.end(None)

    async def _commit(self, members: Sequence[Member]) -> None:
        await self._connection.commits.commit({one.log.state.name: one.record for one in members})
        for one in members:
            one.log.state.note_saved()

    async def _withdraw(self, members: Sequence[Member]) -> None:
        """Take messages that have not left out of their labels' states; the caller holds ``prefix``.

        All states are written in one step, so that a cancellation does not leave some of them unwritten: the
        next process would send their messages.
        """
        if not members:
            return
        for member in members:
            member.log.client.withdraw(1)
            member.record = member.log.state.record()
        with contextlib.suppress(StateError):
            await self._commit(members)

    async def _submit(self, group: SendGroup, attempts: Attempts) -> Sequence[Answer]:
        """Send the messages in one request; returns an answer for each."""
        api, wires = self._connection.api, [member.sealed.wire for member in group.members]
        try:
            return await attempts.attempt(
                lambda: api.submit(wires), api.transport.url, min_seconds=MIN_ANSWER_SECONDS
            )
        except VeenError as exc:
            return [exc] * len(wires)

    def _settle(self, group: SendGroup, answers: Sequence[Answer], attempts: Attempts) -> None:
        """Accept the receipts; a label with another answer continues without the group."""
        claims: list[SignatureClaim] = []
        checked = [
            member.check(answer, claims) for member, answer in zip(group.members, answers, strict=True)
        ]
        try:
            verify_all(claims)
        except SignatureError:  # verified again by each label, so that only the faulty one fails
            checked = [None] * len(answers)
        for answer, found in zip(answers, checked, strict=True):
            member = group.members.pop(0)
            if found is not None:
                member.accept(found)
            else:
                leaf = member.sealed.msg.leaf_hash
                member.singles.continue_alone(SendOutcome(leaf, answer, attempts.started))
