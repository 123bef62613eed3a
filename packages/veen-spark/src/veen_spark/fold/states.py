"""A state as a table: one per overlay, with the label, last entry and root in every row (core §11.3).

    state(fold(logs, "wallet.ledger", keys), "wallet.ledger").where("balance < 0")

Every row begins with ``label``, ``upto_seq`` and ``mmr_root``. The columns after them are declared by the
overlay (``Overlay.table``). Integers are decimals: an unsigned integer of 64 bits, or a sum, is
too large for a long. Values without a fixed form are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import ColumnType
from veen_spark.errors import SparkSetupError
from veen_spark.fold.ranges import Task, overlay_reference, record_batches, resolve_overlay, spark_type
from veen_spark.functions.open import require_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BASIS: Final = (
    pa.field("label", pa.binary()),
    pa.field("upto_seq", pa.int64()),
    pa.field("mmr_root", pa.binary()),
)
"""The first columns of every table: the label, the last entry that was folded, and the root there."""
BATCH_ROWS: Final = 8_192


def plain(item: Any) -> Any:
    """Convert a value for JSON: byte strings, also as keys, to lowercase hex (RESOLUTIONS B17)."""
    if isinstance(item, bytes):
        return item.hex()
    if isinstance(item, dict):
        return {plain(key): plain(value) for key, value in item.items()}
    return [plain(value) for value in item] if isinstance(item, list | tuple) else item


def as_json(item: Any) -> str:
    """Return a value as compact JSON."""
    return json.dumps(plain(item), ensure_ascii=False, separators=(",", ":"))


ARROW_TYPES: Final[Mapping[ColumnType, pa.DataType]] = {
    ColumnType.BYTES: pa.binary(),
    ColumnType.BYTES_LIST: pa.list_(pa.binary()),
    ColumnType.TEXT: pa.string(),
    ColumnType.BOOL: pa.bool_(),
    ColumnType.UINT: pa.decimal128(20, 0),
    ColumnType.INTEGER: pa.decimal128(38, 0),
    ColumnType.JSON: pa.string(),
}
CONVERSIONS: Final[Mapping[ColumnType, Callable[[Any], Any]]] = {
    ColumnType.INTEGER: Decimal,
    ColumnType.JSON: as_json,
}


def state_schema(overlay: Overlay[Any]) -> pa.Schema:
    """Return the columns of an overlay's table: ``BASIS``, then the columns that the overlay declares."""
    columns = [pa.field(name, ARROW_TYPES[type_]) for name, type_ in overlay.table.columns.items()]
    return pa.schema([*BASIS, *columns])


def state_rows(overlay: Overlay[Any], view: Any) -> Iterator[Sequence[Any]]:
    """Yield the rows of a view, without the columns of ``BASIS``, with values that Arrow accepts."""
    convert = [CONVERSIONS.get(type_) for type_ in overlay.table.columns.values()]
    for row in overlay.table.rows(view):
        yield tuple(
            value if value is None or change is None else change(value)
            for value, change in zip(row, convert, strict=True)
        )


def state(folded: DataFrame, overlay: str | Overlay[Any]) -> DataFrame:
    """Return the result of ``fold`` as the overlay's own table."""
    overlay = resolve_overlay(overlay)
    if "summary" not in folded.columns:
        raise SparkSetupError("the DataFrame holds no states", action="give the result of fold()")
    require_columns(folded, (field.name for field in BASIS))
    rows = folded.select(*(field.name for field in BASIS), "summary")
    return rows.mapInArrow(_table_task(overlay), spark_type(state_schema(overlay)))


def _table_task(overlay: Overlay[Any]) -> Task:
    named = overlay_reference(overlay)

    def make_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = resolve_overlay(named)
        labels = (
            row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)
        )
        rows = (
            (*basis, *row)
            for *basis, summary in labels
            for row in state_rows(own, own.view(own.load(summary).inner))
        )
        return record_batches(rows, state_schema(own), BATCH_ROWS)

    return make_rows
