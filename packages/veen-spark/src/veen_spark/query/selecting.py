"""Queries for rows: Spark filters, and Arrow functions make the rows (query-api §4.2, §5.1).

A task returns the canonical JSON of each matching event's row. Rows are ordered by source and entry, the
order of P11.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, overload

import pyarrow as pa
import pyarrow.compute as pc

from veen_overlays.query import canonical_json
from veen_overlays.query.engine import Row, SourceReceipt
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.selection import FieldReader, Selection
from veen_spark.fold.ranges import Task, record_batches, spark_type
from veen_spark.query.event_rows import PLACE, events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE_FIELDS: Final = (pa.field("source", pa.int32()), pa.field("seq", pa.int64()))
ROW_SCHEMA: Final = pa.schema(
    [*_PLACE_FIELDS, pa.field("row", pa.binary()), pa.field("receipt", pa.binary())]
)
RECEIPT_SCHEMA: Final = pa.schema([*_PLACE_FIELDS, pa.field("receipt", pa.binary())])


class JsonRows(Sequence[Row]):
    """Rows in canonical JSON, decoded one at a time: an Arrow column takes a tenth of the memory of dicts."""

    def __init__(self, encoded: pa.ChunkedArray) -> None:
        self.encoded = encoded
        """The canonical JSON of each row."""

    @property
    def size(self) -> int:
        """The bytes of all rows, with a line end each."""
        return (pc.sum(pc.binary_length(self.encoded)).as_py() or 0) + len(self)

    def __len__(self) -> int:
        return len(self.encoded)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return [_decoded(each) for each in self.encoded.to_pylist()[index]]
        return _decoded(self.encoded[index].as_py())

    def __iter__(self) -> Iterator[Row]:
        return (_decoded(each.as_py()) for each in self.encoded)


def _decoded(encoded: bytes) -> Row:
    row: Any = canonical_json.decode(encoded)
    return row  # type: ignore[no-any-return]


class MatchedReceipts(Sequence[SourceReceipt]):
    """The receipts of matched events, kept in Arrow columns."""

    def __init__(self, table: pa.Table) -> None:
        self._columns = [table.column(name) for name in RECEIPT_SCHEMA.names]

    def __len__(self) -> int:
        return len(self._columns[0])

    @overload
    def __getitem__(self, index: int) -> SourceReceipt: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[SourceReceipt]: ...
    def __getitem__(self, index: int | slice) -> SourceReceipt | Sequence[SourceReceipt]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return SourceReceipt._make(column[index].as_py() for column in self._columns)

    def __iter__(self) -> Iterator[SourceReceipt]:
        for chunk in pa.table(self._columns, names=RECEIPT_SCHEMA.names).to_batches():
            yield from map(SourceReceipt._make, zip(*(c.to_pylist() for c in chunk.columns), strict=True))


def project(rows: DataFrame, descriptor: QueryDescriptor, streams: Sequence[str]) -> DataFrame:
    """Return the rows of matching events, in any order; see ``ROW_SCHEMA``."""
    return rows.mapInArrow(_row_task(descriptor, tuple(streams)), spark_type(ROW_SCHEMA))


def receipts(rows: DataFrame, descriptor: QueryDescriptor, streams: Sequence[str]) -> DataFrame:
    """Return the receipts of matching events, in any order; see ``RECEIPT_SCHEMA``."""
    if not descriptor.filter.where:
        return rows.select(*RECEIPT_SCHEMA.names)
    return rows.mapInArrow(_receipt_task(descriptor, tuple(streams)), spark_type(RECEIPT_SCHEMA))


def in_order(found: DataFrame, check: Callable[[Counter[int]], None]) -> tuple[pa.Table, Counter[int]]:
    """Collect rows in the order of P11, with their number for each source.

    ``check`` raises if there are too many: no row reaches the driver before. The driver sorts, since it holds
    the result anyway; a sort by Spark costs two more passes.
    """
    found = found.persist()
    try:
        counts = Counter({row["source"]: row["count"] for row in found.groupBy("source").count().collect()})
        check(counts)
        table = found.toArrow()
    finally:
        found.unpersist()
    return table.sort_by([(name, "ascending") for name in PLACE]), counts


def matching_events(
    batches: Iterable[pa.RecordBatch], selection: Selection, streams: Sequence[str]
) -> Iterator[FieldReader]:
    """Yield the events of a task's batches that the whole filter selects."""
    for batch in batches:
        for event in events(batch, streams):
            reader = FieldReader(event)
            if selection.matches(reader):
                yield reader


def _row_task(descriptor: QueryDescriptor, streams: Sequence[str]) -> Task:
    def make_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        selection = Selection(descriptor)
        found = matching_events(batches, selection, streams)
        return record_batches((_row(selection, reader) for reader in found), ROW_SCHEMA)

    return make_rows


def _row(selection: Selection, reader: FieldReader) -> tuple[Any, ...]:
    event: Any = reader.event
    receipt = getattr(event, "receipt", None)
    return event.source, event.seq, canonical_json.encode(selection.row(reader)), receipt


def _receipt_task(descriptor: QueryDescriptor, streams: Sequence[str]) -> Task:
    def find_receipts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = (reader.event for reader in matching_events(batches, Selection(descriptor), streams))
        places: Iterator[Any] = found
        return record_batches(((e.source, e.seq, e.receipt) for e in places), RECEIPT_SCHEMA)

    return find_receipts
