"""``veen spark fold`` and ``veen spark query-sql``: what they print, and how they fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from veen_core.errors import ConfigError
from veen_overlays.kv import KV, Delete, Put
from veen_spark.commands import spark as veen_spark
from veen_spark.commands.session import PROTOCOL, USAGE

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


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(veen_spark, [*map(str, args)])


def command_error(*args: str | Path) -> dict[str, Any]:
    result = run(*args, "--json")
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_fold_prints_the_state_of_one_process_and_writes_tables(
    spark: SparkSession, hub: Hub, place: Path
) -> None:
    fold = ("fold", place / "export", "--overlay", "kv.map", "--reader", place / "reader")
    answer = command_error(*fold, "--out", place / "out")
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
    answer = command_error("query-sql", query, place / "export", "--reader", place / "reader")
    assert [row[:3] for row in answer["rows"]] == [[n + 1, True, r.NAME] for n, r in enumerate(RECORDS)]
    assert len(answer["rows"][0][3]) == 64
    assert not answer["more"]
    quiet = run("query-sql", "select count(*) from log", place / "export", "--quiet")
    assert quiet.stdout == "3\n"  # what was asked for, and nothing else
    few = command_error("query-sql", "select 1 from log", place / "export", "--limit", "2")
    assert (len(few["rows"]), few["more"]) == (2, True)


def test_what_is_wrong_is_an_error_of_ours(spark: SparkSession, hub: Hub, place: Path) -> None:
    del spark, hub
    reader = ("--reader", place / "reader")
    assert run("query-sql", "select nothing from log", place / "export").exit_code == USAGE
    missing = run("fold", place / "export", "--overlay", "kv.map", "--reader", place / "none")
    assert isinstance(missing.exception, ConfigError)
    assert run("fold", place / "nowhere", "--overlay", "kv.map", *reader).exit_code == USAGE
    holes = "select veen_fold_kv_map(stream_seq, leaf_hash, veen_open(msg)) from log where stream_seq != 2"
    assert run("query-sql", holes, place / "export").exit_code == PROTOCOL
    assert run("fold", place / "export", "--overlay", "kv.map").exit_code == 2  # click's own: no --reader


@pytest.mark.usefixtures("hub")
def test_a_folder_that_is_there_is_refused_before_any_work_and_left_as_it_is(
    place: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").write_text("kept")
    fold = ("fold", place / "export", "--overlay", "kv.map", "--reader", place / "reader")
    refused = run(*fold, "--out", tmp_path, "--master", "spark://127.0.0.1:1")  # nobody is asked
    assert refused.exit_code == USAGE
    assert f"{tmp_path} is there already: choose another folder" in refused.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["fold", "query-sql"])
def test_every_command_explains_itself_without_starting_spark(name: str) -> None:
    text = run(name, "--help").stdout
    assert f"veen spark {name} " in text
    for flag in ("--master", "--json", "--quiet", "--verbose", "--reader"):
        assert flag in text


@pytest.mark.usefixtures("spark", "hub")
def test_a_query_that_is_wrong_is_told_in_one_line(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = run("query-sql", "select nope from log", place / "export")
    assert result.exit_code == USAGE
    (line,) = result.output.splitlines()
    assert "`nope` cannot be resolved" in line
    assert "Traceback" not in capfd.readouterr().err
