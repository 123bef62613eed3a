"""Merging of range summaries to one state per label, as a tree in stream order (core §11.3).

Spark sorts the ranges of a label, and the overlay merges ``FAN_IN`` neighbours at a time until one summary is
left. Only summaries are shuffled, each about log16(number of ranges) times.
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

FAN_IN: Final = 16
"""Neighbouring summaries that one merge takes."""

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
"""One row per label. ``foreign`` includes the messages that did not open, which ``unopened`` counts."""


def merge_ranges(parts: DataFrame, overlay: Overlay[Any], widest: int) -> DataFrame:
    """Merge to one row per label; ``widest`` is the number of ranges of the label with the most ranges."""
    from pyspark.sql import Window  # noqa: PLC0415 - slow to import
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    rank = f.row_number().over(Window.partitionBy("label").orderBy("from_seq"))
    group = f.floor((rank - 1) / FAN_IN)
    while widest > FAN_IN:
        grouped = parts.withColumn("part", group)
        parts = _in_order(grouped, "label", "part").mapInArrow(_merge_task(overlay), spark_type(PART_SCHEMA))
        widest = -(-widest // FAN_IN)
    return _in_order(parts, "label").mapInArrow(_state_task(overlay), spark_type(FOLDED_SCHEMA))


def _in_order(parts: DataFrame, *together: str) -> DataFrame:
    return parts.repartition(*together).sortWithinPartitions(*together, "from_seq")


def _merge_task(overlay: Overlay[Any]) -> Task:
    named = overlay_reference(overlay)

    def merge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = resolve_overlay(named)
        groups = _merge_groups(own, batches)
        rows = ((*position, *counts, own.encode(summary)) for position, counts, summary in groups)
        return record_batches(rows, PART_SCHEMA)

    return merge


def _state_task(overlay: Overlay[Any]) -> Task:
    named = overlay_reference(overlay)

    def make_states(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = resolve_overlay(named)
        return record_batches(
            (_state_row(own, *group) for group in _merge_groups(own, batches)), FOLDED_SCHEMA
        )

    return make_states


def _state_row(
    overlay: Overlay[Any], position: tuple[bytes, int, int, bytes], counts: tuple[int, int], summary: Any
) -> tuple[Any, ...]:
    label, _, upto_seq, root = position
    state = (overlay.name, bytes(overlay.state_hash(summary)), *summary[:3])
    return (label, upto_seq, root, *state, *counts, overlay.encode(summary))


Merged = tuple[tuple[bytes, int, int, bytes], tuple[int, int], Any]


def _merge_groups(overlay: Overlay[Any], batches: Iterable[pa.RecordBatch]) -> Iterator[Merged]:
    """Merge each group of rows of the same label and part; rows come grouped and in stream order."""
    for _, group in groupby(_rows(batches), key=lambda row: (row["label"], row.get("part"))):
        rows = list(group)
        summary = overlay.merge(overlay.load(row["summary"]) for row in rows)
        first, last = rows[0], rows[-1]
        position = (last["label"], first["from_seq"], last["to_seq"], last["mmr_root"])
        counts = (sum(row["unopened"] for row in rows), sum(row["pruned"] for row in rows))
        yield position, counts, summary


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()
