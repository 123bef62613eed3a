"""Pause garbage collection during imports: it would take a sixth of the time of ``veen send``."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


class _Process:
    """Whether this process belongs to the command line, or to a program that calls it."""

    is_ours = False


def own_process() -> None:
    """Exempt everything that is imported from garbage collection, from now on.

    Modules live until the process ends: later collections and those at exit would walk over them and find
    nothing. A program that imports the command line decides about its own objects, so only the console
    script calls this.
    """
    _Process.is_ours = True


@contextmanager
def without_collection() -> Iterator[None]:
    """Pause the cycle collector in this block."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if _Process.is_ours:
            gc.freeze()
        if was_enabled:
            gc.enable()
