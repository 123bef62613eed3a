"""Finding and settling duplicates between ranges with Spark: the steps that ``claims`` describes.

The driver holds what is repeated, about a hundred bytes for each repeated key; the rest stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from veen_overlays.fold.overlay import Overlay
from veen_spark.fold.fingerprints import (
    DUPLICATE_SCHEMA,
    FirstOccurrences,
    KeyedMessage,
    SharedRange,
    fingerprint,
    first_occurrences,
    repeated_fingerprints,
    shared_ranges,
)
from veen_spark.fold.ranges import (
    PART_SCHEMA,
    RANGE_SCHEMA,
    Task,
    messages,
    overlay_reference,
    range_task,
    record_batch,
    resolve_overlay,
    spark_type,
)
from veen_spark.functions.reader_keys import ReaderKeys

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MAX_DRIVER_FINGERPRINTS: Final = 250_000
"""So few fingerprints (2 MB) the driver compares itself."""
BUCKET_FINGERPRINTS: Final = 2_000_000
"""Of more, about so many are compared by a task."""
MAX_PUSHED_RANGES: Final = 100
"""Ranges that a second reading asks the source for by name; beyond it, it asks for their labels."""

_CLAIMED: Final = pa.schema([RANGE_SCHEMA.field(name) for name in ("label", "from_seq", "to_seq", "claims")])
_BUCKETED: Final = _CLAIMED.append(pa.field("bucket", pa.int64()))
_TOLD: Final = pa.schema(
    [
        pa.field("label", pa.binary()),
        pa.field("seq", pa.int64()),
        pa.field("identity", pa.binary()),
        pa.field("keys", pa.list_(pa.binary())),
    ]
)


class FoldJob(NamedTuple):
    """What is lifted, how, and with which keys."""

    rows: DataFrame
    overlay: Overlay[Any]
    keys: ReaderKeys | None
    held: int


def resolve_duplicates(ranges: DataFrame, claims: int, work: FoldJob) -> DataFrame:
    """The ranges, those with a duplicate of another's lifted again; ``claims`` is how many there are."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

    parts = ranges.select(*PART_SCHEMA.names)
    marked = find_shared_ranges(ranges, claims)
    if not marked:
        return parts
    again = fold_again(work, marked, first_occurrences(collect_keyed_messages(work, marked)))
    replaced = [(m.label, m.from_seq) for m in marked]
    gone = ranges.sparkSession.createDataFrame(replaced, "label binary, from_seq long")
    stand = parts.join(f.broadcast(gone), ["label", "from_seq"], "left_anti")
    return stand.select(*PART_SCHEMA.names).union(again.select(*PART_SCHEMA.names))


def fold_again(
    work: FoldJob,
    marked: list[SharedRange],
    firsts: Mapping[bytes, Mapping[bytes, int]],
    *,
    keep: bool = False,
) -> DataFrame:
    """The marked ranges once more, knowing the first of every repeated key."""
    task = range_task(
        work.overlay, work.keys, held=work.held, settled=FirstOccurrences(marked, firsts), keep=keep
    )
    return work.rows.where(range_condition(marked)).mapInArrow(task, spark_type(RANGE_SCHEMA))


def find_shared_ranges(ranges: DataFrame, claims: int) -> list[SharedRange]:
    """The ranges that share a fingerprint with another of their label."""
    from pyspark.sql import Window  # noqa: PLC0415 - slow to import
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    claimed = ranges.select(*_CLAIMED.names)
    if claims <= MAX_DRIVER_FINGERPRINTS:  # a shuffle takes longer than all of it
        by_label: dict[bytes, list[Any]] = {}
        for row in _rows(claimed.toArrow()):
            by_label.setdefault(row[0], []).append(row)
        return shared_ranges(found for label in by_label.values() for found in repeated_fingerprints(label))
    others = f.count("*").over(Window.partitionBy("label")) > 1
    several = claimed.select("*", others.alias("others")).where("others").drop("others")
    split = several.mapInArrow(_bucketing(1 + claims // BUCKET_FINGERPRINTS), spark_type(_BUCKETED))
    marking = split.groupBy("label", "bucket").applyInArrow(_marking, spark_type(DUPLICATE_SCHEMA))
    return shared_ranges(marking.collect())


def _rows(table: pa.Table | pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _bucketing(buckets: int) -> Task:
    def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np  # noqa: PLC0415 - on executors only

        for batch in batches:
            rows = []
            for label, from_seq, to_seq, packed in _rows(batch):
                prints = np.frombuffer(packed, dtype=">u8")
                for bucket in range(buckets):
                    part = prints[prints % buckets == bucket]
                    if len(part):
                        rows.append((label, from_seq, to_seq, part.tobytes(), bucket))
            yield record_batch(rows, _BUCKETED)

    return split


def _marking(table: pa.Table) -> pa.Table:
    claims = list(_rows(table.select(_CLAIMED.names)))
    return pa.Table.from_batches([record_batch(list(repeated_fingerprints(claims)), DUPLICATE_SCHEMA)])


def range_condition(marked: Iterable[SharedRange]) -> Column:
    """A condition that the data source can use: the marked ranges, or at least their labels."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

    marked = list(marked)
    if len(marked) > MAX_PUSHED_RANGES:
        return f.col("label").isin([bytearray(label) for label in {m.label for m in marked}])
    wanted = f.lit(False)
    for m in marked:
        wanted |= (f.col("label") == f.lit(bytearray(m.label))) & f.col("stream_seq").between(
            m.from_seq, m.to_seq
        )
    return wanted


def collect_keyed_messages(work: FoldJob, marked: list[SharedRange]) -> list[KeyedMessage]:
    """Of the marked ranges, the messages with a repeated fingerprint and their keys whole."""
    task = _telling(work.overlay, work.keys, marked)
    found = work.rows.where(range_condition(marked)).mapInArrow(task, spark_type(_TOLD)).collect()
    return [KeyedMessage(bytes(t[0]), t[1], bytes(t[2]), tuple(map(bytes, t[3]))) for t in found]


def _telling(overlay: Overlay[Any], keys: ReaderKeys | None, marked: list[SharedRange]) -> Task:
    named = overlay_reference(overlay)
    repeated: dict[bytes, set[bytes]] = {}
    for mark in marked:
        repeated.setdefault(mark.label, set()).update(mark.repeated)
    within = FirstOccurrences(marked, {})

    def telling(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = resolve_overlay(named)
        rows = []
        for held in messages(batches, keys, within.wants):
            identity, asked = held.message.identity, own.keys_of(own.decode(held.message))
            if any(fingerprint(key) in repeated[held.label] for key in (identity, *asked)):
                rows.append((held.label, held.seq, identity, list(asked)))
        yield record_batch(rows, _TOLD)

    return telling
