"""The hub's time (H3): wall-clock seconds; that hub_ts never goes back is the storage's promise."""

from __future__ import annotations

import time

from veen_core.errors import ConfigError
from veen_core.ids import UnixTime
from veen_core.protocols import Clock
from veen_hub import extension


def load_clock(name: str) -> Clock:
    """By entry point: one that follows a time server's leap seconds, say, or a test's."""
    made = extension.make(extension.CLOCKS, name, "clock")
    if not isinstance(made, Clock):
        raise ConfigError(f"clock: {name!r} is not a Clock")
    return made


class WallClock:
    """The machine's own; the default."""

    def now(self) -> UnixTime:
        return UnixTime(int(time.time()))
