"""The hub's time (H3): wall-clock seconds; that hub_ts never goes back is the storage's promise."""

from __future__ import annotations

import time

from veen_core.ids import UnixTime


class WallClock:
    """The real one; tests hand in another ``veen_core.Clock``."""

    def now(self) -> UnixTime:
        return UnixTime(int(time.time()))
