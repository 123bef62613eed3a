"""Fold: an overlay's state from a log of any size, the bytes that one process would compute (§11.3).

    folded = fold(spark.read.format("veen").load("clone"), "wallet.ledger", ReaderKeys.from_files("reader"))

1. One Arrow pass opens, decodes and lifts; summaries of ranges leave it (``ranges``).
2. The ranges of each label must cover it from its first entry to its last, each once: a state rests on a
   prefix.
3. Duplicates between ranges are settled (``claims``); the ranges that have any are lifted again.
4. Summaries are merge_ranges in stream order, a few neighbours at a time: no task walks a whole hot label.

The result has one row per label: how far it goes, the root it rests on, and the state's hash. Nothing here
verifies signatures or roots: ``verify`` does. ``states.state`` makes a table of the state.
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
from veen_spark.fold.fingerprints import FINGERPRINT
from veen_spark.fold.merging import merge_ranges
from veen_spark.fold.ranges import (
    BATCH,
    MAX_BUFFERED_MESSAGES,
    OPENED,
    PART_SCHEMA,
    RANGE_SCHEMA,
    SEALED,
    range_task,
    resolve_overlay,
    spark_type,
)
from veen_spark.functions.open import require_columns
from veen_spark.functions.reader_keys import ReaderKeys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITION_BYTES: Final = 4 * 1_048_576
"""``maxPartitionBytes`` that suits a fold: opening it takes a second, and all cores end about together."""


def fold(
    frame: DataFrame,
    overlay: str | Overlay[Any],
    keys: ReaderKeys | None = None,
    *,
    allow_pruned: bool = False,
    held: int = MAX_BUFFERED_MESSAGES,
) -> DataFrame:
    """The state of every label in the frame, by this overlay.

    ``frame`` is what the data source gives, and ``keys`` open it; or it was opened before, and there are no
    keys. Entries that retention took leave a state that nobody can compute; ``allow_pruned`` folds the rest.
    """
    overlay = resolve_overlay(overlay)
    rows = select_columns(frame, keys)
    ranges = rows.mapInArrow(range_task(overlay, keys, held=held), spark_type(RANGE_SCHEMA)).persist()
    try:
        widest, claims = check_coverage(ranges, allow_pruned=allow_pruned)
        parts = ranges.select(*PART_SCHEMA.names)
        if widest > 1:
            parts = resolve_duplicates(ranges, claims, FoldJob(rows, overlay, keys, held))
        # Kept by the session until the frame is garbage; a plan that is asked again folds nothing again.
        return merge_ranges(parts, overlay, widest).localCheckpoint(eager=True)
    finally:
        ranges.unpersist()


def select_columns(frame: DataFrame, keys: ReaderKeys | None) -> DataFrame:
    """The columns that a fold looks at."""
    if keys is None and "opened" not in frame.columns:
        raise SparkSetupError(
            "these messages are sealed: give reader keys, or open them first (open_messages)"
        )
    names = OPENED if keys is None else SEALED
    require_columns(frame, names)
    return frame.select(*names)


# --- 2: every label from its first entry to its last


def check_coverage(ranges: DataFrame, *, allow_pruned: bool, begins: int = 1) -> tuple[int, int]:
    """The most ranges of a label, and how many claims there are; raises unless they tile each label.

    Done on the driver, with some sixty bytes a range: shuffling so few rows costs Spark a second.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

    size = (f.length("claims") / FINGERPRINT).cast("long").alias("claims")
    table = ranges.select("label", "from_seq", "to_seq", "pruned", size).toArrow()
    widest = claims = 0
    lacking: tuple[bytes, int] | None = None
    in_order = table.sort_by([(name, "ascending") for name in ("label", "from_seq", "to_seq")])
    for label, group in groupby(_rows(in_order), key=itemgetter(0)):
        end, count, pruned = begins - 1, 0, 0
        for _, first, last, gone, claimed in group:
            if first != end + 1:
                raise VerificationError(_untiled(label, first, end))
            end, count, claims, pruned = last, count + 1, claims + claimed, pruned + gone
        widest = max(widest, count)
        lacking = (label, pruned) if pruned and lacking is None else lacking
    if lacking is not None and not allow_pruned:
        raise VerificationError(
            f"label {lacking[0].hex()}: retention took {lacking[1]} of its messages, and nobody can fold "
            "what is gone; fold a copy from before, or say allow_pruned to fold the rest"
        )
    return widest, claims


def _rows(table: pa.Table) -> Iterator[tuple[bytes, int, int, int, int]]:
    for batch in table.to_batches(max_chunksize=BATCH):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _untiled(label: bytes, found: int, previous: int) -> str:
    if found <= previous:
        return f"label {label.hex()}: entry {found} is there twice; load each log once"
    return (
        f"label {label.hex()}: entries {previous + 1} to {found - 1} are missing, and a state rests on a "
        "whole prefix; load the log from its first entry on"
    )
