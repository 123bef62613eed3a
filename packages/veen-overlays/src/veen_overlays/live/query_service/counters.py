"""Counts of what the service does; the program that starts it exposes them as metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class ServiceCounters:
    """Counts since the start. Keys are small and fixed: no count is kept per query or per client address."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Requests by operation and HTTP status."""
    finished: Counter[str] = field(default_factory=Counter)
    """Finished queries by outcome: ``completed``, or the error_code."""
    rows: int = 0
    """Rows of completed results."""
    seconds: float = 0.0
    """Running time of all queries, in seconds."""
    unauthenticated: int = 0
    """Requests without valid credentials; they are counted and logged, and not written to the log."""
    records: Counter[str] = field(default_factory=Counter)
    """Records written, by stream."""
    record_failures: int = 0
    """Records that the hub did not take at the first attempt."""
