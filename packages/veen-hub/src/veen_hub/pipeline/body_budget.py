"""Memory budget for submit bodies, from the first byte of a body to its answer (SH0.4).

Without a bound, a few thousand connections that each send most of a long sequence and then pause could
exhaust the memory. The first ``FREE_BYTES`` of each body are not counted, so that large senders cannot keep
small messages out.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from veen_core.errors import ApiError
from veen_core.rejection import Code

MAX_BYTES: Final = 256 * 1_048_576
FREE_BYTES: Final = 64 * 1_024


class BodyBudget:
    """Bytes of bodies in memory; used from the event loop only."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self.held = 0

    def lease(self) -> BodyLease:
        """Return the lease of one body, which starts with 0 bytes."""
        return BodyLease(self)


class BodyLease:
    """The bytes of one body that count against the budget; as a context manager, releases them."""

    __slots__ = ("_budget", "_counted")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._counted = 0

    def grow_to(self, size: int) -> None:
        """Count a body of ``size`` bytes; raise E.UNAVAILABLE if the budget is spent."""
        more = size - FREE_BYTES - self._counted
        if more <= 0:
            return
        if self._budget.held + more > self._budget.max_bytes:
            raise ApiError(Code.UNAVAILABLE, "too many bytes of messages are being processed", retry_after=1)
        self._counted += more
        self._budget.held += more

    def release(self) -> None:
        self._budget.held -= self._counted
        self._counted = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.release()
