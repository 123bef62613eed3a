"""The waiting room: which requests may wait for the pipeline, and in which order it takes them (OP0.4).

A queue that is bounded by its length alone is 8,192 messages long while a hub is overloaded, and everything
that it accepts has waited a second. So the bound is a time: the estimated wait, from the rate at which
messages were settled lately.

The room is divided among *sources*. A source is a writer whose message the hub has accepted over the same
connection, so no client can use up another writer's share. All connections without an accepted message are
one source, ``NEWCOMERS``. While several sources wait, the pipeline takes messages of each in turn: a source
with ``own`` messages, one of ``n`` sources, waits ``own * n / rate``. The rules, in order:

1. With the request, no more than ``max_messages`` wait. This bounds memory.
2. If fewer than ``FREE_REQUESTS`` requests and at most ``FREE_MESSAGES`` messages wait, the request is
   accepted. A slow machine does not refuse clients that send a batch each.
3. The estimated wait of the source is at most ``max_seconds``; it is at most half of that while everything in
   the room would take longer. For a source with nothing in the room only the turn of its first message
   counts: many clients that send a large batch each share the hub, and none is refused again and again.

Used from the event loop only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from veen_core.errors import ApiError
from veen_core.rejection import Code

FREE_REQUESTS: Final = 256
FREE_MESSAGES: Final = 1_024
ASSUMED_RATE: Final = 5_000.0
"""Messages per second, until the rate is measured for the first time."""
MIN_SAMPLE_SEC: Final = 0.1
"""Shortest time over which the rate is measured."""
SAMPLE_WEIGHT: Final = 0.5
"""Weight of the newest sample; the earlier ones have the rest."""

REASONS: Final = {
    "messages": "too many messages wait for verification",
    "wait": "messages wait too long for verification",
    "share": "messages wait too long for verification, and most of them are this writer's",
}

MODESTY: Final = 4
"""A request is small if the sources in the room have this many times as many messages, on average."""


class SettlingRate:
    """Messages settled per second, measured over times in which messages waited without a break."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.per_second = ASSUMED_RATE
        self._is_measured = False
        self._since: float | None = None
        """When the present sample was begun; None while nothing waits."""
        self._settled = 0

    def note_waiting(self) -> None:
        """Note that messages wait."""
        if self._since is None:
            self._since, self._settled = self._clock(), 0

    def note_settled(self, count: int, waiting: int) -> None:
        """Note that messages were settled, and how many wait now."""
        if self._since is None:
            return
        self._settled += count
        now = self._clock()
        if now - self._since >= MIN_SAMPLE_SEC:
            self._add(self._settled / (now - self._since))
            self._since, self._settled = now, 0
        if not waiting:
            self._since = None

    def _add(self, sample: float) -> None:
        step = SAMPLE_WEIGHT if self._is_measured else 1.0
        self._is_measured = True
        self.per_second = max(1.0, self.per_second + step * (sample - self.per_second))


class WaitingRoom:
    """Counts what is in the pipeline, by source, and refuses what would wait too long."""

    def __init__(
        self,
        max_messages: int,
        max_seconds: float,
        rate: SettlingRate | None = None,
    ) -> None:
        self._max_messages = max_messages
        self._max_seconds = max_seconds
        self.rate = rate or SettlingRate()
        self.waiting = 0
        """Messages that were accepted and have no outcome yet."""
        self.requests = 0
        """Requests that were accepted and have no answer yet."""
        self.refused = dict.fromkeys(REASONS, 0)
        """Requests that were refused, by reason."""
        self._by_source: dict[bytes, int] = {}
        """Messages without an outcome."""

    @property
    def estimated_wait(self) -> float:
        """Seconds until everything that waits now is settled."""
        return self.waiting / self.rate.per_second

    @property
    def load(self) -> float:
        """How full the room is, from 0 to 1."""
        return min(1.0, max(self.waiting / self._max_messages, self.estimated_wait / self._max_seconds))

    def is_modest(self, source: bytes, count: int) -> bool:
        """Return whether a request of ``count`` messages is small beside what the others have here."""
        by_source = self._by_source
        return source not in by_source and self.waiting >= MODESTY * count * len(by_source)

    def check(self, source: bytes, count: int) -> None:
        """Raise E.UNAVAILABLE if a request of ``count`` messages may not wait."""
        if (why := self.why_not(source, count)) is not None:
            raise self.refuse(why)

    def why_not(self, source: bytes, count: int) -> str | None:
        """Return the reason why a request of ``count`` messages may not wait; None if it may."""
        waiting = self.waiting
        if waiting + count > self._max_messages:
            return "messages"
        if self.requests < FREE_REQUESTS and waiting + count <= FREE_MESSAGES:
            return None
        own, sources = self._by_source.get(source, 0), len(self._by_source)
        allowed = self.rate.per_second * self._max_seconds
        if not own:
            return "wait" if sources >= allowed else None
        share = (own + count) * sources
        if share > allowed or (waiting + count > allowed and 2 * share > allowed):
            return "share" if own * sources > waiting else "wait"
        return None

    def refuse(self, why: str) -> ApiError:
        """Count a refusal, and return its error."""
        self.refused[why] += 1
        return ApiError(Code.UNAVAILABLE, REASONS[why], retry_after=max(1, math.ceil(self.estimated_wait)))

    def enter(self, source: bytes, count: int) -> None:
        """Count a request."""
        self.rate.note_waiting()
        self.waiting += count
        self.requests += 1
        self._by_source[source] = self._by_source.get(source, 0) + count

    def settle(self, source: bytes, count: int) -> None:
        """Take messages that have their outcomes off the count."""
        left = self._by_source[source] - count
        if left:
            self._by_source[source] = left
        else:
            del self._by_source[source]
        self.waiting -= count

    def leave(self) -> None:
        """Take a request that has all its outcomes off the count."""
        self.requests -= 1
