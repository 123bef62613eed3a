"""``SparkEngine``: queries over logs of any size, with rows byte-equal to the plain loop's (query-api §6).

    view = read_view(spark, "view")                      # or: view_of_logs(spark, ["clone"], scope, keys)
    engine = SparkEngine(view)
    answer = engine.execute(descriptor, engine.prefixes(descriptor.scope))

Spark filters by subject, type and commit time, counts, and moves rows and groups. Rows, and every value of a
payload, are made by the functions of ``veen_overlays.query`` in Arrow passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from veen_overlays.query.engine import DEFAULT_BUDGET, Budget, QueryAnswer, Row, SourceReceipt
from veen_overlays.query.errors import execution_failed
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.request.evidence_policy import EvidenceMode
from veen_overlays.query.result.coverage import Prefix
from veen_overlays.query.scope_sources import is_empty_source, scope_prefixes
from veen_spark.query import selecting
from veen_spark.query.aggregating import aggregate_rows
from veen_spark.query.event_rows import PLACE, needed_columns
from veen_spark.query.event_view import EventView
from veen_spark.query.prefix_rows import count, coverage, matching, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

UNKNOWN: Final = ("is not in the given logs", "give a log of this stream, or a clone of the hub")


class SparkEngine:
    """A ``QueryEngine`` on Spark."""

    def __init__(self, view: EventView) -> None:
        self._view = view
        self.heads: dict[tuple[bytes, int], bytes] = {}
        """The RECEIPT of the last entry of each prefix that was read, by label and ``to_seq``."""

    def prefixes(self, scope: Sequence[str]) -> tuple[Prefix, ...]:
        """Return the sources of these streams in the order of P11."""
        return scope_prefixes(self._view.prefixes, scope, self._view.homes, UNKNOWN)

    def execute(
        self, descriptor: QueryDescriptor, prefixes: Sequence[Prefix], budget: Budget = DEFAULT_BUDGET
    ) -> QueryAnswer:
        """Answer a query from exactly these prefixes."""
        for prefix in prefixes:
            self._check(prefix)
        budget.check()
        rows, streams = rows_of(self._view.frame, prefixes), [prefix.stream for prefix in prefixes]
        counted = count(rows, prefixes)
        for prefix, found_rows in zip(prefixes, counted, strict=True):
            self.heads[bytes(prefix.label), prefix.to_seq] = found_rows.last_receipt
        budget.check()
        with_evidence = descriptor.evidence.mode != EvidenceMode.NONE
        columns = needed_columns(descriptor, receipts=with_evidence)
        found = rows.where(matching(descriptor)).select(*PLACE, *columns)
        if descriptor.aggregate is None:
            table, matched = selecting.in_order(
                selecting.project(found, descriptor, streams),
                lambda counts: budget.check(rows=counts.total(), matched=counts.total()),
            )
            selected = selecting.JsonRows(table.column("row"))
            budget.check(size=selected.size)
            made: Sequence[Row] = selected
            sources: Sequence[SourceReceipt] = selecting.MatchedReceipts(table) if with_evidence else ()
        else:
            made, sources, matched = self._aggregated(found, descriptor, streams, budget)
        covered = [coverage(p, counted[n], matched[n]) for n, p in enumerate(prefixes)]
        return QueryAnswer(rows=made, coverage=tuple(covered), sources=sources)

    def _aggregated(
        self, found: DataFrame, descriptor: QueryDescriptor, streams: Sequence[str], budget: Budget
    ) -> tuple[Sequence[Row], Sequence[SourceReceipt], Counter[int]]:
        rows, matched = aggregate_rows(found, descriptor, streams, budget)
        budget.check(matched=matched.total())
        if descriptor.evidence.mode == EvidenceMode.NONE:
            return rows, (), matched
        table, _ = selecting.in_order(
            selecting.receipts(found, descriptor, streams),
            lambda counts: budget.check(matched=counts.total()),
        )
        return rows, selecting.MatchedReceipts(table), matched

    def _check(self, prefix: Prefix) -> None:
        """Raise ``QueryError`` unless the view has all entries of a prefix."""
        if is_empty_source(prefix):
            return
        key = (prefix.stream, prefix.hub_id, prefix.label)
        held = next((p for p in self._view.prefixes if (p.stream, p.hub_id, p.label) == key), None)
        if held is None:
            raise execution_failed(
                f"there are no entries of {prefix.stream!r}, label {prefix.label.hex()}",
                "give the logs in which this stream is recorded",
            )
        if prefix.from_seq != held.from_seq or prefix.to_seq > held.to_seq:
            raise execution_failed(
                f"the log of {prefix.stream!r}, label {prefix.label.hex()}, has the entries {held.from_seq} "
                f"to {held.to_seq}, not {prefix.from_seq} to {prefix.to_seq}",
                "give a later copy of the log, or query an earlier prefix",
            )
