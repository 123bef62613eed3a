"""The hub's clock (H3): seconds since 1970. Storage guarantees that hub_ts never decreases."""

from __future__ import annotations

import time

from veen_core.errors import ConfigError
from veen_core.ids import UnixTime
from veen_core.protocols import Clock
from veen_hub import extension


def load_clock(name: str) -> Clock:
    """Load a clock by entry point."""
    made = extension.make(extension.CLOCKS, name, "clock")
    if not isinstance(made, Clock):
        raise ConfigError(f"clock: {name!r} is not a Clock")
    return made


class WallClock:
    """The machine's clock; the default."""

    def now(self) -> UnixTime:
        return UnixTime(int(time.time()))
