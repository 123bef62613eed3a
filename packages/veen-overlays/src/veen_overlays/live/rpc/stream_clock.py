"""The hub's time as its status and the entries of a stream show it, advanced by the monotonic clock (H3)."""

from __future__ import annotations

from collections.abc import Callable


class StreamClock:
    """An estimate of the hub's clock in whole seconds, never ahead of that clock."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._hub_ts, self._heard = 0, monotonic()

    def observe(self, hub_ts: int) -> None:
        """Take in the hub_ts of an entry that was just read, or the hub's time now."""
        if hub_ts > self._hub_ts:
            self._hub_ts, self._heard = hub_ts, self._monotonic()

    @property
    def now(self) -> int:
        """The hub's time; too small until the hub's time or a fresh entry was read."""
        return self._hub_ts + int(self._monotonic() - self._heard)
