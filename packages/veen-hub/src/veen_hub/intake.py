"""The intake: verification in worker threads, bounded, on the way to the sequencer (OP0.4, SH0.4).

Requests that arrive together are examined together: what waits on the event loop is handed to a worker as
one group, and the worker hands what passed to the sequencer. Groups reach it in the order in which they
arrived, whichever worker is done first: a sequence's messages build on each other (H14). Results come back to
the loop once per group. Beyond ``max_waiting`` messages the hub says so instead of queueing (503 and
Retry-After).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from veen_core.entry import Entry
from veen_core.errors import ApiError, VeenError
from veen_core.rejection import Code
from veen_hub.apart import has_cores
from veen_hub.examination import Submission, Supported
from veen_hub.examiner import Examiner, Verdict, examined
from veen_hub.logs import LOGGER
from veen_hub.sequencer import Answer, Sequencer, Ticket
from veen_storage.writer import Batch, Place

GROUP: Final = 64
"""Messages a worker takes at once: large enough to amortise the hand-over, small enough to spread."""

Outcome = Entry | VeenError
Admit = Callable[[Submission, Batch], Place]


@dataclass(slots=True)
class Pending:
    """One request: its messages, their outcomes in order, and what is called when all are known."""

    wires: list[bytes]
    then: Callable[[], None]
    outcomes: list[Outcome | None] = field(default_factory=list)
    submissions: list[Submission | None] = field(default_factory=list)
    """What the stateless checks made of each message that passed them."""
    open: int = 0
    verify_seconds: float = 0.0

    @property
    def settled(self) -> list[Outcome]:
        """Every outcome, when all are known."""
        return [outcome for outcome in self.outcomes if outcome is not None]


class Intake:
    """Used from the event loop only."""

    def __init__(
        self, sequencer: Sequencer, supported: Supported, admit: Admit, *, workers: int, max_waiting: int
    ) -> None:
        self._sequencer = sequencer
        self._supported = supported
        self._admit = admit
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="veen-verify")
        self._max_waiting = max_waiting
        self.waiting = 0
        self._arrived: list[tuple[Pending, int]] = []
        self._closed = False
        self._groups = 0
        self._next_group = 0
        self._examined: dict[int, tuple[list[Ticket[Any]], Answer]] = {}
        """Groups that are done before one that arrived earlier."""
        self._handing_over = threading.Lock()
        self._own = threading.local()
        self._examiners: list[Examiner] = []
        self._apart = has_cores()

    def enter(self, wires: list[bytes], then: Callable[[], None]) -> Pending:
        """Every message on its way through the whole pipeline; ``then`` is called when all are settled.

        A client that hangs up stops waiting; what is on its way goes on.
        """
        if self._closed:
            raise ApiError(Code.UNAVAILABLE, "the hub is shutting down", retry_after=5)
        count = len(wires)
        if self.waiting + count > self._max_waiting:
            raise ApiError(Code.UNAVAILABLE, "too many messages wait for verification", retry_after=1)
        loop = asyncio.get_running_loop()
        pending = Pending(wires, then, [None] * count, [None] * count, count)
        self.waiting += count
        if self.waiting == 1:
            self._alone(loop, pending)
            return pending
        if not self._arrived:
            loop.call_soon(self._dispatch, loop)
        self._arrived.extend((pending, position) for position in range(count))
        return pending

    def _dispatch(self, loop: asyncio.AbstractEventLoop) -> None:
        arrived, self._arrived = self._arrived, []
        for at in range(0, len(arrived), GROUP):
            self._pool.submit(self._work, loop, self._groups, arrived[at : at + GROUP])
            self._groups += 1

    def _alone(self, loop: asyncio.AbstractEventLoop, pending: Pending) -> None:
        """The only message there is: the sequencer has nothing else to do, and examines it too.

        Waking another thread for it would cost as much as verifying it.
        """
        (wire,) = pending.wires

        def action(batch: Batch) -> Place:
            started = time.perf_counter()
            verdict = examined(wire, self._supported)
            pending.verify_seconds = time.perf_counter() - started
            if isinstance(verdict, VeenError):
                raise verdict
            pending.submissions[0] = verdict
            return self._admit(verdict, batch)

        def answer(settled: list[Ticket[Any]]) -> None:
            loop.call_soon_threadsafe(self._deliver, [(pending, 0, settled_outcome(settled[0]))])

        self._sequencer.put([Ticket(action, len(wire))], answer)

    def _work(self, loop: asyncio.AbstractEventLoop, number: int, group: list[tuple[Pending, int]]) -> None:
        """In a worker thread: examine, then hand over to the sequencer."""
        started = time.perf_counter()
        refused: list[tuple[Pending, int, Outcome]] = []
        passed: list[tuple[Pending, int]] = []
        tickets: list[Ticket[Place]] = []
        verdicts = self._examine([pending.wires[position] for pending, position in group])
        for (pending, position), verdict in zip(group, verdicts, strict=True):
            if isinstance(verdict, VeenError):
                refused.append((pending, position, verdict))
            else:
                pending.submissions[position] = verdict
                passed.append((pending, position))
                tickets.append(Ticket(self._action(verdict), len(verdict.wire)))
        each = (time.perf_counter() - started) / len(group)
        for pending, _position in group:
            pending.verify_seconds += each
        if refused:
            loop.call_soon_threadsafe(self._deliver, refused)

        def answer(settled: list[Ticket[Any]]) -> None:
            outcomes: list[tuple[Pending, int, Outcome]] = [
                (pending, position, settled_outcome(ticket))
                for (pending, position), ticket in zip(passed, settled, strict=True)
            ]
            loop.call_soon_threadsafe(self._deliver, outcomes)

        self._hand_over(number, list(tickets), answer)

    def _examine(self, wires: list[bytes]) -> Sequence[Verdict]:
        """By this thread's own examiner. Every message gets a verdict: later groups wait for this one."""
        try:
            if (mine := getattr(self._own, "examiner", None)) is None:
                mine = self._own.examiner = Examiner(self._supported, apart=self._apart)
                self._examiners.append(mine)
            return mine.examine(wires)
        except Exception:  # noqa: BLE001 - logged; a bug refuses one group, not the hub
            LOGGER.exception("bug in the intake")
            failed = ApiError(Code.UNAVAILABLE, "internal error: see the hub's log", retry_after=5)
            return [failed] * len(wires)

    def _hand_over(self, number: int, tickets: list[Ticket[Any]], answer: Answer) -> None:
        with self._handing_over:
            self._examined[number] = (tickets, answer)
            while (ready := self._examined.pop(self._next_group, None)) is not None:
                self._next_group += 1
                if ready[0]:
                    self._sequencer.put(*ready)

    def _action(self, submission: Submission) -> Callable[[Batch], Place]:
        return lambda batch: self._admit(submission, batch)

    def _deliver(self, outcomes: list[tuple[Pending, int, Outcome]]) -> None:
        self.waiting -= len(outcomes)
        for pending, position, outcome in outcomes:
            pending.outcomes[position] = outcome
            pending.open -= 1
            if pending.open == 0:
                self._tell(pending)

    @staticmethod
    def _tell(pending: Pending) -> None:
        try:
            pending.then()
        except Exception:  # noqa: BLE001 - logged; a bug in one answer keeps nobody else waiting
            LOGGER.exception("bug in an answer")

    async def drain(self) -> None:
        """Stop accepting, and wait until everything accepted is settled."""
        self._closed = True
        while self.waiting:
            await asyncio.sleep(0.005)
        self._pool.shutdown()
        for examiner in self._examiners:
            examiner.close()


def settled_outcome(ticket: Ticket[Place]) -> Outcome:
    if ticket.outcome is None:
        raise AssertionError("the sequencer settles every ticket it is given")
    return ticket.outcome.entry if isinstance(ticket.outcome, Place) else ticket.outcome
