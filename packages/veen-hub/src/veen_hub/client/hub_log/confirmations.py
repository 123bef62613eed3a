"""Confirmations: which entries of a label are under a hub checkpoint that a quorum has cosigned (P2).

An entry is confirmed if a head of its label covers it, the head is in the hub log under the newest accepted
hub checkpoint, and the head's root is that of the log which this client has verified. The three together mean
that the hub cannot show another client another log without the quorum's help.

One request answers for a whole label. It is sent at most once in ``ASK_SECONDS`` for readers, however many
messages they read, and once in ``POLL_SECONDS`` for all senders that wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Final

from veen_core.entry import Entry
from veen_core.errors import QuorumError
from veen_core.hub_log import LabelHead
from veen_core.ids import NO_ENTRIES, Label, StreamSeq
from veen_core.receipt import Receipt
from veen_hub.client.errors import NotFound, Refused, Unconfirmed, Unreachable
from veen_hub.client.hub_log.checkpoints import HubCheckpoints
from veen_hub.client.label.label_log import LabelLog

ASK_SECONDS: Final = 1.0
"""Shortest time between two requests on behalf of a label's readers, in seconds: a hub log grows once a
second."""
POLL_SECONDS: Final = 0.2
"""Time between two requests while senders wait for a confirmation, in seconds."""
CONFIRM_TIMEOUT_SEC: Final = 30.0
"""Default time that a sender waits for a quorum, in seconds."""
NOT_COVERED: Final = "the hub's published checkpoint does not cover it yet"


class LabelConfirmation:
    """How far one label is confirmed, and when that was asked for last."""

    __slots__ = ("asked", "lock", "searched", "upto")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.upto: StreamSeq = NO_ENTRIES
        self.asked = float("-inf")
        self.searched = 0
        """Size of the accepted hub checkpoint under which the label was searched last."""

    def due_in(self, interval: float) -> float:
        """Return the seconds until the next request may be sent."""
        return self.asked + interval - time.monotonic()


class Confirmations:
    """The confirmed part of each label of one connection."""

    def __init__(self, checkpoints: HubCheckpoints) -> None:
        self.checkpoints = checkpoints
        self._labels: dict[Label, LabelConfirmation] = {}

    def forget(self, label: Label) -> None:
        """Drop a label that is no longer used."""
        self._labels.pop(label, None)

    async def upto(self, log: LabelLog, entries: Sequence[Entry]) -> StreamSeq:
        """Return how far a label is confirmed, for a reader that has read these entries, in order.

        Raises ``QuorumError`` if the hub's cosignatures are older than the policy allows, or if the hub shows
        none although the entries are older than the policy allows.
        """
        label = self._labels.setdefault(log.label, LabelConfirmation())
        checkpoints, last = self.checkpoints, entries[-1].stream_seq
        async with label.lock:
            if (label.upto < last or checkpoints.is_stale) and label.due_in(ASK_SECONDS) <= 0:
                with contextlib.suppress(NotFound):  # the hub log does not cover the label yet
                    head, is_confirmed = await self._ask(log, label, None)
                    if not is_confirmed:
                        await self._search(log, label, head.upto_seq)
                if checkpoints.is_stale:
                    await checkpoints.refresh()
            checkpoints.check_age(entries[0].receipt.hub_ts)
            return label.upto

    async def wait(self, log: LabelLog, receipt: Receipt, timeout: float) -> None:
        """Wait until a receipt that is in the verified log is confirmed; raises ``Unconfirmed``."""
        label = self._labels.setdefault(log.label, LabelConfirmation())
        why = NOT_COVERED
        try:
            async with asyncio.timeout(timeout):
                while label.upto < receipt.stream_seq or self.checkpoints.is_stale:
                    why = await self._poll(log, label, receipt.stream_seq)
        except TimeoutError:
            raise Unconfirmed([receipt], timeout, why) from None
        except (Unreachable, Refused) as exc:
            raise Unconfirmed([receipt], timeout, exc.message) from exc

    async def _poll(self, log: LabelLog, label: LabelConfirmation, seq: StreamSeq) -> str:
        """Ask once, unless another sender's request has answered meanwhile; return what is missing."""
        async with label.lock:
            if label.upto >= seq and not self.checkpoints.is_stale:
                return ""
            await asyncio.sleep(max(0.0, label.due_in(POLL_SECONDS)))
            try:
                await self._ask(log, label, seq)
                self.checkpoints.check_age()
            except NotFound:
                return NOT_COVERED
            except QuorumError as exc:
                return exc.message
            return self.checkpoints.missing or NOT_COVERED

    async def _search(self, log: LabelLog, label: LabelConfirmation, high: int) -> None:
        """Find how far the label is confirmed while its newest head, at ``high``, has no quorum yet.

        The answer changes only if another hub checkpoint is accepted.
        """
        newest = self.checkpoints.newest
        if newest is None or label.searched == newest.size:
            return
        while high - label.upto > 1:
            middle = StreamSeq((label.upto + high) // 2)
            if not (await self._ask(log, label, middle))[1]:
                high = middle
        label.searched = newest.size

    async def _ask(
        self, log: LabelLog, label: LabelConfirmation, seq: StreamSeq | None
    ) -> tuple[LabelHead, bool]:
        """Ask for the newest head, or for the first that covers ``seq``; return whether it is confirmed."""
        try:
            found = await self.checkpoints.proof(log.label, seq)
        finally:
            label.asked = time.monotonic()
        newest = self.checkpoints.newest
        if newest is None or found.index >= newest.size:
            return found.head, False
        if found.head.upto_seq > label.upto:
            await log.verify_label_head(found)
            label.upto = found.head.upto_seq
        return found.head, True
