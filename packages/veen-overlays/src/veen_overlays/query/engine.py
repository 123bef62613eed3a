"""The protocol of query engines, and the answer that each of them gives to the byte (query-api §6, P11, P13).

Engines may filter, sort and aggregate *base columns* by their own means. Everything on ``payload`` goes
through ``selection`` and ``aggregation``, so that all engines agree on every byte of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from veen_overlays.query import canonical_json
from veen_overlays.query.errors import QueryError, QueryErrorCode
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.result.coverage import Prefix, SourceCoverage

Row = Mapping[str, Any]
"""A ResultRow (query-api §5.1)."""


class SourceReceipt(NamedTuple):
    """The receipt of one matched event."""

    source: int
    """Index of the event's source in ``QueryAnswer.coverage``."""
    seq: int
    receipt: bytes
    """The encoded origin RECEIPT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnswer:
    """An engine's answer: rows, the receipts behind them, and the coverage of the logs."""

    rows: Sequence[Row]
    """Rows of a selection in the order of P11, rows of an aggregate by the bytes of their group keys."""
    coverage: tuple[SourceCoverage, ...]
    """One element per prefix, in the order of the prefixes."""
    sources: Sequence[SourceReceipt] = ()
    """The receipts of all matched events, in the order of P11. In a selection, ``sources[i]`` is that of
    ``rows[i]``. With evidence mode "none" an engine may leave them out."""

    @property
    def row_count(self) -> int:
        """The number of rows after aggregation (query-api §5.2)."""
        return len(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of one query. An engine calls ``check`` as it finds events, rows and groups."""

    max_rows: int = 1_000_000
    """Most rows, or groups, of a result."""
    max_matched: int = 10_000_000
    """Most events that an aggregate may match."""
    max_bytes: int | None = None
    """Most bytes of the rows of a selection, in canonical JSON with a line end each; None: no bound. The rows
    of an aggregate are bounded by ``max_rows`` while they are made."""
    stop: Callable[[], bool] = lambda: False
    """Returns whether the query was cancelled or ran out of time."""

    def size_of(self, row: Row) -> int:
        """Return the bytes that a row counts; 0, without encoding it, if bytes are not bounded."""
        return 0 if self.max_bytes is None else len(canonical_json.encode(row)) + 1

    def check(self, *, rows: int = 0, matched: int = 0, size: int = 0) -> None:
        """Raise ``QueryError`` (limit_exceeded) if the query has used up its budget."""
        if rows > self.max_rows:
            raise _exceeded(f"the result has more than {self.max_rows} rows", "narrow the filter")
        if matched > self.max_matched:
            raise _exceeded(f"more than {self.max_matched} events match", "narrow the filter")
        if self.max_bytes is not None and size > self.max_bytes:
            raise _exceeded(f"the rows have more than {self.max_bytes} bytes", "narrow the filter")
        if self.stop():
            raise _exceeded("the query was cancelled or ran out of time", "narrow the filter, or try again")


DEFAULT_BUDGET: Final = Budget()


def _exceeded(why: str, action: str) -> QueryError:
    return QueryError(QueryErrorCode.LIMIT_EXCEEDED, why, action=action)


class QueryEngine(Protocol):
    """Executes queries over opened events."""

    def prefixes(self, scope: Sequence[str]) -> tuple[Prefix, ...]:
        """Return how far the engine can read each source of these streams now, in the order of P11.

        A stream that has no entries has an empty source (``scope_sources``). Raise ``QueryError``
        (forbidden_scope) for a stream that the engine does not know.
        """

    def execute(
        self, descriptor: QueryDescriptor, prefixes: Sequence[Prefix], budget: Budget = DEFAULT_BUDGET
    ) -> QueryAnswer:
        """Answer a query from exactly these prefixes.

        Raise ``QueryError`` (execution_failed) if the engine does not have all entries of a prefix.
        """
