"""Finding and settling duplicates between ranges with Spark: the steps that ``claims`` describes.

The driver holds what is repeated, about a hundred bytes for each repeated key; the rest stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from veen_overlays.fold.overlay import Overlay
from veen_spark.fold.claims import (
    DUPLICATE_SCHEMA,
    Marked,
    Settled,
    Told,
    fingerprint,
    marked_ranges,
    repeating_ranges,
    settle,
)
from veen_spark.fold.ranges import (
    PART_SCHEMA,
    RANGE_SCHEMA,
    Task,
    lifting,
    messages,
    overlay_at,
    portable,
    record_batch,
    spark_type,
)
from veen_spark.functions.reader_keys import ReaderKeys

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

AT_ONCE: Final = 250_000
"""So few fingerprints (2 MB) the driver compares itself."""
BUCKET: Final = 2_000_000
"""Of more, about so many are compared by a task."""
PUSHED: Final = 100
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


class Lifting(NamedTuple):
    """What is lifted, how, and with which keys."""

    rows: DataFrame
    overlay: Overlay[Any]
    keys: ReaderKeys | None
    held: int


def without_duplicates(ranges: DataFrame, claims: int, work: Lifting) -> DataFrame:
    """The ranges, those with a duplicate of another's lifted again; ``claims`` is how many there are."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

    parts = ranges.select(*PART_SCHEMA.names)
    marked = find_marked(ranges, claims)
    if not marked:
        return parts
    again = relifted(work, marked, settle(tell(work, marked)))
    replaced = [(m.label, m.from_seq) for m in marked]
    gone = ranges.sparkSession.createDataFrame(replaced, "label binary, from_seq long")
    stand = parts.join(f.broadcast(gone), ["label", "from_seq"], "left_anti")
    return stand.select(*PART_SCHEMA.names).union(again.select(*PART_SCHEMA.names))


def relifted(
    work: Lifting, marked: list[Marked], firsts: Mapping[bytes, Mapping[bytes, int]], *, keep: bool = False
) -> DataFrame:
    """The marked ranges once more, knowing the first of every repeated key."""
    task = lifting(work.overlay, work.keys, held=work.held, settled=Settled(marked, firsts), keep=keep)
    return work.rows.where(asked_again(marked)).mapInArrow(task, spark_type(RANGE_SCHEMA))


def find_marked(ranges: DataFrame, claims: int) -> list[Marked]:
    """The ranges that share a fingerprint with another of their label."""
    from pyspark.sql import Window  # noqa: PLC0415 - slow to import
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    claimed = ranges.select(*_CLAIMED.names)
    if claims <= AT_ONCE:  # a shuffle takes longer than all of it
        by_label: dict[bytes, list[Any]] = {}
        for row in _rows(claimed.toArrow()):
            by_label.setdefault(row[0], []).append(row)
        return marked_ranges(found for label in by_label.values() for found in repeating_ranges(label))
    others = f.count("*").over(Window.partitionBy("label")) > 1
    several = claimed.select("*", others.alias("others")).where("others").drop("others")
    split = several.mapInArrow(_bucketing(1 + claims // BUCKET), spark_type(_BUCKETED))
    marking = split.groupBy("label", "bucket").applyInArrow(_marking, spark_type(DUPLICATE_SCHEMA))
    return marked_ranges(marking.collect())


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
    return pa.Table.from_batches([record_batch(list(repeating_ranges(claims)), DUPLICATE_SCHEMA)])


def asked_again(marked: Iterable[Marked]) -> Column:
    """A condition that the data source can use: the marked ranges, or at least their labels."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

    marked = list(marked)
    if len(marked) > PUSHED:
        return f.col("label").isin([bytearray(label) for label in {m.label for m in marked}])
    wanted = f.lit(False)
    for m in marked:
        wanted |= (f.col("label") == f.lit(bytearray(m.label))) & f.col("stream_seq").between(
            m.from_seq, m.to_seq
        )
    return wanted


def tell(work: Lifting, marked: list[Marked]) -> list[Told]:
    """Of the marked ranges, the messages with a repeated fingerprint and their keys whole."""
    task = _telling(work.overlay, work.keys, marked)
    found = work.rows.where(asked_again(marked)).mapInArrow(task, spark_type(_TOLD)).collect()
    return [Told(bytes(t[0]), t[1], bytes(t[2]), tuple(map(bytes, t[3]))) for t in found]


def _telling(overlay: Overlay[Any], keys: ReaderKeys | None, marked: list[Marked]) -> Task:
    named = portable(overlay)
    repeated: dict[bytes, set[bytes]] = {}
    for mark in marked:
        repeated.setdefault(mark.label, set()).update(mark.repeated)
    within = Settled(marked, {})

    def telling(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = overlay_at(named)
        rows = []
        for held in messages(batches, keys, within.wants):
            identity, asked = held.message.identity, own.keys_of(own.decode(held.message))
            if any(fingerprint(key) in repeated[held.label] for key in (identity, *asked)):
                rows.append((held.label, held.seq, identity, list(asked)))
        yield record_batch(rows, _TOLD)

    return telling
