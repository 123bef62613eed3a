"""A query that was accepted, and its states (query-api-spec 8.1).

    PENDING ──▶ RUNNING ──▶ COMPLETED     the digest is in record/query/results, the rows are on disk
       │           └──────▶ FAILED        no digest was committed
       └──────────────────▶ FAILED

RUNNING goes back to PENDING only when the service starts: a run that was interrupted is run again.
COMPLETED and FAILED never change.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


class JobState(enum.StrEnum):
    """The state of a job."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


TRANSITIONS: Final[Mapping[JobState, frozenset[JobState]]] = {
    JobState.PENDING: frozenset({JobState.RUNNING, JobState.FAILED}),
    JobState.RUNNING: frozenset({JobState.COMPLETED, JobState.FAILED, JobState.PENDING}),
    JobState.COMPLETED: frozenset(),
    JobState.FAILED: frozenset(),
}
FINAL: Final = frozenset({JobState.COMPLETED, JobState.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAt:
    """Where the log holds a record: the ``record_event`` of query-api-spec 7.5."""

    stream: str
    seq: int
    hub_id: str
    receipt_id: str
    receipt: str
    """The RECEIPT in hex, which proves the other values."""

    def as_json(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "seq": self.seq,
            "hub_id": self.hub_id,
            "receipt_id": self.receipt_id,
            "receipt": self.receipt,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryJob:
    """One accepted query."""

    result_id: str
    query_id: str
    principal: str
    """Name of the principal that submitted the query."""
    descriptor: str
    """The normalised descriptor as canonical JSON."""
    ends: str
    """Up to which entry the query reads each source, encoded by ``source_end``; fixed at submission."""
    submitted_at: int
    """Milliseconds, UTC."""
    state: JobState = JobState.PENDING
    attempts: int = 0
    """How often the query was started."""
    request_mark: str
    """The end of record/query/requests before the request was recorded: a restart searches from here."""
    request: RecordedAt | None = None
    result_mark: str | None = None
    """The end of record/query/results before the digest was recorded."""
    result: RecordedAt | None = None
    digest: str | None = None
    """The ResultDigest as canonical JSON."""
    finished_at: int | None = None
    error_code: str | None = None
    message: str | None = None
    is_deleted: bool = False
    """Whether the rows of the result have expired and were deleted."""
