"""The embedded engine: answers queries from a view, equal to the plain loop to the byte (query-api §6, P11).

SQL filters and sorts base columns, and aggregates them if no receipts are wanted. Payloads, receipt_ids and
evidence are evaluated on the fetched rows by the same functions as in the plain loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from veen_core.ids import HubId
from veen_overlays.live.query_view.database import Database, DatabaseLimits
from veen_overlays.live.query_view.files.data_files import KINDS
from veen_overlays.live.query_view.files.manifest import DamagedViewError
from veen_overlays.live.query_view.plan import Plan, opened_in, plan
from veen_overlays.live.query_view.snapshot import Snapshot
from veen_overlays.live.query_view.sql import COLUMN_OF, Parameters, SourceCut, rows_sql
from veen_overlays.live.query_view.sql_aggregate import (
    aggregate_sql,
    columns_of,
    is_sql_aggregate,
    is_sql_field,
    rows_of,
)
from veen_overlays.live.query_view.view import QueryView
from veen_overlays.query.aggregation import Aggregation
from veen_overlays.query.columns import EntryKind
from veen_overlays.query.engine import DEFAULT_BUDGET, Budget, QueryAnswer, SourceReceipt
from veen_overlays.query.errors import execution_failed
from veen_overlays.query.event import receipt_id
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.request.evidence_policy import EvidenceMode
from veen_overlays.query.request.fields import QueryField
from veen_overlays.query.request.filter import Filter
from veen_overlays.query.result.coverage import Prefix, SourceCoverage, covered
from veen_overlays.query.scope_sources import scope_prefixes
from veen_overlays.query.selection import FieldReader, Selection

_PLACE: Final = ("stream", "hub_id", "label", "epoch", "seq")
_ORDER: Final = "stream, hub_id, epoch, label, seq"
DEFAULT_LIMITS: Final = DatabaseLimits()


class DuckDbEngine:
    """A ``QueryEngine`` over a view. Threads may share it."""

    def __init__(
        self, view: QueryView, homes: Mapping[str, HubId], *, limits: DatabaseLimits = DEFAULT_LIMITS
    ) -> None:
        """``homes``: the streams that a scope may name, each with the hub to name while it is empty."""
        self._view, self._homes = view, dict(homes)
        self._database = Database(view.folder, limits)

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def prefixes(self, scope: Sequence[str]) -> tuple[Prefix, ...]:
        with self._view.snapshot() as snapshot:
            found = snapshot.prefixes(stream for stream in scope if stream in self._homes)
        return scope_prefixes(found, scope, self._homes)

    def execute(
        self, descriptor: QueryDescriptor, prefixes: Sequence[Prefix], budget: Budget = DEFAULT_BUDGET
    ) -> QueryAnswer:
        with self._view.snapshot() as snapshot:
            try:
                return self._execute(snapshot, descriptor, prefixes, budget)
            except DamagedViewError as exc:
                raise execution_failed(exc.message, str(exc.action)) from exc

    def _execute(
        self, snapshot: Snapshot, descriptor: QueryDescriptor, prefixes: Sequence[Prefix], budget: Budget
    ) -> QueryAnswer:
        planned = plan(snapshot, descriptor, prefixes, lambda paths, cut: self._count_cut(paths, cut, budget))
        if is_sql_aggregate(descriptor):
            rows, matched = self._aggregate(descriptor, planned, budget)
            return QueryAnswer(rows=rows, coverage=_coverage(prefixes, planned, matched))
        found = _Collector(descriptor, planned, budget)
        if planned.files:
            columns = found.columns()
            parameters = Parameters()
            sql = rows_sql(planned.files, columns, descriptor.filter, parameters)
            sql = f"SELECT {', '.join(columns)} FROM ({sql}) ORDER BY {_ORDER}"  # noqa: S608 - own columns
            with self._database.running(sql, parameters.values, budget) as batches:
                for batch in batches:
                    found.add(batch)
        coverage = _coverage(prefixes, planned, found.matched)
        return QueryAnswer(rows=found.finish(), coverage=coverage, sources=found.sources)

    # --- parts in SQL

    def _aggregate(
        self, descriptor: QueryDescriptor, planned: Plan, budget: Budget
    ) -> tuple[list[Any], Counter[int]]:
        matched = self._matched(descriptor, planned, budget)
        budget.check(matched=matched.total())
        if not planned.files:
            return Aggregation.start(descriptor).finish(budget), matched
        parameters = Parameters()
        rows = rows_sql(planned.files, columns_of(descriptor), descriptor.filter, parameters)
        sql = aggregate_sql(descriptor, rows, parameters.bind(budget.max_rows + 1))
        found = self._database.fetch(sql, parameters.values, budget)
        budget.check(rows=len(found))
        return rows_of(descriptor, found), matched

    def _matched(self, descriptor: QueryDescriptor, planned: Plan, budget: Budget) -> Counter[int]:
        """The number of matching events of each prefix; without a filter, the manifest has these numbers."""
        wanted = descriptor.filter
        if wanted == Filter():
            return Counter({n: kinds[EntryKind.EVENT] for n, kinds in enumerate(planned.kinds)})
        if not planned.files:
            return Counter()
        parameters = Parameters()
        rows = rows_sql(planned.files, ("hub_id", "label"), wanted, parameters)
        sql = f"SELECT stream, hub_id, label, count(*) FROM ({rows}) GROUP BY stream, hub_id, label"  # noqa: S608
        found = self._database.fetch(sql, parameters.values, budget)
        return Counter({planned.index_of[descriptor.scope[s], hub, label]: n for s, hub, label, n in found})

    def _count_cut(self, paths: Sequence[str], cut: SourceCut, budget: Budget) -> list[int]:
        parameters = Parameters()
        bind = parameters.bind
        sql = (
            f"SELECT kind, count(*) FROM read_parquet({bind(list(paths))}, hive_partitioning = false) "  # noqa: S608
            f"WHERE hub_id = {bind(cut.hub_id)} AND label = {bind(cut.label)} AND seq <= {bind(cut.to_seq)} "
            "GROUP BY kind"
        )
        counts = [0] * KINDS
        for kind, count in self._database.fetch(sql, parameters.values, budget):
            counts[kind] = count
        return counts


def _coverage(prefixes: Sequence[Prefix], planned: Plan, matched: Counter[int]) -> tuple[SourceCoverage, ...]:
    return tuple(
        covered(
            prefix,
            opened=opened_in(kinds),
            unopened=kinds[EntryKind.UNOPENED],
            pruned=kinds[EntryKind.PRUNED],
            matched=matched[index],
        )
        for index, (prefix, kinds) in enumerate(zip(prefixes, planned.kinds, strict=True))
    )


class _ColumnEvent:
    """One fetched row as ``selection`` reads it; columns that no field needs are absent."""

    receipt: bytes

    @property
    def receipt_id(self) -> str:
        return receipt_id(self.receipt)


class _Collector:
    """Turns fetched rows into the rows, groups and receipts of an answer."""

    def __init__(self, descriptor: QueryDescriptor, planned: Plan, budget: Budget) -> None:
        self._descriptor, self._planned, self._budget = descriptor, planned, budget
        self._selection = Selection(descriptor)
        self._aggregation = None if descriptor.aggregate is None else Aggregation.start(descriptor)
        self._filters_here = not all(is_sql_field(c.field) for c in descriptor.filter.where)
        self._wants_sources = descriptor.evidence.mode != EvidenceMode.NONE
        self._rows: list[Any] = []
        self._size = 0
        self.sources: list[SourceReceipt] = []
        self.matched: Counter[int] = Counter()

    def columns(self) -> list[str]:
        """Return the columns to fetch: the position of each row, and what its fields need."""
        fields = self._fields()
        wanted = {COLUMN_OF[field.name] for field in fields if field.name in COLUMN_OF}
        if any(field.in_payload for field in fields):
            wanted.add("payload_json")
        if self._wants_sources or any(field.name == "receipt_id" for field in fields):
            wanted.add("receipt")
        return [*_PLACE, *sorted(wanted.difference(_PLACE))]

    def _fields(self) -> list[QueryField]:
        descriptor = self._descriptor
        fields = [condition.field for condition in descriptor.filter.where]
        if descriptor.aggregate is None:
            return fields + list(descriptor.projection)
        fields += [field for field in descriptor.projection if field.name == "receipt_id"]
        fields += descriptor.aggregate.group_by
        return fields + [metric.field for metric in descriptor.aggregate.metrics if metric.field is not None]

    def add(self, batch: Any) -> None:
        """Add a batch of rows."""
        names = batch.schema.names
        scope, index_of = self._descriptor.scope, self._planned.index_of
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            event = _ColumnEvent()
            event.__dict__.update(zip(names, values, strict=True))
            self._add(event, index_of, scope)
            if self._size:
                self._budget.check(size=self._size)
        self._budget.check(rows=len(self._rows), matched=self.matched.total())

    def _add(self, event: Any, index_of: dict[Any, int], scope: Sequence[str]) -> None:
        event.stream = scope[event.stream]
        event.hub_commit_seq = event.seq
        if "payload_json" in event.__dict__:
            event.payload_json = event.payload_json.encode()
        reader = FieldReader(event)
        if self._filters_here and not self._selection.matches_where(reader):
            return
        index = index_of[event.stream, event.hub_id, event.label]
        self.matched[index] += 1
        if self._wants_sources:
            self.sources.append(SourceReceipt(index, event.seq, event.receipt))
        if self._aggregation is not None:
            self._aggregation.add(reader)
        else:
            self._rows.append(self._selection.row(reader))
            self._size += self._budget.size_of(self._rows[-1])

    def finish(self) -> list[Any]:
        """Return the rows."""
        return self._rows if self._aggregation is None else self._aggregation.finish(self._budget)
