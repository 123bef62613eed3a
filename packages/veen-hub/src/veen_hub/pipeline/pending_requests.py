"""Requests in the pipeline, and the order in which the pipeline takes their messages.

``waiting_room`` says what a *source* is. The messages of one source keep the order in which they arrived,
because messages build on each other (H14). While several sources wait, each has its turn: a writer with a few
messages does not wait for another writer's thousands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from veen_core.entry import Entry
from veen_core.errors import VeenError
from veen_hub.pipeline.examiner import Verdict

Outcome = Entry | VeenError
NEWCOMERS: Final = b""
"""The source of all connections over which no message was accepted yet."""
QUANTUM: Final = 16
"""Messages of one source that are taken in a row while others wait."""


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
    source: bytes
    verify_seconds: float = 0.0

    @classmethod
    def of(
        cls, wires: list[bytes], on_settled: Callable[[], None], source: bytes = NEWCOMERS
    ) -> PendingRequest:
        count = len(wires)
        return cls(wires, on_settled, count, [None] * count, [None] * count, source)

    @property
    def settled(self) -> list[Outcome]:
        """Every outcome, once all are known."""
        return [outcome for outcome in self.outcomes if outcome is not None]


class RequestSlice(NamedTuple):
    """Messages ``start`` to ``stop`` of one request."""

    pending: PendingRequest
    start: int
    stop: int


class TurnQueue:
    """Requests that wait for the pipeline."""

    def __init__(self) -> None:
        self._arrived: list[RequestSlice] = []
        """Requests in order of arrival, as long as all that wait can be taken together."""
        self._by_source: dict[bytes, deque[RequestSlice]] = {}
        """The source whose turn is next comes first."""
        self.messages = 0

    def add(self, pending: PendingRequest) -> None:
        count = len(pending.wires)
        self._arrived.append(RequestSlice(pending, 0, count))
        self.messages += count

    def take(self, size: int) -> list[RequestSlice]:
        """Return the next ``size`` messages, or all if there are fewer."""
        if self.messages <= size and not self._by_source:
            self.messages = 0
            group, self._arrived = self._arrived, []
            return group
        for part in self._arrived:
            self._by_source.setdefault(part.pending.source, deque()).append(part)
        self._arrived.clear()
        group = []
        room = min(size, self.messages)
        self.messages -= room
        while room:
            source = next(iter(self._by_source))
            waiting = self._by_source.pop(source)
            room -= _take(waiting, min(room, QUANTUM) if self._by_source else room, group)
            if waiting:
                self._by_source[source] = waiting  # at the end
        return group


def _take(waiting: deque[RequestSlice], count: int, group: list[RequestSlice]) -> int:
    """Move up to ``count`` messages to the group, and return how many."""
    left = count
    while left and waiting:
        pending, start, stop = waiting.popleft()
        end = min(stop, start + left)
        group.append(RequestSlice(pending, start, end))
        left -= end - start
        if end < stop:
            waiting.appendleft(RequestSlice(pending, end, stop))
    return count - left
