"""When to try again: exponential backoff with jitter, Retry-After, and an end (OP0.4).

A policy is a value; ``begin`` starts counting one operation, and a try that is under way when patience ends
is cut off: a hub that takes a request and stays silent costs no more than one that is not there. Only
silence, E.RATE and E.UNAVAILABLE are tried again: every other answer is one.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from veen_core.errors import VeenError
from veen_hub.client.errors import RateLimited, Refused, Unavailable, Unreachable

T = TypeVar("T")
MIN_TRY_SECONDS: Final = 0.5
"""Seconds that any try has, also the one that is made when patience ends."""
MIN_ANSWER_SECONDS: Final = 5.0
"""Those of a question to a hub that has answered before: the answer is worth more than a little patience."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Seconds, except ``attempts``. ``outage`` is how long ``follow`` waits for a hub to come back."""

    max_attempts: int = 10
    first_delay: float = 0.1
    max_delay: float = 5.0
    deadline: float = 60.0
    max_outage: float = 300.0
    jitter: Callable[[], float] = random.random
    """In [0, 1); replaceable, as is everything else that is not a fact."""

    def begin(self) -> Attempts:
        return Attempts(self, self.max_attempts, self.deadline)

    def begin_following(self) -> Attempts:
        return Attempts(self, None, self.max_outage)


class Attempts:
    """One operation's tries."""

    __slots__ = ("_deadline", "_left", "_most", "_policy", "_started", "made")

    def __init__(self, policy: Retry, most: int | None, deadline: float) -> None:
        self._policy = policy
        self._most = most
        self._deadline = deadline
        self.renew()

    def renew(self) -> None:
        """Something got through: count from here."""
        self.made = 0
        self._started = time.monotonic()

    @property
    def until(self) -> float:
        """When patience ends (monotonic)."""
        return self._started + self._deadline

    def heard(self) -> None:
        """An answer, though nothing came of it: patience starts anew, the waits go on growing."""
        self._started = time.monotonic()

    def delay(self, retry_after: int | None = None) -> float | None:
        """How long to wait before the next try; None: there is none."""
        self.made += 1
        if self._most is not None and self.made >= self._most:
            return None
        step = min(self._policy.max_delay, self._policy.first_delay * 2.0 ** min(self.made - 1, 30))
        wait, left = step * (0.5 + self._policy.jitter() / 2), self.until - time.monotonic()
        if retry_after is None:
            return min(wait, left) if left > 0 else None  # the last try is made when patience ends
        return wait + retry_after if wait + retry_after <= left else None

    async def trying(
        self, call: Callable[[], Awaitable[T]], where: str, *, least: float = MIN_TRY_SECONDS
    ) -> T:
        """One try; it may take until patience ends, and ``least`` seconds in any case."""
        left = max(least, self.until - time.monotonic())
        try:
            async with asyncio.timeout(left):
                return await call()
        except TimeoutError:
            raise Unreachable(f"{where}: no answer in {left:.1f} s") from None

    async def wait(self, why: VeenError) -> None:
        """Sleep before the next try, or raise ``why`` with what was tried."""
        retry_after = why.retry_after if isinstance(why, Refused) else None
        if not is_retryable(why) or (wait := self.delay(retry_after)) is None:
            raise self._given_up(why)
        await asyncio.sleep(wait)

    def _given_up(self, why: VeenError) -> VeenError:
        if not is_retryable(why):
            return why
        spent = time.monotonic() - self._started
        tried = f"gave up after {max(1, self.made)} tries in {spent:.1f} s"
        settled = "a message under way is settled by the next operation"
        if isinstance(why, Refused):
            wait = f", the hub asks to wait {why.retry_after} s" if why.retry_after else ""
            return why.saying(f"{why.hub_message}; {tried}{wait}; {settled}")
        action = why.action or "check that the hub runs, its address and the TLS settings"
        return Unreachable(f"{why.message}; {tried}", action=f"{action}; {settled}")


def is_retryable(why: VeenError) -> bool:
    if isinstance(why, Unreachable):
        return why.retryable
    return isinstance(why, RateLimited | Unavailable)


async def retrying(
    policy: Retry, call: Callable[[], Awaitable[T]], *, where: str = "the hub", least: float = MIN_TRY_SECONDS
) -> T:
    """``call`` until it answers; for requests that may be repeated."""
    attempts = policy.begin()
    while True:
        try:
            return await attempts.trying(call, where, least=least)
        except (Unreachable, Refused) as exc:
            await attempts.wait(exc)
