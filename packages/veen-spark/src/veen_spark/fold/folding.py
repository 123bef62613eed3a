"""``fold``: an overlay's state from a log of any size, the same bytes that one process computes (core §11.3).

    folded = fold(spark.read.format("veen").load("clone"), "wallet.ledger", ReaderKeys.from_files("reader"))

1. One Arrow pass opens, decodes and folds ranges of consecutive entries (``ranges``).
2. The ranges of each label must cover it from entry 1 to its last entry, without gaps and overlaps.
3. Duplicates between ranges are resolved (``duplicates``); ranges that contain one are folded again.
4. The summaries are merged in stream order, sixteen neighbours at a time (``merging``), so that no task
   processes a whole large label.

The result has one row per label: its last entry, the root there, and the hash of the state. Folding does not
verify signatures and roots; ``verify`` does. ``states.state`` turns the state into a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from veen_core.errors import VerificationError
from veen_overlays.fold.overlay import Overlay
from veen_spark.errors import SparkSetupError
from veen_spark.fold.duplicates import FoldJob, resolve_duplicates
from veen_spark.fold.fingerprints import FINGERPRINT_BYTES
from veen_spark.fold.merging import merge_ranges
from veen_spark.fold.ranges import (
    MAX_BATCH_ROWS,
    MAX_BUFFERED_MESSAGES,
    PART_SCHEMA,
    RANGE_SCHEMA,
    columns_of,
    range_task,
    resolve_overlay,
    spark_type,
)
from veen_spark.functions.open import require_columns
from veen_spark.functions.reader_keys import ReaderKeys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITION_BYTES: Final = 4 * 1_048_576
"""Suitable ``maxPartitionBytes`` for a fold: tasks of about a second, so all cores finish together."""


def fold(
    frame: DataFrame,
    overlay: str | Overlay[Any],
    keys: ReaderKeys | None = None,
    *,
    allow_pruned: bool = False,
    buffered: int = MAX_BUFFERED_MESSAGES,
) -> DataFrame:
    """Return the state of every label in the DataFrame.

    ``frame`` holds rows of the data source, which ``keys`` open; without keys it must hold the columns of
    ``open_messages``. A label with pruned entries is refused unless ``allow_pruned`` is true.
    """
    overlay = resolve_overlay(overlay)
    rows = select_columns(frame, overlay, keys)
    ranges = rows.mapInArrow(range_task(overlay, keys, buffered=buffered), spark_type(RANGE_SCHEMA)).persist()
    try:
        widest, fingerprints = check_coverage(ranges, allow_pruned=allow_pruned)
        parts = ranges.select(*PART_SCHEMA.names)
        if widest > 1:
            parts = resolve_duplicates(ranges, fingerprints, FoldJob(rows, overlay, keys, buffered))
        # The session keeps the result while Python holds the DataFrame, so that reading it twice folds once.
        return merge_ranges(parts, overlay, widest).localCheckpoint(eager=True)
    finally:
        ranges.unpersist()


def select_columns(frame: DataFrame, overlay: Overlay[Any], keys: ReaderKeys | None) -> DataFrame:
    """Select the columns that a fold needs."""
    if keys is None and "opened" not in frame.columns:
        raise SparkSetupError(
            "the messages are sealed", action="give reader keys, or open them with open_messages first"
        )
    names = columns_of(overlay, sealed=keys is not None)
    require_columns(frame, names)
    return frame.select(*names)


def check_coverage(ranges: DataFrame, *, allow_pruned: bool, begins: int = 1) -> tuple[int, int]:
    """Raise unless the ranges cover each label from entry ``begins`` on, without gaps and overlaps.

    Return the largest number of ranges of a label, and the total number of fingerprints. The driver does this
    with about 60 bytes per range: a shuffle would take a second even for a few rows.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

    size = (f.length("fingerprints") / FINGERPRINT_BYTES).cast("long").alias("fingerprints")
    table = ranges.select("label", "from_seq", "to_seq", "pruned", size).toArrow()
    widest = fingerprints = 0
    lacking: tuple[bytes, int] | None = None
    in_order = table.sort_by([(name, "ascending") for name in ("label", "from_seq", "to_seq")])
    for label, group in groupby(_rows(in_order), key=itemgetter(0)):
        end, count, pruned = begins - 1, 0, 0
        for _, first, last, removed, keys in group:
            if first != end + 1:
                raise _not_covered(label, first, end)
            end, count, fingerprints, pruned = last, count + 1, fingerprints + keys, pruned + removed
        widest = max(widest, count)
        lacking = (label, pruned) if pruned and lacking is None else lacking
    if lacking is not None and not allow_pruned:
        raise VerificationError(
            f"label {lacking[0].hex()}: retention has removed {lacking[1]} of its messages",
            action="fold a copy that was made before, or fold the rest with allow_pruned",
        )
    return widest, fingerprints


def _rows(table: pa.Table) -> Iterator[tuple[bytes, int, int, int, int]]:
    for batch in table.to_batches(max_chunksize=MAX_BATCH_ROWS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _not_covered(label: bytes, found: int, previous: int) -> VerificationError:
    if found <= previous:
        return VerificationError(
            f"label {label.hex()}: entry {found} occurs twice", action="load each log once"
        )
    return VerificationError(
        f"label {label.hex()}: entries {previous + 1} to {found - 1} are missing",
        action="load the log from entry 1 on",
    )
