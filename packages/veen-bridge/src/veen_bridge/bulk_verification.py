"""Bulk verification: helper processes and rarer garbage collection while many events are verified.

On two cores an export takes a sixth less time with both (ADR 0016).
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final

from veen_bridge.signature_processes import SignatureProcesses, usable_cores
from veen_core.signatures import assisted

MIN_EVENTS: Final = 2_000
"""Fewest events for which processes are started: a process is ready after about 0.1 s."""
GC_THRESHOLD: Final = 20_000
"""New objects before a collection. Python's default of 700 is reached in every page of a log."""

_is_bulk: ContextVar[bool] = ContextVar("is_bulk", default=False)
"""Whether this task runs in a ``bulk_verification`` block; threads that the task starts inherit the value."""


@contextlib.contextmanager
def bulk_verification(events: int) -> Iterator[None]:
    """Let helper processes verify signatures while the block runs, if it handles many events.

    A nested block uses the processes of the outer block.
    """
    if events < MIN_EVENTS or _is_bulk.get():
        yield
        return
    with _rare_collections(), _marked(), contextlib.ExitStack() as stack:
        if usable_cores() > 1:
            processes = stack.enter_context(contextlib.closing(SignatureProcesses()))
            stack.enter_context(assisted(processes))
        yield


@contextlib.contextmanager
def _marked() -> Iterator[None]:
    token = _is_bulk.set(True)
    try:
        yield
    finally:
        _is_bulk.reset(token)


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Exempt all existing objects from garbage collection, and collect rarely, while the block runs."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
