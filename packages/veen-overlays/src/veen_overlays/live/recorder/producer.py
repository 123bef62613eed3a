"""A producer of recorder events: checks each event at once, sends in batches from a thread (SDR0 3.2, 3.3.2).

``record`` checks and routes the event in the caller's thread, so that a wrong event is refused where it is
made. The sender thread takes what has queued up and sends one batch per stream; the caller waits for no hub.
``flush`` waits until every queued event is durable. If the hub cannot be reached, events stay in the queue,
and a full queue makes ``record`` wait: no event is dropped silently. A process that ends closes its recorders
(``process_exit``). Events that are still queued when the process is killed are lost; ``sync=True`` makes
``record`` return only when the event is durable.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from veen_core.errors import StateError, VeenError
from veen_core.ids import ClientId, DhPublicKey
from veen_core.keys import SigningKey
from veen_core.receipt import Receipt
from veen_overlays.live.recorder.process_exit import close_at_exit, forget
from veen_overlays.recorder.events import EventMaker, RoutedEvent
from veen_overlays.recorder.records import sign_continuity
from veen_overlays.recorder.role_settings import parse_role
from veen_overlays.recorder.roles import PRODUCER
from veen_overlays.schema.record import Record

MAX_QUEUED_EVENTS: Final = 10_000
MAX_BATCH_EVENTS: Final = 512
RETRY_SECONDS: Final = 2.0
"""Pause after a failed batch; the client has retried by itself before."""
CLOSE_SECONDS: Final = 20.0
"""Longest time that closing waits for the hub; shorter than the usual 30 s before a service is killed."""
INTERRUPT_SECONDS: Final = 1.0
"""Longest time that a closed sender thread has to end by itself, before its call to the hub is cancelled."""

logger = logging.getLogger(__name__)


class EventSending(Protocol):
    """Events that are being sent: an iterator of receipts; the shape of veen-hub's ``BlockingSending``."""

    def __iter__(self) -> Iterator[Receipt]: ...
    @property
    def acknowledged(self) -> int: ...
    def settle(self) -> None: ...


class EventStream(Protocol):
    """A stream to send to; the shape of veen-hub's ``BlockingStream``."""

    def client_id(self) -> ClientId: ...
    def send_many(self, bodies: Sequence[Record]) -> EventSending: ...


class ProducerRole(Protocol):
    """A connected role; the shape of veen-hub's ``OpenRole``."""

    @property
    def settings(self) -> Mapping[str, Any]: ...
    @property
    def client_id(self) -> ClientId: ...
    @property
    def signing_key(self) -> SigningKey: ...
    @property
    def writes_as_identity(self) -> bool: ...
    def stream(self, name: str, *, to: DhPublicKey | None = None) -> EventStream: ...
    def close(self) -> None: ...


