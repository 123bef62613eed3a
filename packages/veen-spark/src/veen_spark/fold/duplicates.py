"""Duplicates between ranges, found and resolved with Spark; ``fingerprints`` describes the steps.

The driver holds about 100 bytes for each repeated key. All other data stays on the executors.
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
"""The driver compares at most this many fingerprints (2 MB); with more, tasks compare them in buckets."""
BUCKET_FINGERPRINTS: Final = 2_000_000
"""Number of fingerprints in a bucket, which one task compares."""
MAX_PUSHED_RANGES: Final = 100
"""The second read filters by at most this many ranges; with more, it filters only by their labels."""

_FINGERPRINTED: Final = pa.schema(
    [RANGE_SCHEMA.field(name) for name in ("label", "from_seq", "to_seq", "fingerprints")]
)
_BUCKETED: Final = _FINGERPRINTED.append(pa.field("bucket", pa.int64()))
_KEYED: Final = pa.schema(
    [
        pa.field("label", pa.binary()),
        pa.field("seq", pa.int64()),
        pa.field("identity", pa.binary()),
        pa.field("keys", pa.list_(pa.binary())),
    ]
)


class FoldJob(NamedTuple):
    """The rows, overlay and keys of a fold, and the size of a task's buffer."""

    rows: DataFrame
    overlay: Overlay[Any]
    keys: ReaderKeys | None
    buffered: int


def resolve_duplicates(ranges: DataFrame, fingerprints: int, job: FoldJob) -> DataFrame:
    """Fold again the ranges that share a duplicate; ``fingerprints`` is the total number of fingerprints."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

    parts = ranges.select(*PART_SCHEMA.names)
    shared = find_shared_ranges(ranges, fingerprints)
    if not shared:
        return parts
    again = fold_again(job, shared, first_occurrences(collect_keyed_messages(job, shared)))
    replaced = [(m.label, m.from_seq) for m in shared]
    replaced_ranges = ranges.sparkSession.createDataFrame(replaced, "label binary, from_seq long")
    unchanged = parts.join(f.broadcast(replaced_ranges), ["label", "from_seq"], "left_anti")
    return unchanged.select(*PART_SCHEMA.names).union(again.select(*PART_SCHEMA.names))


def fold_again(
    job: FoldJob,
    shared: list[SharedRange],
    firsts: Mapping[bytes, Mapping[bytes, int]],
    *,
    keep_keys: bool = False,
) -> DataFrame:
    """Fold the shared ranges again, with the first occurrence of every repeated key."""
    task = range_task(
        job.overlay,
        job.keys,
        buffered=job.buffered,
        resolved=FirstOccurrences(shared, firsts),
        keep_keys=keep_keys,
    )
    return job.rows.where(range_condition(shared)).mapInArrow(task, spark_type(RANGE_SCHEMA))


def find_shared_ranges(ranges: DataFrame, fingerprints: int) -> list[SharedRange]:
    """Return the ranges that share a fingerprint with another range of their label."""
    from pyspark.sql import Window  # noqa: PLC0415 - slow to import
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    selected = ranges.select(*_FINGERPRINTED.names)
    if fingerprints <= MAX_DRIVER_FINGERPRINTS:  # a shuffle would take longer
        by_label: dict[bytes, list[Any]] = {}
        for row in _rows(selected.toArrow()):
            by_label.setdefault(row[0], []).append(row)
        return shared_ranges(found for label in by_label.values() for found in repeated_fingerprints(label))
    others = f.count("*").over(Window.partitionBy("label")) > 1
    several = selected.select("*", others.alias("others")).where("others").drop("others")
    split = several.mapInArrow(_split_task(1 + fingerprints // BUCKET_FINGERPRINTS), spark_type(_BUCKETED))
    compared = split.groupBy("label", "bucket").applyInArrow(_compare_group, spark_type(DUPLICATE_SCHEMA))
    return shared_ranges(compared.collect())


def _rows(table: pa.Table | pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _split_task(buckets: int) -> Task:
    def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np  # noqa: PLC0415 - only executors need it

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


def _compare_group(table: pa.Table) -> pa.Table:
    ranges = list(_rows(table.select(_FINGERPRINTED.names)))
    return pa.Table.from_batches([record_batch(list(repeated_fingerprints(ranges)), DUPLICATE_SCHEMA)])


def range_condition(shared: Iterable[SharedRange]) -> Column:
    """Return a filter for the ranges, or for their labels, that the data source can push down."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

    shared = list(shared)
    if len(shared) > MAX_PUSHED_RANGES:
        return f.col("label").isin([bytearray(label) for label in {m.label for m in shared}])
    wanted = f.lit(False)
    for m in shared:
        wanted |= (f.col("label") == f.lit(bytearray(m.label))) & f.col("stream_seq").between(
            m.from_seq, m.to_seq
        )
    return wanted


def collect_keyed_messages(job: FoldJob, shared: list[SharedRange]) -> list[KeyedMessage]:
    """Return the messages of the shared ranges that have a repeated fingerprint, with complete keys."""
    task = _key_task(job.overlay, job.keys, shared)
    found = job.rows.where(range_condition(shared)).mapInArrow(task, spark_type(_KEYED)).collect()
    return [KeyedMessage(bytes(t[0]), t[1], bytes(t[2]), tuple(map(bytes, t[3]))) for t in found]


def _key_task(overlay: Overlay[Any], keys: ReaderKeys | None, shared: list[SharedRange]) -> Task:
    named = overlay_reference(overlay)
    repeated: dict[bytes, set[bytes]] = {}
    for each in shared:
        repeated.setdefault(each.label, set()).update(each.repeated)
    within = FirstOccurrences(shared, {})

    def collect_keys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = resolve_overlay(named)
        rows = []
        for placed in messages(batches, own, keys, within.wants):
            identity, own_keys = placed.message.identity, own.keys_of(own.decode(placed.message))
            if any(fingerprint(key) in repeated[placed.label] for key in (identity, *own_keys)):
                rows.append((placed.label, placed.seq, identity, list(own_keys)))
        yield record_batch(rows, _KEYED)

    return collect_keys
