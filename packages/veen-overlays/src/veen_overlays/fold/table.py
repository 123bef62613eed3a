"""The rows and columns of an overlay's state, declared with the overlay.

Spark shows a folded state as a table with these columns; nothing has to be declared there. An overlay
without a declaration has one column ``state`` with its whole view as JSON.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from veen_core.kinds import Bytes, Fixed, Int, Kind, ListOf, OneOf, Scalar, Uint
from veen_overlays.schema.record import Record


class ColumnType(enum.StrEnum):
    """The type of a column's values."""

    BYTES = "bytes"
    BYTES_LIST = "list of bytes"
    TEXT = "text"
    BOOL = "bool"
    UINT = "uint"
    """An integer from 0 to 2^64 - 1."""
    INTEGER = "integer"
    """An integer of any size, or its decimal text."""
    JSON = "json"
    """Any plain item; byte strings in it become hex."""


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a state, in order, and a function that turns a view into rows of their values."""

    columns: Mapping[str, ColumnType]
    rows: Callable[[Any], Iterable[Sequence[Any]]]


WHOLE_STATE: Final = Table({"state": ColumnType.JSON}, lambda view: [(view,)])
"""The table of an overlay that declares none: one row with the whole view."""

KEY_VALUE: Final = Table({"key": ColumnType.BYTES, "value": ColumnType.BYTES}, lambda view: view.items())
"""The table of a view that maps byte strings to byte strings."""


def table_of_maps(columns: Mapping[str, ColumnType], key: str | None = None) -> Table:
    """The table of a view that is a list of maps, or a map of maps whose keys fill the column ``key``."""

    def rows(view: Any) -> Iterator[Sequence[Any]]:
        items = view if key is None else ({**item, key: name} for name, item in view.items())
        for item in items:
            yield tuple(item.get(column) for column in columns)

    return Table(columns, rows)


def table_of_records(shape: type[Record]) -> Table:
    """The table of a view that is a list of records: one column per field of the record."""
    return table_of_maps({str(field.key): _column_type(field.kind) for field in shape.codec.fields})


def _column_type(kind: Kind) -> ColumnType:
    match kind:
        case Fixed() | Bytes():
            return ColumnType.BYTES
        case Uint():
            return ColumnType.UINT
        case Int():
            return ColumnType.INTEGER
        case OneOf():
            return ColumnType.TEXT
        case Scalar(type=type_):
            return ColumnType.TEXT if type_ is str else ColumnType.BOOL
        case ListOf(kind=Fixed() | Bytes()):
            return ColumnType.BYTES_LIST
    return ColumnType.JSON
