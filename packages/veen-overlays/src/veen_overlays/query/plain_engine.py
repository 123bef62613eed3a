"""The plain-loop engine: the oracle that every other engine must agree with to the byte (query-api §6, P11).

It keeps the entries of each source in memory and reads them all for every query.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from veen_core.ids import HubId
from veen_overlays.query.aggregation import Aggregation
from veen_overlays.query.columns import EntryKind
from veen_overlays.query.engine import DEFAULT_BUDGET, Budget, QueryAnswer, SourceReceipt
from veen_overlays.query.errors import execution_failed
from veen_overlays.query.event import SourceEvent
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.result.coverage import Prefix, SourceCoverage, covered
from veen_overlays.query.scope_sources import is_empty_source, scope_prefixes
from veen_overlays.query.selection import FieldReader, Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLog:
    """One source in memory: its prefix, and each entry from ``from_seq`` on."""

    prefix: Prefix
    entries: Sequence[SourceEvent | EntryKind]
    """One per entry: the event, or why there is none (not ``EntryKind.EVENT``)."""


class PlainEngine:
    """A ``QueryEngine`` that loops over all entries."""

    def __init__(self, logs: Iterable[SourceLog], homes: Mapping[str, HubId] | None = None) -> None:
        """``homes``: streams that may have no log, each with the hub that the coverage then names."""
        self._logs, self._homes = tuple(logs), dict(homes or {})

    def prefixes(self, scope: Sequence[str]) -> tuple[Prefix, ...]:
        return scope_prefixes((log.prefix for log in self._logs), scope, self._homes)

    def execute(
        self, descriptor: QueryDescriptor, prefixes: Sequence[Prefix], budget: Budget = DEFAULT_BUDGET
    ) -> QueryAnswer:
        aggregation = None if descriptor.aggregate is None else Aggregation.start(descriptor)
        selection = Selection(descriptor)
        rows: list[Any] = []
        size = 0
        sources: list[SourceReceipt] = []
        coverage: list[SourceCoverage] = []
        for index, prefix in enumerate(prefixes):
            counts = dict.fromkeys(EntryKind, 0)
            before = len(sources)
            for entry in self._entries(prefix):
                if isinstance(entry, EntryKind):
                    counts[entry] += 1
                    continue
                counts[EntryKind.EVENT] += 1
                reader = FieldReader(entry)
                if not selection.matches(reader):
                    continue
                sources.append(SourceReceipt(index, entry.seq, entry.receipt))
                if aggregation is not None:
                    aggregation.add(reader)
                else:
                    rows.append(selection.row(reader))
                    size += budget.size_of(rows[-1])
                found = len(rows) if aggregation is None else len(aggregation.groups)
                budget.check(rows=found, matched=len(sources), size=size)
            coverage.append(
                covered(
                    prefix,
                    opened=counts[EntryKind.EVENT] + counts[EntryKind.OTHER],
                    unopened=counts[EntryKind.UNOPENED],
                    pruned=counts[EntryKind.PRUNED],
                    matched=len(sources) - before,
                )
            )
        if aggregation is not None:
            rows = aggregation.finish(budget)
        return QueryAnswer(rows=rows, coverage=tuple(coverage), sources=sources)

    def _entries(self, prefix: Prefix) -> Iterator[SourceEvent | EntryKind]:
        """Yield exactly the entries of a prefix, in order."""
        if is_empty_source(prefix):
            return
        for log in self._logs:
            held = log.prefix
            if (held.stream, held.hub_id, held.label) == (prefix.stream, prefix.hub_id, prefix.label):
                break
        else:
            raise execution_failed(
                f"the engine has no entries of {prefix.stream!r}, label {prefix.label.hex()}",
                "execute the query where this stream is recorded",
            )
        end = prefix.to_seq - held.from_seq + 1
        if prefix.from_seq != held.from_seq or end > len(log.entries):
            raise execution_failed(
                f"the engine has the entries {held.from_seq} to {held.from_seq + len(log.entries) - 1} of "
                f"{prefix.stream!r}, not {prefix.from_seq} to {prefix.to_seq}",
                "bring the view up to date, or query an earlier prefix",
            )
        yield from log.entries[:end]
