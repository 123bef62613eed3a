"""A fast clock for one of the selftest's own hubs, so that an epoch ends while a check waits (§12).

The hub loads it by the entry point ``veen_hub.clocks``.
"""

from __future__ import annotations

import time
from typing import Final

from veen_core.ids import UnixTime

CLOCK_SPEED: Final = 20
"""Seconds of this clock per second: an epoch of the profile ``rotating``, 60 s, lasts 3 s."""


class FastClock:
    """Starts at the current time and runs ``CLOCK_SPEED`` times as fast."""

    def __init__(self) -> None:
        self._made = time.time()

    def now(self) -> UnixTime:
        return UnixTime(int(self._made + CLOCK_SPEED * (time.time() - self._made)))
