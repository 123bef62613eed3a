"""The sequencer: one thread decides the order of everything, one group commit at a time (§8.1 stage 4).

Every change of the log is an action on a batch: a submission, an authorization, a checkpoint, an anchor, a
retention decision. All waiting actions form one batch. Each is admitted in turn, the batch is committed, and
only then is any of them answered (H2).

Every ticket is answered. If the thread itself fails, it answers all waiting tickets with E.UNAVAILABLE and
calls ``on_failure``; the hub is then no longer ready, and ends.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from veen_core.errors import AdmissionError, ApiError, VeenError
from veen_core.protocols import Clock
from veen_core.rejection import Code
from veen_hub.admission.policy import AdmissionPolicy
from veen_hub.ops.garbage import without_frames
from veen_hub.ops.logs import LOGGER, log
from veen_hub.pipeline.failures import internal_error, storage_failed
from veen_hub.pipeline.signing_gate import SigningGate
from veen_storage import Batch, Store

T = TypeVar("T")

MAX_BATCH_ACTIONS: Final = 1_024
MAX_BATCH_BYTES: Final = 8 * 1_048_576
"""Together with ``MAX_BATCH_ACTIONS``, bounds the latency of one batch."""
MAX_SHARED_ACTIONS: Final = 64
"""Actions of one batch while groups come that pass others: each of these waits for the batch before it."""
SHARED_SEC: Final = 1.0
"""How long batches stay small after such a group."""
RECENT_SEC: Final = 1.0
"""After a message, for how long readers expect another one."""
PAUSE_SEC: Final = 0.000_02
BUSY_PAUSE_SEC: Final = 0.000_5
"""How long readers pause, after some 0.2 ms of work, if there may be a message, or if there is one."""
UNSETTLED: Final[Any] = object()
"""The outcome of a ticket that is not decided yet; not None, which is a valid outcome."""


@dataclass(slots=True)
class Ticket(Generic[T]):
    """One action for the sequencer, and its outcome."""

    action: Callable[[Batch], T]
    size: int
    reads: bool = False
    """The action changes nothing: it runs even while the hub cannot acknowledge messages."""
    check: Callable[[], None] | None = None
    """Stateless checks, run before the action, even while the hub cannot acknowledge messages (I13)."""
    ends_batch: bool = False
    """No later group is in the same batch: what the action covers is the whole batch."""
    outcome: T | VeenError = UNSETTLED


OnSettled = Callable[[list[Ticket[Any]]], None]
"""Called in the sequencer's thread with a group of settled tickets."""


class BatchObserver(Protocol):
    """Called after every batch with its durations in seconds and whether it is durable."""

    def __call__(self, batch: Batch, seconds: float, sync_seconds: float, committed: bool) -> None: ...


