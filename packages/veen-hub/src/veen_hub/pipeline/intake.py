"""The intake: bounded verification in worker threads, on the way to the sequencer (OP0.4, SH0.4).

Requests that arrive together are examined together: a worker takes a group of messages and passes those that
verify to the sequencer. Groups reach the sequencer in the order of arrival, whichever worker finishes
first, because the messages of a sequence build on each other (H14). The outcomes of a group return to the
event loop in one call. What would wait too long is refused with 503 and Retry-After; ``waiting_room`` has the
rules.

At most ``MAX_TAKEN`` messages are with workers and sequencer at a time. Those that wait for them are taken by
turns of their sources. A small request of a source that has nothing else here does not wait for these: the
sequencer examines and settles it next.

Every message gets an outcome. If a worker fails in a way that could leave a message without one,
``on_failure`` is called; the hub is then no longer ready, and ends.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from veen_core.errors import ApiError, VeenError
from veen_core.rejection import Code
from veen_hub.admission.stateless import ProfileAndLimits, Submission
from veen_hub.ops.logs import LOGGER
from veen_hub.pipeline.examiner import Examiner, Verdict, verdict_of
from veen_hub.pipeline.failures import internal_error
from veen_hub.pipeline.pending_requests import NEWCOMERS, Outcome, PendingRequest, RequestSlice, TurnQueue
from veen_hub.pipeline.saturation import Saturation
from veen_hub.pipeline.sequencer import UNSETTLED, OnSettled, Sequencer, Ticket
from veen_hub.pipeline.threads import started_pool
from veen_hub.pipeline.waiting_room import WaitingRoom
from veen_storage import Batch, PendingEntry

GROUP_SIZE: Final = 64
"""Messages a worker takes at once: large enough to amortise the hand-over, small enough to share the load."""

MAX_TAKEN: Final = 512
"""Messages with workers and sequencer; more would only make later ones wait longer."""
MIN_BACKLOG: Final = 64
"""Messages that wait before a small request passes them."""
MAX_DIRECT: Final = 16
"""Messages that the sequencer examines itself at a time; a request with more goes to the workers."""

Admit = Callable[[Submission, Batch], PendingEntry]


class Intake:
    """Accepts messages on the event loop and settles each through workers and sequencer."""

    def __init__(
        self,
        sequencer: Sequencer,
        supported: ProfileAndLimits,
        admit: Admit,
        *,
        workers: int,
        room: WaitingRoom,
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
        self.room = room
        self._queue = TurnQueue()
        self._will_dispatch = False
        self._taken = 0
        """Messages with workers and sequencer that came from the queue."""
        self._direct = 0
        """Messages that were given to the sequencer past the queue."""
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

    @property
    def waiting(self) -> int:
        """Messages that were accepted and have no outcome yet."""
        return self.room.waiting

    def check_room(self, source: bytes, count: int = 1) -> None:
        """Raise E.UNAVAILABLE if a request of ``count`` messages would be refused now."""
        if self._closed:
            raise ApiError(Code.UNAVAILABLE, "the hub is shutting down", retry_after=5)
        self.room.check(source, count)

    def enter(
        self, wires: list[bytes], on_settled: Callable[[], None], source: bytes = NEWCOMERS
    ) -> PendingRequest:
        """Send messages through the pipeline; ``on_settled`` is called when every one has its outcome.

        Messages are settled even if their client disconnects.
        """
        count = len(wires)
        self.check_room(source, count)
        loop = asyncio.get_running_loop()
        pending = PendingRequest.of(wires, on_settled, source)
        room = self.room
        is_modest = (
            room.waiting >= MIN_BACKLOG
            and self._direct + count <= MAX_DIRECT
            and room.is_modest(source, count)
        )
        room.enter(source, count)
        self._saturation.note(room.waiting)
        if room.waiting == 1 or is_modest:
            self._enter_directly(loop, pending)
            return pending
        self._queue.add(pending)
        if self._queue.messages >= GROUP_SIZE and self._taken < MAX_TAKEN:
            self._dispatch(loop)  # now: a turn of the loop takes long while many requests are refused
        elif not self._will_dispatch:
            self._will_dispatch = True
            loop.call_soon(self._dispatch_rest, loop)
        return pending

    def _dispatch_rest(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give what arrived in one turn of the loop to the workers."""
        self._will_dispatch = False
        self._dispatch(loop)

    def _dispatch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give messages to the workers, until these have enough."""
        try:
            while self._queue.messages and self._taken < MAX_TAKEN:
                group = self._queue.take(GROUP_SIZE)
                self._taken += size_of(group)
                self._pool.submit(self._work, loop, self._groups, group)
                self._groups += 1
        except Exception as exc:  # noqa: BLE001 - reported; the hub ends
            self._fail(exc)

    def _enter_directly(self, loop: asyncio.AbstractEventLoop, pending: PendingRequest) -> None:
        """Let the sequencer examine a small request; this saves waking a worker, and passes the queue."""
        count = len(pending.wires)
        self._direct += count

        def check(at: int) -> None:
            started = time.perf_counter()
            verdict = pending.verdicts[at] = verdict_of(pending.wires[at], self._supported)
            pending.verify_seconds += time.perf_counter() - started
            if isinstance(verdict, VeenError):
                raise verdict

        def action(at: int, batch: Batch) -> PendingEntry:
            verdict = pending.verdicts[at]
            assert isinstance(verdict, Submission)
            return self._admit(verdict, batch)

        def answer(settled: list[Ticket[Any]]) -> None:
            group = [RequestSlice(pending, 0, count)]
            loop.call_soon_threadsafe(self._deliver_direct, group, [outcome_of(ticket) for ticket in settled])

        tickets = [
            Ticket(partial(action, at), len(wire), check=partial(check, at))
            for at, wire in enumerate(pending.wires)
        ]
        self._sequencer.put(tickets, answer, first=True)

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
                loop.call_soon_threadsafe(self._deliver_taken, loop, group, outcomes)

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

    def _deliver_direct(self, group: list[RequestSlice], outcomes: list[Outcome]) -> None:
        self._direct -= len(outcomes)
        self._deliver(group, outcomes)

    def _deliver_taken(
        self, loop: asyncio.AbstractEventLoop, group: list[RequestSlice], outcomes: list[Outcome]
    ) -> None:
        self._taken -= len(outcomes)
        if self._queue.messages:
            self._dispatch(loop)  # before the answers: the workers have nothing to do
        self._deliver(group, outcomes)

    def _deliver(self, group: list[RequestSlice], outcomes: list[Outcome]) -> None:
        at, room = 0, self.room
        for pending, start, stop in group:
            count = stop - start
            pending.outcomes[start:stop] = outcomes[at : at + count]
            pending.open -= count
            at += count
            room.settle(pending.source, count)
            if pending.open == 0:
                room.leave()
                try:
                    pending.on_settled()
                except Exception:  # noqa: BLE001 - logged; other requests of the group get their answers
                    LOGGER.exception("answer_failed")
        room.rate.note_settled(len(outcomes), room.waiting)
        self._saturation.note(room.waiting)

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


def size_of(group: list[RequestSlice]) -> int:
    """Return the number of messages of a group."""
    return sum([stop - start for _pending, start, stop in group])


def outcome_of(ticket: Ticket[PendingEntry]) -> Outcome:
    """Return the entry of an accepted message, or the error of a refused one."""
    if ticket.outcome is UNSETTLED:
        raise AssertionError("the sequencer left a ticket unsettled")
    return ticket.outcome.entry if isinstance(ticket.outcome, PendingEntry) else ticket.outcome
