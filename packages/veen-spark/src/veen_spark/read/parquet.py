"""Logs as Parquet: the same columns, partitioned by hub and day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class WrittenRows(NamedTuple):
    """The number of rows written, and the number of these that describe damage."""

    rows: int
    damaged: int


def add_partition_columns(frame: DataFrame) -> DataFrame:
    """Add the columns by which Parquet is partitioned: ``hub`` (hub_id in hex) and ``day`` (hub_ts, UTC)."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - loads pyspark

    hub = sql.coalesce(sql.lower(sql.hex("hub_id")), sql.lit("unknown"))
    day = sql.date_format(sql.timestamp_seconds("hub_ts"), "yyyy-MM-dd")
    return frame.withColumn("hub", hub).withColumn("day", sql.coalesce(day, sql.lit("unknown")))


def write_parquet(
    spark: SparkSession, paths: Sequence[str], target: str, *, mode: str = "failfast", overwrite: bool = False
) -> WrittenRows:
    """Write logs as Parquet. Spark's commit protocol makes all rows visible at once, or none."""
    rows = add_partition_columns(spark.read.format("veen").option("mode", mode).load(list(paths)))
    save_mode = "overwrite" if overwrite else "error"
    rows.write.mode(save_mode).partitionBy("hub", "day").parquet(target)
    written = spark.read.schema(rows.schema).parquet(target)  # an empty log writes no file with a schema
    damaged = written.where("damage is not null").count() if mode == "quarantine" else 0
    return WrittenRows(written.count(), damaged)
