"""Logs as Parquet: the same columns, partitioned by hub and day, so that later queries read little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Written(NamedTuple):
    """What was written."""

    rows: int
    damaged: int


def partitioned(frame: DataFrame) -> DataFrame:
    """With the columns that Parquet is partitioned by: ``hub`` (hub_id in hex) and ``day`` of hub_ts, UTC."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - loads pyspark

    hub = sql.coalesce(sql.lower(sql.hex("hub_id")), sql.lit("unknown"))
    day = sql.date_format(sql.timestamp_seconds("hub_ts"), "yyyy-MM-dd")
    return frame.withColumn("hub", hub).withColumn("day", sql.coalesce(day, sql.lit("unknown")))


def to_parquet(
    spark: SparkSession, paths: Sequence[str], target: str, *, mode: str = "failfast", overwrite: bool = False
) -> Written:
    """Write logs; either all of them arrive or, by Spark's commit protocol, nothing that counts does."""
    rows = partitioned(spark.read.format("veen").option("mode", mode).load(list(paths)))
    how = "overwrite" if overwrite else "error"
    rows.write.mode(how).partitionBy("hub", "day").parquet(target)
    written = spark.read.schema(rows.schema).parquet(target)  # of an empty log, no file tells its schema
    damaged = written.where("damage is not null").count() if mode == "quarantine" else 0
    return Written(written.count(), damaged)
