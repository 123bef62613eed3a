"""A clock for one of the selftest's own hubs: so fast that an epoch turns while a check waits (§12).

Found by the entry point ``veen_hub.clocks``, as ``policy`` is found by its own.
"""

from __future__ import annotations

import time
from typing import Final

from veen_core.ids import UnixTime

PACE: Final = 20
"""Seconds of the hub to one of everybody else: an epoch of ``rotating`` lasts three."""


class FastClock:
    """Right when it is made, and ahead from then on."""

    def __init__(self) -> None:
        self._made = time.time()

    def now(self) -> UnixTime:
        return UnixTime(int(self._made + PACE * (time.time() - self._made)))
