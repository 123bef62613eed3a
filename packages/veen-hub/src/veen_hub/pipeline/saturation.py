"""Saturation: whether messages have waited for the hub without a break, so that helper processes pay.

A helper process takes work off the hub's interpreter, but it costs more processor time than it saves, and
about 70 ms to start. A client that sends one request after the other uses the cores better itself: with
helpers, ``send_many`` took 165 instead of 153 µs per message on two cores, and 175 while they started.
"""

from __future__ import annotations

import time
from typing import Final

SATURATED_SECONDS: Final = 0.1
"""Time without an idle moment after which the hub is saturated."""


class Saturation:
    """Tells how long the hub has had work; any thread may call ``is_saturated``."""

    def __init__(self) -> None:
        self._since: float | None = None

    def begin(self) -> None:
        """Note that the first message has arrived after an idle moment."""
        self._since = time.monotonic()

    def end(self) -> None:
        """Note that no message waits."""
        self._since = None

    def is_saturated(self) -> bool:
        since = self._since
        return since is not None and time.monotonic() - since >= SATURATED_SECONDS
