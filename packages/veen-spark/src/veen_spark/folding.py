"""Fold: an overlay's state from a log of any size, the bytes that one process would compute (§11.3).

    folded = fold(spark.read.format("veen").load("clone"), "wallet.ledger", ReaderKeys.from_files("reader"))

1. One Arrow pass opens, decodes and lifts; summaries of ranges leave it (``ranges``).
2. The ranges of each label must cover it from its first entry to its last, each once: a state rests on a
   prefix.
3. Duplicates between ranges are settled (``claims``); the ranges that have any are lifted again.
4. Summaries are merged in stream order, a few neighbours at a time: no task walks a whole hot label.

The result has one row per label: how far it goes, the root it rests on, and the state's hash. Nothing here
verifies signatures or roots: ``verify`` does. ``states.state`` makes a table of the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from veen_core.errors import VerificationError
from veen_overlays.overlay import Overlay
from veen_spark.claims import FINGERPRINT
from veen_spark.duplicates import Lifting, without_duplicates
from veen_spark.errors import SparkSetupError
from veen_spark.merging import merged
from veen_spark.open import require_columns
from veen_spark.ranges import HELD, OPENED, PART_SCHEMA, RANGE_SCHEMA, SEALED, lifting, overlay_at, spark_type
from veen_spark.reader_keys import ReaderKeys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

PARTITION_BYTES: Final = 8 * 1_048_576
"""``maxPartitionBytes`` that suits a fold: opening so much takes seconds, and all cores get some of it."""


def fold(
    frame: DataFrame,
    overlay: str | Overlay[Any],
    keys: ReaderKeys | None = None,
    *,
    allow_pruned: bool = False,
    held: int = HELD,
) -> DataFrame:
    """The state of every label in the frame, by this overlay.

    ``frame`` is what the data source gives, and ``keys`` open it; or it was opened before, and there are no
    keys. Entries that retention took leave a state that nobody can compute; ``allow_pruned`` folds the rest.
    """
    overlay = overlay_at(overlay)
    rows = needed(frame, keys)
    ranges = rows.mapInArrow(lifting(overlay, keys, held=held), spark_type(RANGE_SCHEMA)).persist()
    try:
        widest, claims = examine(ranges, allow_pruned=allow_pruned)
        parts = ranges.select(*PART_SCHEMA.names)
        if widest > 1:
            parts = without_duplicates(ranges, claims, Lifting(rows, overlay, keys, held))
        # Kept by the session until the frame is garbage; a plan that is asked again folds nothing again.
        return merged(parts, overlay, widest).localCheckpoint(eager=True)
    finally:
        ranges.unpersist()


def needed(frame: DataFrame, keys: ReaderKeys | None) -> DataFrame:
    """The columns that a fold looks at."""
    if keys is None and "opened" not in frame.columns:
        raise SparkSetupError(
            "these messages are sealed: give reader keys, or open them first (open_messages)"
        )
    names = OPENED if keys is None else SEALED
    require_columns(frame, names)
    return frame.select(*names)


# --- 2: every label from its first entry to its last


def examine(ranges: DataFrame, *, allow_pruned: bool, begins: int = 1) -> tuple[int, int]:
    """The most ranges of a label, and how many claims there are; raises unless they tile each label."""
    from pyspark.sql import Window  # noqa: PLC0415 - slow to import
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    in_order = Window.partitionBy("label").orderBy("from_seq", "to_seq")
    previous = f.coalesce(f.lag("to_seq").over(in_order), f.lit(begins - 1))
    broken = f.when(
        f.col("from_seq") != previous + 1, f.struct("label", "from_seq", previous.alias("previous"))
    )
    size = f.length("claims") / FINGERPRINT
    plain = ranges.select("label", "from_seq", "to_seq", "pruned", size.alias("claims"))
    by_label = (
        plain.withColumn("broken", broken)
        .groupBy("label")
        .agg(f.count("*").alias("n"), f.sum("claims").alias("claims"), f.min("broken").alias("broken"),
             f.sum("pruned").alias("pruned"))
    )  # fmt: skip
    lacking = f.when(f.col("pruned") > 0, f.struct("label", "pruned"))
    totals = by_label.agg(
        f.max("n"), f.sum(f.when(f.col("n") > 1, f.col("claims"))), f.min("broken"), f.min(lacking)
    ).collect()[0]
    if totals[2] is not None:
        raise VerificationError(_untiled(totals[2]))
    if totals[3] is not None and not allow_pruned:
        raise VerificationError(
            f"label {totals[3]['label'].hex()}: retention took {totals[3]['pruned']} of its messages, and "
            "nobody can fold what is gone; fold a copy from before, or say allow_pruned to fold the rest"
        )
    return totals[0] or 0, int(totals[1] or 0)


def _untiled(broken: Row) -> str:
    label, found, previous = broken["label"].hex(), broken["from_seq"], broken["previous"]
    if found <= previous:
        return f"label {label}: entry {found} is there twice; load each log once"
    return (
        f"label {label}: entries {previous + 1} to {found - 1} are missing, and a state rests on a whole "
        "prefix; load the log from its first entry on"
    )
