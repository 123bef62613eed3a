"""Aggregate: the groups and metrics of a query (query-api §4.3.1).

Metrics: ``count``; ``min(FIELD)`` and ``max(FIELD)`` of any field; ``sum(FIELD)`` and ``avg(FIELD)`` of
integers; ``count_distinct(FIELD)``. ``aggregation`` computes them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from veen_overlays.query.checks import check_unique, read_list, read_object, want
from veen_overlays.query.errors import invalid
from veen_overlays.query.request.fields import BASE_FIELDS, QueryField, parse_field

Function = Literal["count", "min", "max", "sum", "avg", "count_distinct"]
FUNCTIONS: Final = ("min", "max", "sum", "avg", "count_distinct")
"""The functions of one field."""
MAX_GROUP_FIELDS: Final = 16
MAX_METRICS: Final = 32
_INTEGER_BASE_FIELDS: Final = ("hub_commit_seq",)
_CALL: Final = re.compile(r"([a-z_]+)\((.*)\)", re.DOTALL)
_ACTION: Final = f"write count, or FUNCTION(FIELD) with one of {', '.join(FUNCTIONS)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric; ``name`` is its key in the rows."""

    function: Function
    field: QueryField | None = None

    @property
    def name(self) -> str:
        """``count``, or the function and its field."""
        return self.function if self.field is None else f"{self.function}({self.field.name})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """One row per group; without ``group_by`` exactly one row, even if no event matches."""

    group_by: tuple[QueryField, ...] = ()
    metrics: tuple[Metric, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the normal form: both keys, always."""
        return {
            "group_by": [field.name for field in self.group_by],
            "metrics": [metric.name for metric in self.metrics],
        }


def read_aggregate(item: object) -> Aggregate:
    """Validate and normalise ``aggregate`` (query-api §4.3)."""
    parts = read_object(item, "aggregate (query-api §4.3)", ("group_by", "metrics"))
    groups, where = parts.get("group_by"), "aggregate.group_by (query-api §4.3)"
    fields: tuple[QueryField, ...] = ()
    if groups is not None and groups != []:
        fields = tuple(parse_field(each, where) for each in read_list(groups, where, MAX_GROUP_FIELDS))
        check_unique(fields, where)
    where = "aggregate.metrics (query-api §4.3)"
    metrics = tuple(_read_metric(each, where) for each in read_list(parts.get("metrics"), where, MAX_METRICS))
    check_unique(metrics, where)
    return Aggregate(group_by=fields, metrics=metrics)


def _read_metric(item: object, where: str) -> Metric:
    if type(item) is not str:
        raise want("the text of a metric", item, where, _ACTION)
    if item == "count":
        return Metric(function="count")
    call = _CALL.fullmatch(item)
    if call is None or call[1] not in FUNCTIONS:
        raise invalid(where, f"{item[:80]!r} is not a metric", _ACTION)
    function, field = cast(Function, call[1]), parse_field(call[2], where)
    if function in ("sum", "avg") and field.name in BASE_FIELDS and field.name not in _INTEGER_BASE_FIELDS:
        raise invalid(
            where,
            f"{function} of {field.name} is not defined: its values are not integers",
            f"use {', '.join(_INTEGER_BASE_FIELDS)} or an integer in the payload",
        )
    return Metric(function=function, field=field)