class Sequencer:
    """The thread that settles tickets; ``put`` may be called from any thread."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        policy: AdmissionPolicy,
        *,
        gate: SigningGate,
        observe: BatchObserver | None = None,
        on_failure: Callable[[str], None] = lambda _why: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._policy = policy
        self._gate = gate
        self._observe = observe
        self._on_failure = on_failure
        self._waiting: deque[tuple[list[Ticket[Any]], OnSettled]] = deque()
        self._first: deque[tuple[list[Ticket[Any]], OnSettled]] = deque()
        """Groups that pass those in ``_waiting``."""
        self._only_first = False
        """The batch before had nothing but such groups."""
        self._small_until = 0.0
        self._changed = threading.Condition()
        self._stopping = False
        self._failed = False
        self._is_settling = False
        self._settled_at = -math.inf
        self._sync_seconds = 0.0
        self._logged_poison: str | None = None
        self._thread = threading.Thread(target=self._run, name="veen-sequencer", daemon=True)

    def give_way(self) -> None:
        """Pause a reader thread in the middle of its work, if there is a message or may be one soon.

        The interpreter lets a thread compute for 5 ms while others wait, and a message needs several turns.
        """
        if self._is_settling:
            time.sleep(BUSY_PAUSE_SEC)
        elif time.monotonic() - self._settled_at < RECENT_SEC:
            time.sleep(PAUSE_SEC)

    def give_turn(self) -> None:
        """Let the sequencer's thread have its turn now, if it has messages; for the event loop."""
        if self._is_settling:
            time.sleep(PAUSE_SEC)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Settle all waiting tickets, then end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.ident is not None:  # None: it was never started
            self._thread.join()

    def put(self, tickets: list[Ticket[Any]], answer: OnSettled, *, first: bool = False) -> None:
        """Queue a group of tickets; ``answer`` is called once all of them are settled.

        ``first``: settle the group before those that wait already, if possible in a batch of its own.
        """
        with self._changed:
            if not self._failed:
                (self._first if first else self._waiting).append((tickets, answer))
                self._changed.notify()
                return
        _fail(tickets, answer)

    def _run(self) -> None:
        try:
            while taken := self._take():
                self._is_settling = True
                self._settle(taken)
                self._settled_at = time.monotonic()
                self._is_settling = False
        except BaseException as exc:  # noqa: BLE001 - reported; the hub ends
            LOGGER.critical("sequencer_failed", exc_info=exc)
            with self._changed:
                self._failed = True
                rest = [*self._first, *self._waiting]
            for tickets, answer in rest:
                with contextlib.suppress(Exception):
                    _fail(tickets, answer)
            self._on_failure(f"the sequencer failed: {type(exc).__name__}: {exc}")

    def _take(self) -> list[tuple[list[Ticket[Any]], OnSettled]]:
        """Wait for tickets and return one batch of them; empty when the sequencer must end."""
        taken, actions, size = [], 0, 0
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._first or self._stopping)
            if self._first:
                self._small_until = time.monotonic() + SHARED_SEC
            self._only_first = bool(self._first) and not self._only_first  # every second batch is for all
            small = self._small_until and self._small_until > time.monotonic()
            max_actions = MAX_SHARED_ACTIONS if small else MAX_BATCH_ACTIONS
            while (
                (queue := self._first or (None if self._only_first else self._waiting))
                and actions < max_actions
                and size < MAX_BATCH_BYTES
            ):
                taken.append(queue.popleft())
                actions += len(taken[-1][0])
                size += sum(ticket.size for ticket in taken[-1][0])
                if taken[-1][0][-1].ends_batch:
                    break
        return taken

    def _settle(self, taken: list[tuple[list[Ticket[Any]], OnSettled]]) -> None:
        started = time.perf_counter()
        batch, committed = self._commit([ticket for group, _answer in taken for ticket in group])
        failure: Exception | None = None
        for group, answer in taken:
            try:
                answer(group)
            except Exception as exc:  # noqa: BLE001 - raised once the other groups have their answers
                failure = exc
        if failure is not None:
            raise failure
        if self._observe is None or batch is None:
            return
        try:
            self._observe(batch, time.perf_counter() - started, self._sync_seconds, committed)
        except Exception:  # noqa: BLE001 - logged; metrics are wrong by one batch, the log is not
            LOGGER.exception("observer_failed")

    def _commit(self, tickets: list[Ticket[Any]]) -> tuple[Batch | None, bool]:
        """Settle every ticket; return the batch and whether it is durable."""
        self._sync_seconds = 0.0
        batch, undecided = None, tickets
        try:
            undecided = [ticket for ticket in tickets if not _is_refused(ticket)]
            batch = self._store.batch(self._clock.now())
            for ticket in undecided:
                if ticket.reads:  # a read sees the state before this batch
                    self._read(ticket, batch)
            undecided = [ticket for ticket in undecided if not ticket.reads]
            self._check_can_acknowledge(batch)
            for ticket in undecided:
                self._decide(ticket, batch)
            batch.sign()
            started = time.perf_counter()
            self._store.commit(batch)  # the commit point: no outcome is shown before it
            self._sync_seconds = time.perf_counter() - started
        except (ApiError, AdmissionError) as exc:
            failure = exc
        except VeenError as exc:  # file names and reasons are for the operator
            log(logging.ERROR, "batch_failed", error=str(exc))
            failure = storage_failed()
        except Exception:  # noqa: BLE001 - logged; a bug fails its batch, and the thread continues
            LOGGER.exception("batch_failed")
            failure = internal_error()
        else:
            return batch, True
        for ticket in undecided:
            ticket.outcome = failure
        return batch, False

    def _check_can_acknowledge(self, batch: Batch) -> None:
        if (why := self._store.poisoned) is not None:
            if why != self._logged_poison:  # once, not for every batch
                self._logged_poison = why
                log(logging.ERROR, "storage_poisoned", error=why, action="start the hub again")
            raise storage_failed()
        self._gate.check()
        if (why := self._policy.stale(batch.hub_ts)) is not None:
            raise ApiError(Code.UNAVAILABLE, why, retry_after=5)

    @staticmethod
    def _read(ticket: Ticket[Any], batch: Batch) -> None:
        """Settle a ticket that only reads; its failure does not affect the batch."""
        try:
            ticket.outcome = ticket.action(batch)
        except VeenError as exc:
            ticket.outcome = without_frames(exc)
        except Exception:  # noqa: BLE001 - logged; a failed read must not be answered with E.NOT_FOUND
            LOGGER.exception("read_failed")
            ticket.outcome = internal_error()

    @staticmethod
    def _decide(ticket: Ticket[Any], batch: Batch) -> None:
        """Settle a ticket; if it fails after it has added to the batch, the whole batch fails."""
        before = batch.length
        try:
            ticket.outcome = ticket.action(batch)
        except (AdmissionError, ApiError) as exc:
            ticket.outcome = without_frames(exc)
        except VeenError as exc:
            if batch.length != before:
                raise
            ticket.outcome = without_frames(exc)


def _is_refused(ticket: Ticket[Any]) -> bool:
    """Run the ticket's stateless checks, and settle it if they refuse it."""
    if ticket.check is None:
        return False
    try:
        ticket.check()
    except (AdmissionError, ApiError) as exc:
        ticket.outcome = without_frames(exc)
        return True
    return False


def _fail(tickets: list[Ticket[Any]], answer: OnSettled) -> None:
    for ticket in tickets:
        ticket.outcome = internal_error()
    answer(tickets)
