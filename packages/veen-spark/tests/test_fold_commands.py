"""``veen spark fold`` and ``veen spark query-sql``: their output and their errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from veen_cli.frame import Exit
from veen_overlays.kv import KV, Delete, Put

from .commands import run
from .frames import in_one_process
from .logs import Hub, reader_key

RECORDS = [Put(key=b"a", value=b"1"), Put(key=b"b", value=b"2"), Delete(key=b"a")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="module")
def hub(place: Path) -> Iterator[Hub]:
    hub = Hub(place / "hub")
    hub.send_records("orders", RECORDS)
    hub.export("orders", place / "export", form="chunks")
    (place / "reader").write_bytes(bytes(reader_key("orders").secret))
    (place / "reader").chmod(0o600)
    yield hub
    hub.close()


def answer_of(*args: str | Path) -> dict[str, Any]:
    result = run(*args, "--json")
    assert result.exit_code == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_fold_prints_the_state_of_one_process_and_writes_tables(
    spark: SparkSession, hub: Hub, place: Path
) -> None:
    fold = ("fold", place / "export", "--overlay", "kv.map", "--reader", place / "reader")
    answer = answer_of(*fold, "--out", place / "out")
    whole = in_one_process(KV, hub, "orders", reader_key("orders"))
    (label,) = answer["labels"]
    assert (label["label"], label["upto_seq"]) == (hub.label("orders").hex(), 3)
    assert label["state_hash"] == KV.state_hash(whole).hex()
    rows = spark.read.parquet(str(place / "out" / "state")).select("key", "value").collect()
    assert [(bytes(key), bytes(value)) for key, value in rows] == [(b"b", b"2")]
    shown = run(*fold)
    assert f"state {label['state_hash']}" in shown.stdout
    assert run(*fold, "--quiet").stdout == ""


def test_query_sql_verifies_and_decodes(spark: SparkSession, hub: Hub, place: Path) -> None:
    del spark, hub
    query = "select stream_seq, veen_verify_msg(msg), veen_open(msg).schema_name, label from log order by 1"
    answer = answer_of("query-sql", place / "export", "--query", query, "--reader", place / "reader")
    assert [row[:3] for row in answer["rows"]] == [[n + 1, True, r.NAME] for n, r in enumerate(RECORDS)]
    assert len(answer["rows"][0][3]) == 64
    assert not answer["more"]
    quiet = run("query-sql", place / "export", "--query", "select count(*) from log", "--quiet")
    assert quiet.stdout == "3\n"
    few = answer_of("query-sql", place / "export", "--query", "select 1 from log", "--limit", "2")
    assert (len(few["rows"]), few["more"]) == (2, True)


def test_every_failure_has_an_exit_code_of_veen(spark: SparkSession, hub: Hub, place: Path) -> None:
    del spark, hub
    reader = ("--reader", place / "reader")
    assert run("query-sql", place / "export", "--query", "select nothing from log").exit_code == Exit.USAGE
    missing = run("fold", place / "export", "--overlay", "kv.map", "--reader", place / "none")
    assert missing.exit_code == Exit.USAGE
    assert run("fold", place / "nowhere", "--overlay", "kv.map", *reader).exit_code == Exit.USAGE
    holes = "select veen_fold_kv_map(stream_seq, leaf_hash, veen_open(msg)) from log where stream_seq != 2"
    assert run("query-sql", place / "export", "--query", holes).exit_code == Exit.PROTOCOL
    assert run("fold", place / "export", "--overlay", "kv.map").exit_code == Exit.USAGE  # no --reader


@pytest.mark.usefixtures("hub")
def test_an_existing_folder_is_refused_before_any_work_and_left_unchanged(
    place: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").write_text("kept")
    fold = ("fold", place / "export", "--overlay", "kv.map", "--reader", place / "reader")
    refused = run(*fold, "--out", tmp_path, "--master", "spark://127.0.0.1:1")
    assert refused.exit_code == Exit.USAGE
    assert f"{tmp_path} exists already; choose another folder" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["fold", "query-sql"])
def test_every_command_explains_itself_without_starting_spark(name: str) -> None:
    text = run(name, "--help").stdout
    assert f"veen spark {name} " in text
    for flag in ("--master", "--json", "--quiet", "--verbose", "--reader"):
        assert flag in text


@pytest.mark.usefixtures("spark", "hub")
def test_a_wrong_query_is_reported_in_one_line(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = run("query-sql", place / "export", "--query", "select nope from log", "--quiet")
    assert result.exit_code == Exit.USAGE
    (line,) = result.stderr.splitlines()
    assert "`nope` cannot be resolved" in line
    assert "Traceback" not in capfd.readouterr().err
