"""Saturation: whether many messages have waited for the hub without a break, so that helper processes pay.

A helper process takes work off the hub's interpreter, but it costs more processor time than it saves, and
about 70 ms to start. A single client uses the cores better itself: with helpers, ``send_many`` took 165
instead of 153 µs per message on two cores, and 175 while they started.
"""

from __future__ import annotations

import time
from typing import Final

MIN_SECONDS: Final = 0.1
"""Time without an idle moment after which the hub is saturated."""
MIN_WAITING: Final = 65
"""Messages that must have waited at once during that time; fewer are less than one group per worker."""


class Saturation:
    """Follows how many messages wait; any thread may call ``is_saturated``."""

    def __init__(self) -> None:
        self._since: float | None = None
        """When the number of waiting messages was 0 for the last time; None: it is 0 now."""
        self._had_many = False

    def note(self, waiting: int) -> None:
        """Note the number of messages that wait now."""
        if not waiting:
            self._since, self._had_many = None, False
            return
        if self._since is None:
            self._since = time.monotonic()
        self._had_many = self._had_many or waiting >= MIN_WAITING

    def is_saturated(self) -> bool:
        since = self._since
        return self._had_many and since is not None and time.monotonic() - since >= MIN_SECONDS
