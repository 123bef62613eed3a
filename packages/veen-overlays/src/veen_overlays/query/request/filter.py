"""Filter: which events a query selects (query-api §4.2.4, RESOLUTIONS P11).

``subject_id``, ``event_type`` and ``time`` are the specification's. ``time`` is hub_commit_time, ``from``
inclusive and ``to`` exclusive. ``where`` is an addition that §10.3 allows: for each field the values that it
may have; null selects events without a value. An event must satisfy every part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from veen_overlays.query import canonical_json
from veen_overlays.query.checks import check_unique, read_list, read_object, read_text, want
from veen_overlays.query.errors import invalid
from veen_overlays.query.request.fields import TIME_FIELDS, QueryField, parse_field
from veen_overlays.query.request.timestamp import format_timestamp, parse_timestamp

MAX_SUBJECT_CHARACTERS: Final = 1_024
MAX_EVENT_TYPES: Final = 256
MAX_EVENT_TYPE_CHARACTERS: Final = 256
MAX_CONDITIONS: Final = 16
MAX_CONDITION_VALUES: Final = 256
MAX_VALUE_CHARACTERS: Final = 4_096
_KEYS: Final = ("subject_id", "event_type", "time", "where")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The values that a field may have."""

    field: QueryField
    values: tuple[canonical_json.Json, ...]
    """Scalars, ordered by their canonical JSON."""

    @property
    def encoded(self) -> frozenset[bytes]:
        """The canonical JSON of each value."""
        return frozenset(map(canonical_json.encode, self.values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The events that a query selects; None does not constrain."""

    subject_id: str | None = None
    event_type: tuple[str, ...] | None = None
    """Sorted."""
    time_from: int | None = None
    """Milliseconds of hub_commit_time, inclusive."""
    time_to: int | None = None
    """Milliseconds of hub_commit_time, exclusive."""
    where: tuple[Condition, ...] = ()
    """Sorted by the name of the field."""

    def as_json(self) -> dict[str, Any]:
        """Return the normal form: null for parts that do not constrain; ``where`` only if it is used."""
        times = {"from": self.time_from, "to": self.time_to}
        item: dict[str, Any] = {
            "subject_id": self.subject_id,
            "event_type": None if self.event_type is None else list(self.event_type),
            "time": {name: None if ms is None else format_timestamp(ms) for name, ms in times.items()},
        }
        if self.where:
            item["where"] = {condition.field.name: list(condition.values) for condition in self.where}
        return item


def read_filter(item: object) -> Filter:
    """Validate and normalise ``filter`` (query-api §4.2.4)."""
    parts = read_object(item, "filter (query-api §4.2)", _KEYS)
    subject, types, where = (parts.get(name) for name in ("subject_id", "event_type", "where"))
    start, end = _read_time(parts.get("time"))
    return Filter(
        subject_id=None
        if subject is None
        else read_text(subject, "filter.subject_id (query-api §4.2)", MAX_SUBJECT_CHARACTERS),
        event_type=None if types is None else _read_types(types),
        time_from=start,
        time_to=end,
        where=() if where is None else _read_where(where),
    )


def _read_types(item: object) -> tuple[str, ...]:
    where = "filter.event_type (query-api §4.2)"
    if item == []:
        raise invalid(where, "is an empty array, which selects nothing", "write null to select all types")
    types = read_list(item, where, MAX_EVENT_TYPES)
    return tuple(sorted({read_text(each, where, MAX_EVENT_TYPE_CHARACTERS) for each in types}))


def _read_time(item: object) -> tuple[int | None, int | None]:
    where = "filter.time (query-api §4.2)"
    if item is None:
        return None, None
    parts = read_object(item, where, ("from", "to"))
    start, end = _read_timestamp(parts, "from"), _read_timestamp(parts, "to")
    if start is not None and end is not None and start >= end:
        raise invalid(
            where, "from is not before to", "write a from that is earlier than to (to is exclusive)"
        )
    return start, end


def _read_timestamp(parts: dict[str, Any], name: str) -> int | None:
    where = f"filter.time.{name} (query-api §3.2)"
    action = "write it as 2025-11-19T03:20:00Z or 2025-11-19T03:20:00.000Z, not before 1970"
    if (item := parts.get(name)) is None:
        return None
    if type(item) is not str:
        raise want("a timestamp", item, where, action)
    if (milliseconds := parse_timestamp(item)) is None:
        raise invalid(where, f"{item[:40]!r} is not a timestamp", action)
    return milliseconds


def _read_where(item: object) -> tuple[Condition, ...]:
    where = "filter.where (query-api §10.3)"
    if type(item) is not dict or len(item) > MAX_CONDITIONS:
        raise want("an object", item, where, f"write at most {MAX_CONDITIONS} fields with their values")
    conditions = [_read_condition(name, values) for name, values in item.items()]
    check_unique([condition.field.name for condition in conditions], where)
    return tuple(sorted(conditions, key=lambda condition: condition.field.name))


def _read_condition(name: str, item: object) -> Condition:
    where = f"filter.where.{name[:80]} (query-api §10.3)"
    field = parse_field(name, where)
    if field.name in TIME_FIELDS:
        raise invalid(where, "a time has no list of values", "use filter.time for hub_commit_time")
    items = read_list(item if type(item) is list else [item], where, MAX_CONDITION_VALUES)
    encoded: dict[bytes, canonical_json.Json] = {}
    for value in items:
        if isinstance(value, list | dict) or (type(value) is str and len(value) > MAX_VALUE_CHARACTERS):
            raise want(
                "null, a boolean, a number or a text",
                value,
                where,
                f"write scalars of at most {MAX_VALUE_CHARACTERS} characters",
            )
        encoded[canonical_json.encode(value)] = value
    return Condition(field=field, values=tuple(encoded[key] for key in sorted(encoded)))
