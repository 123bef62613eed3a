"""Aggregation: groups and metrics as a fold whose parts can be merged in any order (query-api §4.3, §5.1).

``start`` makes an empty fold, ``add`` adds one event, ``merge`` adds another fold, ``finish`` gives the rows.
Any partition of the events into folds gives the same rows, so engines may aggregate in parallel.

Null and missing values are left out of every metric but ``count``. ``sum`` and ``avg`` take integers only.
``avg`` is the nearest double of the exact quotient. A group without values has null for min, max and avg.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final, Protocol, Self

from veen_core.hashing import Ht
from veen_overlays.query import canonical_json
from veen_overlays.query.canonical_json import Json
from veen_overlays.query.engine import DEFAULT_BUDGET, Budget
from veen_overlays.query.errors import execution_failed
from veen_overlays.query.request.aggregate import Aggregate, Metric
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.request.fields import QueryField
from veen_overlays.query.selection import FieldReader
from veen_overlays.query.values import OrderKey, order_key, rendered

_RECEIPT_ID: Final = QueryField("receipt_id")


def receipt_set_id(receipt_ids: set[str]) -> str:
    """Return the receipt_id of an aggregate row (query-api §5.1).

    It is ``rcpt-set-`` and, in hex, ``Ht("veen/query-receipts", …)`` of the sorted receipt_ids of the group,
    each followed by a line feed.
    """
    lines = "".join(f"{each}\n" for each in sorted(receipt_ids))
    return f"rcpt-set-{Ht('veen/query-receipts', lines.encode()).hex()}"


class Accumulator(Protocol):
    """The state of one metric of one group."""

    def __init__(self, field: QueryField | None) -> None: ...
    def add(self, value: Json) -> None: ...
    def merge(self, other: Self) -> None: ...
    def finish(self) -> Json: ...


class _Count:
    __slots__ = ("count",)

    def __init__(self, _field: QueryField | None) -> None:
        self.count = 0

    def add(self, _value: Json) -> None:
        self.count += 1

    def merge(self, other: Self) -> None:
        self.count += other.count

    def finish(self) -> Json:
        return self.count


class _Extreme:
    """The smallest value, or the largest."""

    __slots__ = ("_key", "_name", "_value")
    largest = False

    def __init__(self, field: QueryField | None) -> None:
        assert field is not None  # the grammar of metrics requires it
        self._name = field.name
        self._key: OrderKey | None = None
        self._value: Json = None

    def add(self, value: Json) -> None:
        if value is not None:
            self._take(order_key(self._name, value), value)

    def _take(self, key: OrderKey, value: Json) -> None:
        if self._key is None or (key > self._key if self.largest else key < self._key):
            self._key, self._value = key, value

    def merge(self, other: Self) -> None:
        if other._key is not None:
            self._take(other._key, other._value)

    def finish(self) -> Json:
        return rendered(self._name, self._value)


class _Largest(_Extreme):
    __slots__ = ()
    largest = True


class _Sum:
    __slots__ = ("_name", "count", "total")

    def __init__(self, field: QueryField | None) -> None:
        assert field is not None  # the grammar of metrics requires it
        self._name = field.name
        self.total = self.count = 0

    def add(self, value: Json) -> None:
        if value is None:
            return
        if type(value) is not int:
            raise execution_failed(
                f"sum and avg of {self._name} are not defined: an event has a value there that is not an "
                "integer (query-api §4.3)",
                "name a path that leads to integers, or filter such events out",
            )
        self.total += value
        self.count += 1

    def merge(self, other: Self) -> None:
        self.total += other.total
        self.count += other.count

    def finish(self) -> Json:
        return self.total


class _Average(_Sum):
    __slots__ = ()

    def finish(self) -> Json:
        return float(Fraction(self.total, self.count)) if self.count else None


class _Distinct:
    __slots__ = ("seen",)

    def __init__(self, _field: QueryField | None) -> None:
        self.seen: set[bytes] = set()

    def add(self, value: Json) -> None:
        if value is not None:
            self.seen.add(canonical_json.encode(value))

    def merge(self, other: Self) -> None:
        self.seen |= other.seen

    def finish(self) -> Json:
        return len(self.seen)


class _ReceiptSet:
    __slots__ = ("_ids",)

    def __init__(self, _field: QueryField | None) -> None:
        self._ids: set[str] = set()

    def add(self, value: Json) -> None:
        self._ids.add(str(value))

    def merge(self, other: Self) -> None:
        self._ids |= other._ids

    def finish(self) -> Json:
        return receipt_set_id(self._ids)


_ACCUMULATORS: Final[Mapping[str, type[Accumulator]]] = {
    "count": _Count,
    "min": _Extreme,
    "max": _Largest,
    "sum": _Sum,
    "avg": _Average,
    "count_distinct": _Distinct,
}


class Aggregation:
    """A mergeable fold over matched events; it can be pickled, so that processes can exchange it."""

    def __init__(self, descriptor: QueryDescriptor) -> None:
        assert descriptor.aggregate is not None  # callers use ``Selection`` for queries without an aggregate
        self.aggregate: Aggregate = descriptor.aggregate
        self._columns: list[tuple[str, QueryField | None, type[Accumulator]]] = [
            (metric.name, metric.field, _ACCUMULATORS[metric.function]) for metric in self.aggregate.metrics
        ]
        if _RECEIPT_ID in descriptor.projection:
            self._columns.append(("receipt_id", _RECEIPT_ID, _ReceiptSet))
        self.groups: dict[bytes, tuple[list[Json], list[Accumulator]]] = {}
        """By the canonical JSON of the list of group keys: the keys, and one accumulator per column."""
        if not self.aggregate.group_by:
            self._group([])

    @classmethod
    def start(cls, descriptor: QueryDescriptor) -> Self:
        """Return a fold without events."""
        return cls(descriptor)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics in the order of the descriptor."""
        return self.aggregate.metrics

    def _group(self, keys: list[Json]) -> list[Accumulator]:
        encoded = canonical_json.encode(keys)
        if (group := self.groups.get(encoded)) is None:
            group = self.groups[encoded] = (keys, [make(field) for _, field, make in self._columns])
        return group[1]

    def add(self, reader: FieldReader) -> None:
        """Add one matched event."""
        keys = [rendered(field.name, reader.read(field)) for field in self.aggregate.group_by]
        for (_, field, _), state in zip(self._columns, self._group(keys), strict=True):
            state.add(None if field is None else reader.read(field))

    def merge(self, other: Aggregation) -> None:
        """Add the events of another fold of the same descriptor."""
        for keys, states in other.groups.values():
            for mine, theirs in zip(self._group(keys), states, strict=True):
                mine.merge(theirs)

    def finish(self, budget: Budget = DEFAULT_BUDGET) -> list[dict[str, Any]]:
        """Return the rows: group keys and metrics, ordered by the canonical JSON of the group keys."""
        budget.check(rows=len(self.groups))
        names = [name for name, _, _ in self._columns]
        rows = []
        for encoded in sorted(self.groups):
            keys, states = self.groups[encoded]
            row: dict[str, Any] = {f.name: key for f, key in zip(self.aggregate.group_by, keys, strict=True)}
            row |= {name: state.finish() for name, state in zip(names, states, strict=True)}
            rows.append(row)
        return rows
