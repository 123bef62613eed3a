"""Aggregate queries: tasks fold their events, a shuffle brings each group together, and the folds are merged.

Folds are those of ``veen_overlays.query.aggregation``, so that their rows are those of the plain loop. A task
returns one row per group with the group's accumulators, and a row with the number of matched events of each
source. A metric that is not defined for some value is reported for the first such event in the order of P11,
as the plain loop does.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from veen_overlays.query import canonical_json
from veen_overlays.query.aggregation import Aggregation
from veen_overlays.query.engine import Budget
from veen_overlays.query.errors import QueryError
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.selection import Selection
from veen_spark.fold.ranges import Task, record_batches, spark_type
from veen_spark.query.selecting import matching_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_TASK_GROUPS: Final = 65_536
"""Groups that a task keeps in memory before it returns them; a later shuffle merges them with the rest."""
_PARTIAL: Final = pa.schema([("tag", pa.int32()), ("key", pa.binary()), ("state", pa.binary())])
_GROUP, _COUNTS, _FAILURE = range(3)
"""Tags: a group's accumulators, the matched events of each source, the first event without a metric."""


class Aggregated(NamedTuple):
    """The rows of an aggregate, and the number of matched events of each source."""

    rows: list[dict[str, Any]]
    matched: Counter[int]


def aggregate_rows(
    rows: DataFrame, descriptor: QueryDescriptor, streams: Sequence[str], budget: Budget
) -> Aggregated:
    """Return the rows by the bytes of their group keys; raise ``QueryError``."""
    partial, merged = _partial_task(descriptor, tuple(streams)), _merge_task(descriptor)
    parts = rows.mapInArrow(partial, spark_type(_PARTIAL)).repartition("tag", "key")
    groups = parts.sortWithinPartitions("tag", "key").mapInArrow(merged, spark_type(_PARTIAL)).persist()
    try:
        budget.check(rows=groups.where(f"tag = {_GROUP}").count())
        found = groups.toArrow().sort_by([("tag", "descending"), ("key", "ascending")])
    finally:
        groups.unpersist()
    result, matched = list[dict[str, Any]](), Counter[int]()
    for tag, _, state in zip(*(column.to_pylist() for column in found.columns), strict=True):
        if tag == _FAILURE:
            raise pickle.loads(state)[1]  # noqa: S301 - pickled by our tasks
        if tag == _COUNTS:
            matched = pickle.loads(state)  # noqa: S301 - as above
        else:
            row: Any = canonical_json.decode(state)
            result.append(row)
    return Aggregated(result or Aggregation.start(descriptor).finish(), matched)


Part = tuple[int, bytes, bytes]


def _partial_task(descriptor: QueryDescriptor, streams: Sequence[str]) -> Task:
    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return record_batches(_folded(batches, descriptor, streams), _PARTIAL)

    return fold


def _folded(
    batches: Iterable[pa.RecordBatch], descriptor: QueryDescriptor, streams: Sequence[str]
) -> Iterator[Part]:
    aggregation, matched = Aggregation.start(descriptor), Counter[int]()
    failure: tuple[tuple[int, int], QueryError] | None = None
    for reader in matching_events(batches, Selection(descriptor), streams):
        event: Any = reader.event
        matched[event.source] += 1
        try:
            aggregation.add(reader)
        except QueryError as exc:
            place = (event.source, event.seq)
            failure = (place, exc) if failure is None or place < failure[0] else failure
        if len(aggregation.groups) >= MAX_TASK_GROUPS:
            yield from _groups(aggregation)
            aggregation = Aggregation.start(descriptor)
    yield from _groups(aggregation)
    yield _COUNTS, b"", pickle.dumps(matched)
    if failure is not None:
        yield _FAILURE, b"", pickle.dumps(failure)


def _groups(aggregation: Aggregation) -> Iterator[Part]:
    for key, group in aggregation.groups.items():
        yield _GROUP, key, pickle.dumps(group)


def _merge_task(descriptor: QueryDescriptor) -> Task:
    def merge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = (
            row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)
        )
        return record_batches(
            (
                _merged(descriptor, tag, key, [row[2] for row in group])
                for (tag, key), group in groupby(parts, key=itemgetter(0, 1))
            ),
            _PARTIAL,
        )

    return merge


def _merged(descriptor: QueryDescriptor, tag: int, key: bytes, states: list[bytes]) -> Part:
    """Merge the parts of one group, and make its row."""
    if tag == _COUNTS:
        counts = [pickle.loads(state) for state in states]  # noqa: S301 - pickled by our tasks
        return tag, key, pickle.dumps(sum(counts, Counter[int]()))
    if tag == _FAILURE:
        first = min((pickle.loads(state) for state in states), key=itemgetter(0))  # noqa: S301 - as above
        return tag, key, pickle.dumps(first)
    whole = Aggregation.start(descriptor)
    for state in states:
        one = Aggregation.start(descriptor)
        one.groups = {key: pickle.loads(state)}  # noqa: S301 - as above
        whole.merge(one)
    (row,) = whole.finish()
    return tag, key, canonical_json.encode(row)
