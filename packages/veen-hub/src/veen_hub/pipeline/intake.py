"""The intake: verification in worker threads, bounded, on the way to the sequencer (OP0.4, SH0.4).

Requests that arrive together are examined together: what waits on the event loop is handed to a worker as
one group, and the worker hands what passed to the sequencer. Groups reach it in the order in which they
arrived, whichever worker is done first: a sequence's messages build on each other (H14). Results come back to
the loop once per group, the refused with the others. Beyond ``max_waiting`` messages the hub says so instead
of queueing (503 and Retry-After).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from veen_core.entry import Entry
from veen_core.errors import ApiError, VeenError
from veen_core.rejection import Code
from veen_hub.admission.stateless import Submission, Supported
from veen_hub.ops.logs import LOGGER
from veen_hub.pipeline.examiner import Examiner, Verdict, examined
from veen_hub.pipeline.sequencer import Answer, Sequencer, Ticket
from veen_hub.pipeline.worker_process import has_cores
from veen_storage import Batch, PendingEntry

GROUP: Final = 64
"""Messages a worker takes at once: large enough to amortise the hand-over, small enough to spread."""

Outcome = Entry | VeenError
Admit = Callable[[Submission, Batch], PendingEntry]


@dataclass(slots=True)
class Pending:
    """One request: its messages, their outcomes in order, and what is called when all are known."""

    wires: list[bytes]
    then: Callable[[], None]
    open: int
    """How many have no outcome yet."""
    outcomes: list[Outcome | None]
    verdicts: list[Verdict | None]
    """What the stateless checks made of each message."""
    verify_seconds: float = 0.0

    @classmethod
    def of(cls, wires: list[bytes], then: Callable[[], None]) -> Pending:
        return cls(wires, then, len(wires), [None] * len(wires), [None] * len(wires))

    @property
    def settled(self) -> list[Outcome]:
        """Every outcome, when all are known."""
        return [outcome for outcome in self.outcomes if outcome is not None]


class Part(NamedTuple):
    """Messages of one request that are examined together."""

    pending: Pending
    start: int
    stop: int


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
        self._arrived: list[Pending] = []
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
        pending = Pending.of(wires, then)
        self.waiting += count
        if self.waiting == 1:
            self._alone(loop, pending)
            return pending
        if not self._arrived:
            loop.call_soon(self._dispatch, loop)
        self._arrived.append(pending)
        return pending

    def _dispatch(self, loop: asyncio.AbstractEventLoop) -> None:
        arrived, self._arrived = self._arrived, []
        for group in in_groups(arrived):
            self._pool.submit(self._work, loop, self._groups, group)
            self._groups += 1

    def _alone(self, loop: asyncio.AbstractEventLoop, pending: Pending) -> None:
        """The only message there is: the sequencer has nothing else to do, and examines it too.

        Waking another thread for it would cost as much as verifying it.
        """
        (wire,) = pending.wires

        def action(batch: Batch) -> PendingEntry:
            started = time.perf_counter()
            verdict = examined(wire, self._supported)
            pending.verify_seconds = time.perf_counter() - started
            if isinstance(verdict, VeenError):
                raise verdict
            pending.verdicts[0] = verdict
            return self._admit(verdict, batch)

        def answer(settled: list[Ticket[Any]]) -> None:
            loop.call_soon_threadsafe(self._deliver, [Part(pending, 0, 1)], [settled_outcome(settled[0])])

        self._sequencer.put([Ticket(action, len(wire))], answer)

    def _work(self, loop: asyncio.AbstractEventLoop, number: int, group: list[Part]) -> None:
        """In a worker thread: examine, then hand over to the sequencer."""
        started = time.perf_counter()
        wires = [wire for pending, start, stop in group for wire in pending.wires[start:stop]]
        verdicts = self._examine(wires)
        each, at = (time.perf_counter() - started) / len(wires), 0
        for pending, start, stop in group:
            pending.verdicts[start:stop] = verdicts[at : at + stop - start]
            pending.verify_seconds += each * (stop - start)
            at += stop - start
        tickets = [self._ticket(verdict) for verdict in verdicts if isinstance(verdict, Submission)]

        def answer(settled: list[Ticket[Any]]) -> None:
            placed = map(settled_outcome, settled)
            outcomes = [verdict if isinstance(verdict, VeenError) else next(placed) for verdict in verdicts]
            loop.call_soon_threadsafe(self._deliver, group, outcomes)

        self._hand_over(number, tickets, answer)

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

    def _hand_over(self, number: int, tickets: list[Ticket[PendingEntry]], answer: Answer) -> None:
        with self._handing_over:
            self._examined[number] = (tickets, answer)
            while (ready := self._examined.pop(self._next_group, None)) is not None:
                self._next_group += 1
                tickets, answer = ready
                if tickets:
                    self._sequencer.put(tickets, answer)
                else:
                    answer(tickets)

    def _ticket(self, submission: Submission) -> Ticket[PendingEntry]:
        return Ticket(partial(self._admit, submission), len(submission.wire))

    def _deliver(self, group: list[Part], outcomes: list[Outcome]) -> None:
        self.waiting -= len(outcomes)
        at = 0
        for pending, start, stop in group:
            pending.outcomes[start:stop] = outcomes[at : at + stop - start]
            pending.open -= stop - start
            at += stop - start
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


def in_groups(arrived: Iterable[Pending]) -> Iterator[list[Part]]:
    """Everything that arrived, ``GROUP`` messages at a time."""
    group: list[Part] = []
    room = GROUP
    for pending in arrived:
        start = 0
        while start < len(pending.wires):
            stop = min(start + room, len(pending.wires))
            group.append(Part(pending, start, stop))
            room -= stop - start
            start = stop
            if not room:
                yield group
                group, room = [], GROUP
    if group:
        yield group


def settled_outcome(ticket: Ticket[PendingEntry]) -> Outcome:
    if ticket.outcome is None:
        raise AssertionError("the sequencer settles every ticket it is given")
    return ticket.outcome.entry if isinstance(ticket.outcome, PendingEntry) else ticket.outcome