class Recorder:
    """Records the events of one service; safe to use from several threads."""

    def __init__(
        self,
        role: ProducerRole,
        *,
        sync: bool = False,
        max_queued: int = MAX_QUEUED_EVENTS,
        retry_seconds: float = RETRY_SECONDS,
        close_seconds: float = CLOSE_SECONDS,
    ) -> None:
        """``close_seconds``: longest time that closing, and the end of the process, wait for the hub."""
        settings = parse_role(role.settings)
        settings.require(PRODUCER, "emit")
        self.maker = EventMaker(profile=settings.profile, principal=role.client_id, origin=settings.origin)
        self._closing = threading.Event()
        self._delivery = _Delivery(role, settings.recipient, self._closing)
        self._role, self._sync, self._max_queued, self._retry = role, sync, max_queued, retry_seconds
        self._queue: deque[RoutedEvent] = deque()
        self._changed = threading.Condition()
        self._sending = 0
        self._ended = False
        self._process = os.getpid()
        self.close_seconds = close_seconds
        self.failure: Exception | None = None
        """The error of the last failed batch; None once a batch has arrived again."""
        self._thread = threading.Thread(target=self._run, name="veen-recorder", daemon=True)
        self._thread.start()
        close_at_exit(self)

    def record(
        self,
        event_type: str,
        *,
        subject: str,
        payload: Any = None,
        event_time: int | None = None,
        origin: str | None = None,
    ) -> None:
        """Check an event and queue it; raise ``EventError`` or ``ConfigError`` if it may not be recorded.

        ``event_time`` is in milliseconds, by default now. Waits while the queue is full.
        """
        at = time.time_ns() // 1_000_000 if event_time is None else event_time
        made = self.maker.make(event_type, subject=subject, event_time=at, payload=payload, origin=origin)
        if self._is_inherited:
            raise StateError(f"{self._why_over()}; the {event_type} event was not recorded")
        with self._changed:
            self._changed.wait_for(lambda: len(self._queue) < self._max_queued or self._is_over())
            if self._is_over():
                raise StateError(f"{self._why_over()}; the {event_type} event was not recorded")
            self._queue.append(made)
            self._changed.notify_all()
        if self._sync and not self.flush():
            raise StateError(f"{self._why_over()}; the {event_type} event may not be durable")

    def _is_over(self) -> bool:
        return self._ended or self._closing.is_set()

    def _why_over(self) -> str:
        if self._is_inherited:
            return "the recorder belongs to the parent process, and a fork has no sender thread"
        if self._closing.is_set():
            return "the recorder is closed"
        return f"the recorder has stopped after an unexpected error: {self.failure!r}"

    @property
    def pending(self) -> int:
        """Events that are not known to be durable."""
        with self._changed:
            return len(self._queue) + self._sending

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called, or this process is a fork of the recorder's own."""
        return self._closing.is_set() or self._is_inherited

    @property
    def _is_inherited(self) -> bool:
        """Whether this process is a fork: it has no sender thread, and its locks may be held for ever."""
        return self._process != os.getpid()

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until no event is pending; return False after ``timeout`` seconds, or if sending has ended."""
        if self._is_inherited:
            return False
        with self._changed:
            self._changed.wait_for(lambda: self._ended or not (self._queue or self._sending), timeout)
            return not self._queue and not self._sending

    def close(self, timeout: float | None = None) -> int:
        """Send what is queued, for at most ``timeout`` seconds, and close; return how many were not sent.

        The default ``timeout`` is ``close_seconds``. A call to the hub that is under way then is cancelled.
        """
        if self.is_closed:
            return 0 if self._is_inherited else self.pending
        self.flush(self.close_seconds if timeout is None else timeout)
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(INTERRUPT_SECONDS)
        self._role.close()
        self._thread.join()
        forget(self)
        if lost := self.pending:
            logger.error("recorder_closed_with_events", extra={"events": lost, "reason": str(self.failure)})
        return lost

    def lost_text(self) -> str:
        """Say how many events of a closed recorder are not recorded, and why."""
        events = "1 event" if self.pending == 1 else f"{self.pending} events"
        are = "is" if self.pending == 1 else "are"
        why = self.failure or f"the hub did not accept them within {self.close_seconds:g} s"
        return f"{events} of {self.maker.origin} {are} not recorded: {why}"

    # --- the sender thread

    def _run(self) -> None:
        try:
            self._send_batches()
        except Exception as exc:  # the callers of record and flush must know
            self.failure = exc
            logger.exception("recorder_stopped")
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _send_batches(self) -> None:
        while batch := self._next_batch():
            by_stream: dict[str, list[Record]] = {}
            for each in batch:
                by_stream.setdefault(each.stream, []).append(each.event)
            for name, events in by_stream.items():
                self._send(name, events)

    def _next_batch(self) -> list[RoutedEvent]:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing.is_set())
            if self._closing.is_set():
                return []
            batch = [self._queue.popleft() for _ in range(min(MAX_BATCH_EVENTS, len(self._queue)))]
            self._sending = len(batch)
            self._changed.notify_all()
            return batch

    def _send(self, name: str, events: list[Record]) -> None:
        """Send events until all are durable, or until the recorder is closed."""
        left = events
        while left:
            sent, failure = self._delivery.attempt(name, left)
            if failure is None or not self._closing.is_set():  # closing is not the cause of a failure
                self.failure = failure
            left = left[sent:]
            with self._changed:
                self._sending -= sent
                self._changed.notify_all()
            if failure is not None:
                logger.warning("recorder_batch_failed", extra={"stream_name": name, "reason": str(failure)})
                if self._closing.wait(self._retry):
                    return


class _Delivery:
    """Sends batches; links each client_id of an open hub to the identity before its first event (P10)."""

    def __init__(self, role: ProducerRole, recipient: DhPublicKey | None, closing: threading.Event) -> None:
        self._role, self._recipient, self._closing = role, recipient, closing
        self._linked: dict[str, ClientId] = {}

    def attempt(self, name: str, events: Sequence[Record]) -> tuple[int, VeenError | None]:
        """Send events; return how many are durable, beginning with the first, and the error, if any."""
        stream = self._role.stream(name, to=self._recipient)
        try:
            self._link(name, stream)
        except VeenError as exc:
            return 0, exc
        sending = stream.send_many(events)
        try:
            for _ in sending:
                pass
        except VeenError as exc:
            return self._settled(sending), exc
        return sending.acknowledged, None

    def _settled(self, sending: EventSending) -> int:
        """Find out which events arrived; wait for the hub, since guessing would lose or double events.

        Once the recorder is closed, unanswered events stay in the client's state, and count as not sent.
        """
        while True:
            try:
                sending.settle()
            except VeenError:
                if not self._closing.wait(RETRY_SECONDS):
                    continue
            return sending.acknowledged

    def _link(self, name: str, stream: EventStream) -> None:
        if self._role.writes_as_identity:
            return
        client = stream.client_id()
        if client == self._role.client_id or self._linked.get(name) == client:
            return
        for _ in stream.send_many([sign_continuity(self._role.signing_key, client)]):
            pass
        self._linked[name] = client
