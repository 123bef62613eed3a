"""The intake: bounded verification in worker threads, on the way to the sequencer (OP0.4, SH0.4).

Requests that arrive together are examined together: a worker takes a group of messages and passes those that
verify to the sequencer. Groups reach the sequencer in the order of arrival, whichever worker finishes
first, because the messages of a sequence build on each other (H14). The outcomes of a group return to the
event loop in one call. Beyond ``max_waiting`` messages the hub answers 503 with Retry-After instead of
queueing.

Every message gets an outcome. If a worker fails in a way that could leave a message without one,
``on_failure`` is called; the hub is then no longer ready, and ends.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from veen_core.entry import Entry
from veen_core.errors import ApiError, VeenError
from veen_core.rejection import Code
from veen_hub.admission.stateless import ProfileAndLimits, Submission
from veen_hub.ops.logs import LOGGER
from veen_hub.pipeline.examiner import Examiner, Verdict, verdict_of
from veen_hub.pipeline.failures import internal_error
from veen_hub.pipeline.saturation import Saturation
from veen_hub.pipeline.sequencer import UNSETTLED, OnSettled, Sequencer, Ticket
from veen_hub.pipeline.threads import started_pool
from veen_storage import Batch, PendingEntry

GROUP_SIZE: Final = 64
"""Messages a worker takes at once: large enough to amortise the hand-over, small enough to share the load."""

Outcome = Entry | VeenError
Admit = Callable[[Submission, Batch], PendingEntry]


@dataclass(slots=True)
class PendingRequest:
    """The messages of one request, and their outcomes in the same order."""

    wires: list[bytes]
    on_settled: Callable[[], None]
    """Called on the event loop when every message has its outcome."""
    open: int
    """Messages without an outcome."""
    outcomes: list[Outcome | None]
    verdicts: list[Verdict | None]
    """Results of the stateless checks."""
    verify_seconds: float = 0.0

    @classmethod
    def of(cls, wires: list[bytes], on_settled: Callable[[], None]) -> PendingRequest:
        return cls(wires, on_settled, len(wires), [None] * len(wires), [None] * len(wires))

    @property
    def settled(self) -> list[Outcome]:
        """Every outcome, once all are known."""
        return [outcome for outcome in self.outcomes if outcome is not None]


class RequestSlice(NamedTuple):
    """Messages ``start`` to ``stop`` of one request."""

    pending: PendingRequest
    start: int
    stop: int


class Intake:
    """Accepts messages on the event loop and settles each through workers and sequencer."""

    def __init__(
        self,
        sequencer: Sequencer,
        supported: ProfileAndLimits,
        admit: Admit,
        *,
        workers: int,
        max_waiting: int,
        saturation: Saturation,
        use_processes: Callable[[], bool] = lambda: False,
        on_failure: Callable[[str], None] = lambda _why: None,
    ) -> None:
        """``use_processes``: whether groups are examined in helper processes now."""
        self._sequencer = sequencer
        self._supported = supported
        self._admit = admit
        self._on_failure = on_failure
        self._pool = started_pool(workers, "veen-verify")
        self._max_waiting = max_waiting
        self.waiting = 0
        """Messages that were accepted and have no outcome yet."""
        self._arrived: list[PendingRequest] = []
        self._closed = False
        self._groups = 0
        self._next_group = 0
        self._examined: dict[int, tuple[list[Ticket[Any]], OnSettled]] = {}
        """Groups that finished before one that arrived earlier."""
        self._handing_over = threading.Lock()
        self._thread = threading.local()
        self._examiners: list[Examiner] = []
        self._saturation = saturation
        self._use_processes = use_processes

    def enter(self, wires: list[bytes], on_settled: Callable[[], None]) -> PendingRequest:
        """Send messages through the pipeline; ``on_settled`` is called when every one has its outcome.

        Messages are settled even if their client disconnects.
        """
        if self._closed:
            raise ApiError(Code.UNAVAILABLE, "the hub is shutting down", retry_after=5)
        count = len(wires)
        if self.waiting + count > self._max_waiting:
            raise ApiError(Code.UNAVAILABLE, "too many messages wait for verification", retry_after=1)
        loop = asyncio.get_running_loop()
        pending = PendingRequest.of(wires, on_settled)
        self.waiting += count
        self._saturation.note(self.waiting)
        if self.waiting == 1:
            self._enter_alone(loop, pending)
            return pending
        if not self._arrived:
            loop.call_soon(self._dispatch, loop)
        self._arrived.append(pending)
        return pending

    def _dispatch(self, loop: asyncio.AbstractEventLoop) -> None:
        arrived, self._arrived = self._arrived, []
        try:
            for group in in_groups(arrived):
                self._pool.submit(self._work, loop, self._groups, group)
                self._groups += 1
        except Exception as exc:  # noqa: BLE001 - reported; the hub ends
            self._fail(exc)

    def _enter_alone(self, loop: asyncio.AbstractEventLoop, pending: PendingRequest) -> None:
        """Let the sequencer examine the only message in the hub; this saves waking a worker."""
        (wire,) = pending.wires

        def check() -> None:
            started = time.perf_counter()
            verdict = pending.verdicts[0] = verdict_of(wire, self._supported)
            pending.verify_seconds = time.perf_counter() - started
            if isinstance(verdict, VeenError):
                raise verdict

        def action(batch: Batch) -> PendingEntry:
            verdict = pending.verdicts[0]
            assert isinstance(verdict, Submission)
            return self._admit(verdict, batch)

        def answer(settled: list[Ticket[Any]]) -> None:
            loop.call_soon_threadsafe(self._deliver, [RequestSlice(pending, 0, 1)], [outcome_of(settled[0])])

        self._sequencer.put([Ticket(action, len(wire), check=check)], answer)

    def _work(self, loop: asyncio.AbstractEventLoop, number: int, group: list[RequestSlice]) -> None:
        """In a worker thread: examine a group and pass it to the sequencer."""
        try:
            wires = [wire for pending, start, stop in group for wire in pending.wires[start:stop]]
            started = time.perf_counter()
            verdicts = self._examine(wires)
            self._note_verdicts(group, verdicts, time.perf_counter() - started)
            tickets = [self._ticket(verdict) for verdict in verdicts if isinstance(verdict, Submission)]

            def answer(settled: list[Ticket[Any]]) -> None:
                placed = map(outcome_of, settled)
                outcomes = [v if isinstance(v, VeenError) else next(placed) for v in verdicts]
                loop.call_soon_threadsafe(self._deliver, group, outcomes)

            self._hand_over(number, tickets, answer)
        except BaseException as exc:  # noqa: BLE001 - reported; the hub ends
            self._fail(exc)

    def _examine(self, wires: list[bytes]) -> Sequence[Verdict]:
        """Examine with this thread's own examiner; a bug refuses the group."""
        try:
            if (examiner := getattr(self._thread, "examiner", None)) is None:
                examiner = self._thread.examiner = Examiner(self._supported, enabled=self._use_processes)
                self._examiners.append(examiner)
            return examiner.examine(wires)
        except Exception:  # noqa: BLE001 - logged; later groups wait until this one is handed over
            LOGGER.exception("examination_failed")
            return [internal_error()] * len(wires)

    @staticmethod
    def _note_verdicts(group: list[RequestSlice], verdicts: Sequence[Verdict], seconds: float) -> None:
        each, at = seconds / len(verdicts), 0
        for pending, start, stop in group:
            pending.verdicts[start:stop] = verdicts[at : at + stop - start]
            pending.verify_seconds += each * (stop - start)
            at += stop - start

    def _hand_over(self, number: int, tickets: list[Ticket[PendingEntry]], answer: OnSettled) -> None:
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

    def _deliver(self, group: list[RequestSlice], outcomes: list[Outcome]) -> None:
        self.waiting -= len(outcomes)
        self._saturation.note(self.waiting)
        at = 0
        for pending, start, stop in group:
            pending.outcomes[start:stop] = outcomes[at : at + stop - start]
            pending.open -= stop - start
            at += stop - start
            if pending.open == 0:
                try:
                    pending.on_settled()
                except Exception:  # noqa: BLE001 - logged; other requests of the group get their answers
                    LOGGER.exception("answer_failed")

    def _fail(self, exc: BaseException) -> None:
        LOGGER.critical("intake_failed", exc_info=exc)
        self._on_failure(f"the intake failed: {type(exc).__name__}: {exc}")

    async def drain(self, failed: asyncio.Event) -> None:
        """Stop accepting and wait until every message has its outcome, or the pipeline has failed."""
        self._closed = True
        while self.waiting and not failed.is_set():
            await asyncio.sleep(0.005)
        self._pool.shutdown(wait=not failed.is_set())
        for examiner in self._examiners:
            examiner.close()


def in_groups(arrived: Iterable[PendingRequest]) -> Iterator[list[RequestSlice]]:
    """Split everything that arrived into groups of ``GROUP_SIZE`` messages."""
    group: list[RequestSlice] = []
    room = GROUP_SIZE
    for pending in arrived:
        start = 0
        while start < len(pending.wires):
            stop = min(start + room, len(pending.wires))
            group.append(RequestSlice(pending, start, stop))
            room -= stop - start
            start = stop
            if not room:
                yield group
                group, room = [], GROUP_SIZE
    if group:
        yield group


def outcome_of(ticket: Ticket[PendingEntry]) -> Outcome:
    """Return the entry of an accepted message, or the error of a refused one."""
    if ticket.outcome is UNSETTLED:
        raise AssertionError("the sequencer left a ticket unsettled")
    return ticket.outcome.entry if isinstance(ticket.outcome, PendingEntry) else ticket.outcome
