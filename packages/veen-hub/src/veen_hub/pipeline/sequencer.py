"""The sequencer: one thread decides order, one group commit at a time (DESIGN, §8.1 stage 4).

Everything that changes the log is an action on a batch: a submission, an authorization, a checkpoint, an
anchor, a retention decision. Whatever waits forms one batch; each action is admitted in turn, the batch is
committed, and only then does anybody get an answer (H2).
"""

from __future__ import annotations

import logging
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
from veen_storage import Batch, Store

T = TypeVar("T")

MAX_ACTIONS: Final = 1_024
MAX_BYTES: Final = 8 * 1_048_576
"""A batch takes no more than this, so that one round's latency stays bounded."""


@dataclass(slots=True)
class Ticket(Generic[T]):
    """One action and where its outcome goes."""

    action: Callable[[Batch], T]
    size: int
    reads: bool = False
    """Changes nothing: answered also while nothing can be acknowledged."""
    outcome: T | VeenError | None = None


Answer = Callable[[list[Ticket[Any]]], None]
"""Called in the sequencer's thread with tickets that are settled."""


class Sequencer:
    """Start it, hand it tickets from any thread, stop it: what was handed in is settled first."""

    def __init__(
        self, store: Store, clock: Clock, policy: AdmissionPolicy, observe: Observer | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._policy = policy
        self._observe = observe
        self._waiting: deque[tuple[list[Ticket[Any]], Answer]] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._sync_seconds = 0.0
        self._told: str | None = None
        self._thread = threading.Thread(target=self._run, name="veen-sequencer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Drain, then end."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.ident is not None:  # else it was never started
            self._thread.join()

    def put(self, tickets: list[Ticket[Any]], answer: Answer) -> None:
        with self._changed:
            self._waiting.append((tickets, answer))
            self._changed.notify()

    @property
    def depth(self) -> int:
        """Groups of tickets that wait for their turn."""
        return len(self._waiting)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                if not self._waiting:
                    return
                taken = self._take()
            self._settle(taken)

    def _take(self) -> list[tuple[list[Ticket[Any]], Answer]]:
        taken, actions, size = [], 0, 0
        while self._waiting and actions < MAX_ACTIONS and size < MAX_BYTES:
            taken.append(self._waiting.popleft())
            actions += len(taken[-1][0])
            size += sum(ticket.size for ticket in taken[-1][0])
        return taken

    def _settle(self, taken: list[tuple[list[Ticket[Any]], Answer]]) -> None:
        started = time.perf_counter()
        tickets = [ticket for group, _answer in taken for ticket in group]
        batch = self._store.batch(self._clock.now())
        failure = self._commit(tickets, batch)
        for group, answer in taken:
            answer(group)
        if self._observe is not None:
            self._observe(batch, time.perf_counter() - started, self._sync_seconds, failure is None)

    def _commit(self, tickets: list[Ticket[Any]], batch: Batch) -> ApiError | None:
        """Every ticket decided and the batch durable; or why nothing of it happened."""
        failure, self._sync_seconds = None, 0.0
        try:
            for ticket in tickets:
                if ticket.reads:  # the state before this batch
                    self._decide(ticket, batch)
            if (why := self._store.poisoned) is not None:
                self._tell(why)
                raise storage_failed()  # "File too large" would be read as the message's fault
            if (why := self._policy.stale(batch.hub_ts)) is not None:
                raise ApiError(Code.UNAVAILABLE, why, retry_after=5)
            for ticket in tickets:
                if not ticket.reads:
                    self._decide(ticket, batch)
            batch.sign()
            started = time.perf_counter()
            self._store.commit(batch)  # the commit point: no outcome is shown before it
            self._sync_seconds = time.perf_counter() - started
        except ApiError as exc:
            failure = exc
        except VeenError as exc:  # file names and reasons are the operator's business
            log(logging.ERROR, "a batch failed", error=str(exc))
            failure = storage_failed()
        except Exception:  # noqa: BLE001 - logged; a bug fails its batch, and the thread goes on
            LOGGER.exception("bug in the sequencer")
            failure = ApiError(Code.UNAVAILABLE, "internal error: see the hub's log", retry_after=5)
        for ticket in tickets:
            if failure is not None and not ticket.reads:
                ticket.outcome = failure
        return failure

    def _tell(self, why: str) -> None:
        """Once, not for every batch that is refused for it."""
        if why != self._told:
            self._told = why
            log(logging.ERROR, "nothing is acknowledged until the hub is started again", error=why)

    @staticmethod
    def _decide(ticket: Ticket[Any], batch: Batch) -> None:
        """A refusal, or a failure that placed nothing, is this ticket's own; any other is the batch's."""
        before = batch.length
        try:
            ticket.outcome = ticket.action(batch)
        except (AdmissionError, ApiError) as exc:
            ticket.outcome = without_frames(exc)  # they hold this ticket
        except VeenError as exc:
            if batch.length != before:
                raise
            ticket.outcome = without_frames(exc)


def storage_failed() -> ApiError:
    """What a client is told; paths and reasons are the operator's business."""
    return ApiError(Code.UNAVAILABLE, "storage failed: see the hub's log", retry_after=5)


class Observer(Protocol):
    """Sees every settled batch, how long it took, how long of that to sync, and whether it is durable."""

    def __call__(self, batch: Batch, seconds: float, sync_seconds: float, committed: bool) -> None: ...
