"""Bodies of submits in memory, from their first byte to their answer: only so many bytes at once (SH0.4).

Without a bound, a few thousand connections that each send most of a long sequence, and then nothing, fill any
memory. What a body has up to ``FREE`` is not counted: whoever sends little is not kept out by who sends much.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from veen_core.errors import ApiError
from veen_core.rejection import Code

MOST: Final = 256 * 1_048_576
FREE: Final = 64 * 1_024


class Bodies:
    """Used from the event loop."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.held = 0


class Body:
    """One of them, ``with`` which a request is handled."""

    __slots__ = ("_all", "_counted")

    def __init__(self, all_: Bodies) -> None:
        self._all = all_
        self._counted = 0

    def has_grown_to(self, size: int) -> None:
        """Raises if there is no room for it."""
        more = size - FREE - self._counted
        if more <= 0:
            return
        if self._all.held + more > self._all.most:
            raise ApiError(Code.UNAVAILABLE, "too many bytes of messages are under way", retry_after=1)
        self._counted += more
        self._all.held += more

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._all.held -= self._counted
