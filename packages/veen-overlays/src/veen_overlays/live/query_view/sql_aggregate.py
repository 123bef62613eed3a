"""Aggregates of base columns in SQL (query-api §4.3). ``aggregation`` defines what the values must be.

min and max: SQL orders text and byte strings by their bytes, as ``order_key`` does, and hex keeps that order.
sum is exact (128 bits: 2^64 rows of 64 bits). avg is the nearest double of the exact quotient.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from veen_overlays.live.query_view.sql import COLUMN_OF
from veen_overlays.query import canonical_json
from veen_overlays.query.canonical_json import Json
from veen_overlays.query.request.aggregate import Metric
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.request.evidence_policy import EvidenceMode
from veen_overlays.query.request.fields import QueryField
from veen_overlays.query.values import rendered


def is_sql_field(field: QueryField | None) -> bool:
    """Return whether SQL has a column for a field."""
    return field is None or field.name in COLUMN_OF


def is_sql_aggregate(descriptor: QueryDescriptor) -> bool:
    """Return whether SQL can compute the whole result: base columns only, and no receipts are wanted."""
    if descriptor.aggregate is None or descriptor.evidence.mode != EvidenceMode.NONE:
        return False
    fields = [
        *descriptor.aggregate.group_by,
        *(metric.field for metric in descriptor.aggregate.metrics),
        *(condition.field for condition in descriptor.filter.where),
    ]
    # SQL numbers the streams by their index in the scope, which is not their order as text.
    orders_streams = any(
        metric.function in ("min", "max") and metric.field == QueryField("stream")
        for metric in descriptor.aggregate.metrics
    )
    wants_receipts = any(field.name == "receipt_id" for field in descriptor.projection)
    return all(map(is_sql_field, fields)) and not orders_streams and not wants_receipts


def columns_of(descriptor: QueryDescriptor) -> list[str]:
    """Return the columns that the statement needs."""
    assert descriptor.aggregate is not None
    fields = [*descriptor.aggregate.group_by, *(m.field for m in descriptor.aggregate.metrics)]
    return sorted({COLUMN_OF[field.name] for field in fields if field is not None})


def aggregate_sql(descriptor: QueryDescriptor, rows: str, limit: str) -> str:
    """Return the statement: the group keys, the number of rows, then the parts of each metric."""
    assert descriptor.aggregate is not None
    keys = [COLUMN_OF[field.name] for field in descriptor.aggregate.group_by]
    parts = [part for metric in descriptor.aggregate.metrics for part in _parts(metric)]
    grouping = f" GROUP BY {', '.join(keys)}" if keys else ""
    return (
        f"SELECT {', '.join([*keys, 'count(*)', *parts])} "  # noqa: S608 - columns from COLUMN_OF
        f"FROM ({rows}){grouping} LIMIT {limit}"
    )


def _parts(metric: Metric) -> list[str]:
    if metric.field is None:
        return []
    column = COLUMN_OF[metric.field.name]
    match metric.function:
        case "sum" | "avg":
            return [f"sum({column})"]
        case "count_distinct":
            return [f"count(DISTINCT {column})"]
        case name:
            return [f"{name}({column})"]


def rows_of(descriptor: QueryDescriptor, found: Sequence[tuple[Any, ...]]) -> list[dict[str, Json]]:
    """Return the result's rows from those of the statement, ordered by their group keys."""
    assert descriptor.aggregate is not None
    groups = descriptor.aggregate.group_by
    rows: list[tuple[bytes, dict[str, Json]]] = []
    for values in found:
        keys = [_shown(descriptor, f, v) for f, v in zip(groups, values, strict=False)]
        count, parts = values[len(groups)], iter(values[len(groups) + 1 :])
        row: dict[str, Json] = {field.name: key for field, key in zip(groups, keys, strict=True)}
        for metric in descriptor.aggregate.metrics:
            row[metric.name] = (
                count if metric.field is None else _metric(descriptor, metric, count, next(parts))
            )
        rows.append((canonical_json.encode(keys), row))
    return [row for _, row in sorted(rows, key=lambda each: each[0])]


def _metric(descriptor: QueryDescriptor, metric: Metric, count: int, value: Any) -> Json:
    assert metric.field is not None
    match metric.function:
        case "sum":
            return int(value or 0)
        case "avg":
            return float(Fraction(int(value), count)) if count else None
        case "count_distinct":
            return int(value)
        case _:
            return _shown(descriptor, metric.field, value)


def _shown(descriptor: QueryDescriptor, field: QueryField, value: Any) -> Json:
    if value is None:
        return None
    if field.name == "stream":
        return descriptor.scope[int(value)]
    shown: Json = value.hex() if isinstance(value, bytes) else value
    return rendered(field.name, shown)
