"""The SQL of a query: base columns only, every value of the user bound as a parameter (query-api §4, P11).

Column names come from a fixed table, file names from the manifest. Conditions on the payload, and on
receipt_id, are not expressed here: ``selection`` and ``aggregation`` evaluate them on the fetched rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from veen_overlays.query.canonical_json import Json
from veen_overlays.query.columns import EntryKind
from veen_overlays.query.request.filter import Condition, Filter

COLUMN_OF: Final = {
    "subject_id": "subject_id",
    "principal_id": "principal_id",
    "event_type": "event_type",
    "event_time": "event_time",
    "origin": "origin",
    "hub_commit_time": "hub_commit_time",
    "hub_commit_seq": "seq",
    "hub_id": "hub_id",
    "attributed": "attributed",
    "stream": "stream",
}
"""The column of each field that SQL may use. ``stream`` is the index of the stream in the scope."""
_BINARY: Final = ("principal_id", "hub_id")
_TEXT: Final = ("subject_id", "event_type", "origin", "stream")


@dataclass(slots=True)
class Parameters:
    """Named parameters of one statement."""

    values: dict[str, Any] = field(default_factory=dict)

    def bind(self, value: Any) -> str:
        """Bind a value; return its placeholder."""
        name = f"p{len(self.values)}"
        self.values[name] = value
        return f"${name}"


@dataclass(frozen=True, slots=True)
class SourceCut:
    """The rows of one source that a query may see in a file: entries up to ``to_seq``."""

    hub_id: bytes
    label: bytes
    to_seq: int


@dataclass(frozen=True, slots=True)
class FileSet:
    """Files of one stream. ``cuts`` is None if every row lies within the prefixes."""

    stream: int
    """The index of the stream in the scope."""
    paths: tuple[str, ...]
    cuts: tuple[SourceCut, ...] | None = None


def filter_sql(wanted: Filter, parameters: Parameters) -> list[str]:
    """Return the conditions of a filter on base columns (query-api §4.2.4)."""
    conditions = [f"kind = {int(EntryKind.EVENT)}"]
    if wanted.subject_id is not None:
        conditions.append(f"subject_id = {parameters.bind(wanted.subject_id)}")
    if wanted.event_type is not None:
        conditions.append(f"event_type IN {parameters.bind(list(wanted.event_type))}")
    if wanted.time_from is not None:
        conditions.append(f"hub_commit_time >= {parameters.bind(wanted.time_from)}")
    if wanted.time_to is not None:
        conditions.append(f"hub_commit_time < {parameters.bind(wanted.time_to)}")
    for condition in wanted.where:
        if condition.field.name in COLUMN_OF and condition.field.name != "stream":
            conditions.append(_where_sql(condition, parameters))
    return conditions


def _where_sql(condition: Condition, parameters: Parameters) -> str:
    name = condition.field.name
    values = [each for each in (_stored(name, value) for value in condition.values) if each is not None]
    return f"{COLUMN_OF[name]} IN {parameters.bind(values)}" if values else "FALSE"


def _stored(name: str, value: Json) -> Any:
    """Return a value of ``filter.where`` as its column stores it; None if the column never has this value."""
    if name in _TEXT:
        return value if type(value) is str else None
    if name in _BINARY:
        return _bytes_of(value)
    if name == "attributed":
        return value if type(value) is bool else None
    return value if type(value) is int and 0 <= value < 2**64 else None


def _bytes_of(value: Json) -> bytes | None:
    if type(value) is not str:
        return None
    try:
        found = bytes.fromhex(value)
    except ValueError:
        return None
    return found if found.hex() == value else None


def rows_sql(files: Sequence[FileSet], columns: Sequence[str], wanted: Filter, parameters: Parameters) -> str:
    """Return the statement for the matching rows of all file sets; ``stream`` is a number."""
    parts = []
    for each in files:
        conditions = filter_sql(wanted, parameters)
        if each.cuts is not None:
            conditions.append(_cuts_sql(each.cuts, parameters))
        chosen = ", ".join(column for column in columns if column != "stream") or "kind"
        parts.append(
            f"SELECT CAST({each.stream} AS INTEGER) AS stream, {chosen} "  # noqa: S608 - columns from COLUMN_OF
            f"FROM read_parquet({parameters.bind(list(each.paths))}, hive_partitioning = false) "
            f"WHERE {' AND '.join(conditions)}"
        )
    return " UNION ALL ".join(parts)


def _cuts_sql(cuts: Sequence[SourceCut], parameters: Parameters) -> str:
    bind = parameters.bind
    return "({})".format(
        " OR ".join(
            f"(hub_id = {bind(cut.hub_id)} AND label = {bind(cut.label)} AND seq <= {bind(cut.to_seq)})"
            for cut in cuts
        )
        or "FALSE"
    )
