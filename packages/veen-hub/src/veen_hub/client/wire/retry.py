"""Retries: exponential backoff with jitter, Retry-After, and a deadline (OP0.4).

Only a missing answer, E.RATE and E.UNAVAILABLE are retried; every other answer is final. An attempt that is
under way at the deadline is aborted, so that a silent hub costs no more time than an unreachable one.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from veen_core.errors import VeenError
from veen_core.plural import plural
from veen_hub.client.errors import IF_SILENT, RateLimited, Refused, Unavailable, Unreachable

T = TypeVar("T")
MIN_TRY_SECONDS: Final = 0.5
"""Shortest time limit of an attempt, even if the deadline is nearer."""
MIN_ANSWER_SECONDS: Final = 5.0
"""Shortest time limit of an attempt at a hub that has answered before, so an answer is likely."""
PENDING_ACTION: Final = "repeat the operation (a pending message is settled first)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A retry policy. All times are in seconds."""

    max_attempts: int = 10
    first_delay: float = 0.1
    """Wait before the second attempt; it doubles before each further one."""
    max_delay: float = 5.0
    deadline: float = 60.0
    """Time for one operation with all its attempts."""
    max_outage: float = 300.0
    """How long ``follow`` waits for a hub to come back."""
    jitter: Callable[[], float] = random.random
    """Uniform in [0, 1); injectable for tests."""

    def begin(self, since: float | None = None) -> Attempts:
        """Start counting the attempts of one operation, which began now or at ``since``."""
        attempts = Attempts(self, self.max_attempts, self.deadline)
        attempts.started = attempts.started if since is None else since
        return attempts

    def begin_following(self) -> Attempts:
        """Start counting for ``follow``, which is bounded by ``max_outage`` alone."""
        return Attempts(self, None, self.max_outage)


class Attempts:
    """The attempts of one operation."""

    __slots__ = ("_deadline", "_max_attempts", "_policy", "made", "started")

    def __init__(self, policy: Retry, max_attempts: int | None, deadline: float) -> None:
        self._policy = policy
        self._max_attempts = max_attempts
        self._deadline = deadline
        self.renew()

    def renew(self) -> None:
        """Start anew after progress: both the deadline and the number of attempts."""
        self.made = 0
        self.started = time.monotonic()

    @property
    def until(self) -> float:
        """The deadline, on the monotonic clock."""
        return self.started + self._deadline

    def extend(self) -> None:
        """Start the deadline anew after an answer without progress; the delays keep growing."""
        self.started = time.monotonic()

    def delay(self, retry_after: int | None = None) -> float | None:
        """Count an attempt and return the wait before the next one; None: give up."""
        self.made += 1
        if self._max_attempts is not None and self.made >= self._max_attempts:
            return None
        step = min(self._policy.max_delay, self._policy.first_delay * 2.0 ** min(self.made - 1, 30))
        jitter = self._policy.jitter()
        wait, left = step * (0.5 + jitter / 2), self.until - time.monotonic()
        if retry_after is None:
            return min(wait, left) if left > 0 else None  # the last attempt is made at the deadline
        wait += retry_after
        # A hub tells all clients that it refuses the same seconds: they must not come back together.
        return min(wait + retry_after * jitter / 2, left) if wait <= left else None

    async def attempt(
        self, call: Callable[[], Awaitable[T]], where: str, *, min_seconds: float = MIN_TRY_SECONDS
    ) -> T:
        """Make one attempt. It may take until the deadline or ``min_seconds``, whichever is longer."""
        left = max(min_seconds, self.until - time.monotonic())
        try:
            async with asyncio.timeout(left):
                return await call()
        except TimeoutError:
            action = IF_SILENT.get(where.partition("://")[0])
            raise Unreachable(f"{where}: no answer in {left:.1f} s", action=action) from None

    async def wait(self, failure: VeenError) -> None:
        """Sleep before the next attempt; raise ``failure`` if it is final, or the policy gives up."""
        if not is_retryable(failure):
            raise failure
        retry_after = failure.retry_after if isinstance(failure, Refused) else None
        if (wait := self.delay(retry_after)) is None:
            raise self._given_up(failure)
        await asyncio.sleep(wait)

    def _given_up(self, failure: VeenError) -> VeenError:
        spent = time.monotonic() - self.started
        tried = f"gave up after {plural(max(1, self.made), 'attempt')} in {spent:.1f} s"
        if isinstance(failure, Refused):
            wait = f", the hub asks to wait {failure.retry_after} s" if failure.retry_after else ""
            return failure.with_message(f"{failure.hub_message}; {tried}{wait}", action=PENDING_ACTION)
        check = failure.action or "check that the hub runs, its address and the TLS settings"
        return Unreachable(f"{failure.message}; {tried}", action=f"{check}, then {PENDING_ACTION}")


def is_retryable(failure: VeenError) -> bool:
    """Return whether another attempt may succeed."""
    if isinstance(failure, Unreachable):
        return failure.retryable
    return isinstance(failure, RateLimited | Unavailable)


async def retrying(
    policy: Retry,
    call: Callable[[], Awaitable[T]],
    *,
    where: str = "the hub",
    min_seconds: float = MIN_TRY_SECONDS,
) -> T:
    """Repeat an idempotent request until it is answered, or the policy gives up."""
    attempts = policy.begin()
    while True:
        try:
            return await attempts.attempt(call, where, min_seconds=min_seconds)
        except (Unreachable, Refused) as exc:
            await attempts.wait(exc)
