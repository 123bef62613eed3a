"""How often the interpreter looks for cycles of objects that nobody refers to."""

from __future__ import annotations

import gc
from typing import Final

MANY: Final = 20_000
"""New objects before it looks; Python's own 700 is thirty messages of a hub under load."""


def collect_rarely() -> None:
    """When a process has started: what is there now stays, and messages make no cycles.

    Each look walks over every message that waits for the disk and finds nothing: a tenth of the time that a
    message of a batch took. Refusals are kept without their frames, so that they are no cycles either.
    """
    gc.freeze()
    gc.set_threshold(MANY, 20, 50)
