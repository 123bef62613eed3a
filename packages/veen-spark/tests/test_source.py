"""The data source on Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from veen_spark.read.columns import COLUMNS

from .logs import Hub, files_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_logs_of_two_hubs_are_one_frame(
    make_hub: Callable[..., Hub], spark: SparkSession, tmp_path: Path
) -> None:
    first, second = make_hub("one", key="one"), make_hub("two", key="two")
    for hub, count in ((first, 30), (second, 5)):
        hub.send("orders", count)
        hub.clone(tmp_path / "clones" / hub.root.name)
    frame = spark.read.format("veen").option("maxPartitionBytes", "3000").load(str(tmp_path / "clones" / "*"))
    assert frame.columns == [column.name for column in COLUMNS]
    frame.createOrReplaceTempView("log")
    counts = spark.sql("select hub_id, count(*) as n, max(stream_seq) as last from log group by hub_id")
    found = {bytes(row.hub_id): (row.n, row.last) for row in counts.collect()}
    assert found == {first.hub_id: (30, 30), second.hub_id: (5, 5)}


def test_filters_come_down_to_the_source(hub: Hub, spark: SparkSession, tmp_path: Path) -> None:
    hub.send("orders", 30)
    hub.send("invoices", 4)
    clone = hub.clone(tmp_path / "clone")
    for path in files_of(clone / "log"):
        path.write_bytes(b"damaged")  # sealed chunks: the two that grow are left
    frame = spark.read.format("veen").load(str(clone))
    invoices = hub.label("invoices").hex()
    assert frame.where(f"label = X'{invoices}'").count() == 4
    assert frame.where("stream_seq >= 26 and hub_ts > 0").count() == 5


def test_damage_fails_the_job_with_file_and_offset_or_is_a_row(
    hub: Hub, spark: SparkSession, tmp_path: Path
) -> None:
    hub.send("orders", 10)
    clone = hub.clone(tmp_path / "clone")
    (chunk,) = files_of(clone / "log")
    chunk.write_bytes(chunk.read_bytes()[:-1])
    with pytest.raises(Exception, match="ends inside an entry") as failed:
        spark.read.format("veen").load(str(clone)).count()
    assert f"{chunk}, byte " in str(failed.value)
    kept = spark.read.format("veen").option("mode", "quarantine").load(str(clone))
    damaged = kept.where("damage is not null").select("file", "damage.reason").collect()
    assert [row.file for row in damaged] == [str(chunk)]
    with pytest.raises(Exception, match="does not exist"):
        spark.read.format("veen").load(str(tmp_path / "nowhere")).count()


def test_the_reference_documents_every_column() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "spark.md").read_text(encoding="utf-8")
    for column in COLUMNS:
        assert f"| `{column.name}` | " in page
        assert f" | {column.comment} |" in page
