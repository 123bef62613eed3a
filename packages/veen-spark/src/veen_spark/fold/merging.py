"""Merging: summaries of ranges to one per label, neighbours in stream order, in a tree (§11.3).

Ranges are sorted by Spark and combined by the overlay, ``FAN`` at a time, until a label has few enough for
one task: what moves is summaries, and each of them moves about log16 of the number of ranges times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from veen_overlays.fold.overlay import Overlay
from veen_spark.fold.ranges import (
    PART_SCHEMA,
    Task,
    overlay_reference,
    record_batches,
    resolve_overlay,
    spark_type,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FAN: Final = 16
"""Neighbours that one merge takes."""

FOLDED_SCHEMA: Final = pa.schema(
    [
        pa.field("label", pa.binary()),
        pa.field("upto_seq", pa.int64()),
        pa.field("mmr_root", pa.binary()),
        pa.field("overlay", pa.string()),
        pa.field("state_hash", pa.binary()),
        pa.field("events", pa.int64()),
        pa.field("foreign", pa.int64()),
        pa.field("undecodable", pa.int64()),
        pa.field("unopened", pa.int64()),
        pa.field("pruned", pa.int64()),
        pa.field("summary", pa.binary()),
    ]
)
"""One row per label. ``foreign`` includes what did not open; ``unopened`` says how many these were."""


def merge_ranges(parts: DataFrame, overlay: Overlay[Any], widest: int) -> DataFrame:
    """One row per label; ``widest`` is about how many ranges the label with most has."""
    from pyspark.sql import Window  # noqa: PLC0415 - slow to import
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    place = f.row_number().over(Window.partitionBy("label").orderBy("from_seq"))
    group = f.floor((place - 1) / FAN)
    while widest > FAN:
        grouped = parts.withColumn("part", group)
        parts = _in_order(grouped, "label", "part").mapInArrow(_joining(overlay), spark_type(PART_SCHEMA))
        widest = -(-widest // FAN)
    return _in_order(parts, "label").mapInArrow(_concluding(overlay), spark_type(FOLDED_SCHEMA))


def _in_order(parts: DataFrame, *together: str) -> DataFrame:
    return parts.repartition(*together).sortWithinPartitions(*together, "from_seq")


def _joining(overlay: Overlay[Any]) -> Task:
    named = overlay_reference(overlay)

    def joining(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = resolve_overlay(named)
        joined = _joined(own, batches)
        rows = ((*place, *counts, own.encode(summary)) for place, counts, summary in joined)
        return record_batches(rows, PART_SCHEMA)

    return joining


def _concluding(overlay: Overlay[Any]) -> Task:
    named = overlay_reference(overlay)

    def concluding(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = resolve_overlay(named)
        return record_batches((_concluded(own, *joined) for joined in _joined(own, batches)), FOLDED_SCHEMA)

    return concluding


def _concluded(
    overlay: Overlay[Any], place: tuple[bytes, int, int, bytes], counts: tuple[int, int], summary: Any
) -> tuple[Any, ...]:
    label, _, upto_seq, root = place
    state = (overlay.name, bytes(overlay.state_hash(summary)), *summary[:3])
    return (label, upto_seq, root, *state, *counts, overlay.encode(summary))


Joined = tuple[tuple[bytes, int, int, bytes], tuple[int, int], Any]


def _joined(overlay: Overlay[Any], batches: Iterable[pa.RecordBatch]) -> Iterator[Joined]:
    """Rows of one label and part lie together, in stream order: each such row of rows becomes one."""
    for _, group in groupby(_rows(batches), key=lambda row: (row["label"], row.get("part"))):
        rows = list(group)
        summary = overlay.merge(overlay.load(row["summary"]) for row in rows)
        first, last = rows[0], rows[-1]
        place = (last["label"], first["from_seq"], last["to_seq"], last["mmr_root"])
        counts = (sum(row["unopened"] for row in rows), sum(row["pruned"] for row in rows))
        yield place, counts, summary


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()
