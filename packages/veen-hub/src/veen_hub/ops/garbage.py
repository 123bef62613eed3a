"""How often the interpreter looks for cycles of objects that nobody refers to, and what keeps them few."""

from __future__ import annotations

import gc
from typing import Final, TypeVar

MANY: Final = 20_000
"""New objects before it looks; Python's own 700 is thirty messages of a hub under load."""

E = TypeVar("E", bound=BaseException)


def collect_rarely() -> None:
    """When a process has started: what is there now stays, and requests make no cycles.

    Each look walks over every message that waits for the disk and finds nothing: a tenth of the time that a
    message of a batch took. Whatever is refused or cut off must be no cycle either: it may be megabytes, and
    few objects. So an error that outlives its handling is kept ``without_frames``.
    """
    gc.freeze()
    gc.set_threshold(MANY, 20, 50)


def without_frames(error: E) -> E:
    """An error that is kept: its frames, and those of what led to it, may hold whoever keeps it."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
