"""The rows that a query reads: the view's columns as Spark types, and Arrow batches as events (P10, P11).

Spark has no unsigned integers. It reads a Parquet column of 64 unsigned bits as ``decimal(20, 0)``, so rows
that are built from logs have that type too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from veen_overlays.query.columns import COLUMNS, ColumnType
from veen_overlays.query.event import receipt_id
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.request.fields import QueryField

UINT64: Final = pa.decimal128(20, 0)
_SPARK_TYPES: Final[dict[ColumnType, pa.DataType]] = {
    "binary": pa.binary(),
    "uint8": pa.int16(),
    "uint32": pa.int64(),
    "uint64": UINT64,
    "text": pa.string(),
    "bool": pa.bool_(),
}
VIEW_SCHEMA: Final = pa.schema([pa.field(column.name, _SPARK_TYPES[column.type]) for column in COLUMNS])
"""The columns of a view as Spark reads them from Parquet."""
_COLUMN_OF: Final = {"hub_commit_seq": "seq", "receipt_id": "receipt"}
"""The column of each base field whose name differs; ``stream`` follows from the source."""
PLACE: Final = ("source", "seq")
"""The order of P11: the number of the source among the prefixes, then the entry."""


class EventRow:
    """One event of a batch: what ``veen_overlays.query.selection`` reads. Columns not asked for are None."""

    __slots__ = (
        "attributed",
        "event_time",
        "event_type",
        "hub_commit_time",
        "hub_id",
        "origin",
        "payload_json",
        "principal_id",
        "receipt",
        "seq",
        "source",
        "stream",
        "subject_id",
    )

    source: int
    stream: str
    seq: int
    hub_id: bytes
    hub_commit_time: int
    subject_id: str
    principal_id: bytes
    event_type: str
    event_time: int
    origin: str
    payload_json: bytes
    attributed: bool
    receipt: bytes

    def __init__(self, names: Iterable[str], values: Iterable[Any], streams: Sequence[str]) -> None:
        for name, value in zip(names, values, strict=True):
            setattr(self, name, value)
        self.stream = streams[self.source]

    @property
    def hub_commit_seq(self) -> int:
        """``stream_seq`` of the receipt (P10)."""
        return self.seq

    @property
    def receipt_id(self) -> str:
        """The id of the origin receipt (P11)."""
        return receipt_id(self.receipt)


def needed_columns(descriptor: QueryDescriptor, *, receipts: bool) -> tuple[str, ...]:
    """Return the columns that a query reads of an event, besides ``PLACE``."""
    wanted = [condition.field for condition in descriptor.filter.where]
    if descriptor.aggregate is None:
        wanted += descriptor.projection
    else:
        wanted += descriptor.aggregate.group_by
        wanted += [metric.field for metric in descriptor.aggregate.metrics if metric.field is not None]
        wanted += [field for field in descriptor.projection if field.name == "receipt_id"]
    names = {column_of(field) for field in wanted} | _filter_columns(descriptor)
    names |= {"receipt"} if receipts else set()
    return tuple(sorted(names - {"stream", *PLACE}))


def _filter_columns(descriptor: QueryDescriptor) -> set[str]:
    """Return the columns of the filters that Spark applies; ``matches`` checks the filters again."""
    wanted = descriptor.filter
    used = {
        "subject_id": wanted.subject_id is not None,
        "event_type": wanted.event_type is not None,
        "hub_commit_time": wanted.time_from is not None or wanted.time_to is not None,
    }
    return {name for name, is_used in used.items() if is_used}


def column_of(field: QueryField) -> str:
    """Return the column that holds a field."""
    return "payload_json" if field.in_payload else _COLUMN_OF.get(field.name, field.name)


def events(batch: pa.RecordBatch, streams: Sequence[str]) -> Iterator[EventRow]:
    """Yield the events of a batch; ``streams`` has the name of the stream of each source."""
    names = batch.schema.names
    columns = [_values(name, column) for name, column in zip(names, batch.columns, strict=True)]
    for values in zip(*columns, strict=True):
        yield EventRow(names, values, streams)


def _values(name: str, column: pa.Array) -> list[Any]:
    if pa.types.is_decimal(column.type):
        column = pc.cast(column, pa.uint64())
    elif name == "payload_json":
        column = pc.cast(column, pa.binary())  # decoding text would check it for lone surrogates again
    return column.to_pylist()  # type: ignore[no-any-return]
