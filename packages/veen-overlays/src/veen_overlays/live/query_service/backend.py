"""The interface between the service and its backend, which follows streams and executes queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from veen_overlays.live.query_service.source_end import SourceEnd
from veen_overlays.query.engine import Budget
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.result.digest import ResultDigest


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedQuery:
    """A query that was executed and whose evidence was verified."""

    rows: Iterable[bytes]
    """Each row as canonical JSON, in order."""
    digest: ResultDigest
    file: Callable[[ResultDigest], bytes]
    """Returns the result file that ``veen query verify`` reads, with this digest."""


class QueryBackend(Protocol):
    """Follows the streams of a deployment and executes queries over them."""

    @property
    def streams(self) -> frozenset[str]:
        """The streams that queries may name."""

    def problem(self) -> str | None:
        """Why queries cannot be answered now; None if they can."""

    async def ends(self, scope: Sequence[str]) -> tuple[SourceEnd, ...]:
        """Bring the view of these streams up to their present ends and return how far it reaches."""

    async def execute(
        self, descriptor: QueryDescriptor, ends: Sequence[SourceEnd], executed_at: int, budget: Budget
    ) -> ExecutedQuery:
        """Execute a query over exactly these sources and verify its evidence.

        Raise ``QueryError`` (execution_failed, limit_exceeded) if that is impossible. ``executed_at`` is in
        milliseconds.
        """
