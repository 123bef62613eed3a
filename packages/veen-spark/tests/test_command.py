"""``veen spark …``, in this process on the suite's session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from veen_spark.commands import COMMANDS
from veen_spark.commands import spark as group
from veen_spark.commands.session import NETWORK, PROTOCOL, USAGE, command_error

from .live_hub import LiveHub
from .logs import Hub, files_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(group, [str(arg) for arg in args])


def test_the_group_lists_its_commands_and_each_has_help() -> None:
    shown = run("--help").output
    for name in COMMANDS:
        assert name in shown
        assert run(name, "--help").exit_code == 0


def test_verify_reports_in_words_and_json_and_by_its_exit_code(
    hub: Hub, spark: SparkSession, tmp_path: Path
) -> None:
    hub.send("orders", 20, cheap=True)
    clone = hub.clone(tmp_path / "clone")
    good = run("verify", clone, "--hub-id", hub.hub_id.hex(), "--report", tmp_path / "report")
    assert good.exit_code == 0, good.output
    assert "everything holds: 20 entries of 1 labels" in good.output
    assert spark.read.parquet(str(tmp_path / "report")).count() == 1
    chunk = files_of(clone / "log")[1]
    chunk.write_bytes(chunk.read_bytes()[:-5])
    bad = run("verify", clone, "--json")
    assert bad.exit_code == PROTOCOL
    found = json.loads(bad.output)
    assert (found["ok"], found["entries"], found["hubs"][0]["pinned"]) == (False, 19, False)
    assert found["faults"][0]["fault_file"] == str(chunk)
    assert found["faults"][0]["fault_seq"] == 16


@pytest.mark.usefixtures("spark")
def test_verify_tells_a_damaged_folder_beside_those_that_hold(hub: Hub, tmp_path: Path) -> None:
    hub.send("orders", 20, cheap=True)
    for name in ("bad", "good"):
        hub.export("orders", tmp_path / "many" / name)
        (tmp_path / "many" / name / "manifest.sig").unlink()
    manifest = tmp_path / "many" / "bad" / "manifest.cbor"
    manifest.write_bytes(b"\xff")
    told = run("verify", tmp_path / "many", "--report", tmp_path / "report")
    assert told.exit_code == PROTOCOL
    assert f"FAULT  {manifest.parent}: " in told.output
    assert f"({manifest}, byte 0)" in told.output
    assert f"NOT SIGNED: {tmp_path / 'many' / 'good'} " in told.output
    assert "1 labels or folders have a fault: 20 entries of 1 labels" in told.output


@pytest.mark.parametrize(
    "args",
    [("verify",), ("verify", "x", "--hub-id", "zz"), ("verify", "x", "--conf", "nothing")],
    ids=["no path", "hub id", "conf"],
)
def test_wrong_usage_is_said_before_spark_starts(args: tuple[str, ...]) -> None:
    assert run(*args).exit_code == 2  # click's own; veen ends with 1


def test_a_path_that_is_not_there_is_said_before_spark_starts() -> None:
    converting = ("to-parquet", "nowhere", "target")
    for command in (("verify", "no*where"), ("query-sql", "select 1", "nowhere"), converting):
        failed = run(*command, "--master", "no master that Spark would take")
        assert failed.exit_code == USAGE
        assert "does not exist" in failed.output


@pytest.mark.usefixtures("spark")
def test_a_path_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    for command in (("verify", tmp_path / "nowhere"), ("to-parquet", tmp_path / "nowhere", tmp_path / "out")):
        failed = run(*command)
        assert failed.exit_code == USAGE
        assert "does not exist" in failed.output


def test_logs_become_parquet_with_the_same_columns(hub: Hub, spark: SparkSession, tmp_path: Path) -> None:
    hub.send("orders", 20)
    clone = hub.clone(tmp_path / "clone")
    done = run("to-parquet", clone, tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["rows"] == 20
    assert (tmp_path / "out" / f"hub={hub.hub_id.hex()}" / "day=2023-11-14").is_dir()
    logs, parquet = spark.read.format("veen").load(str(clone)), spark.read.parquet(str(tmp_path / "out"))
    assert parquet.columns == [*logs.columns, "hub", "day"]
    assert parquet.drop("hub", "day").exceptAll(logs).count() == 0
    again = run("to-parquet", clone, tmp_path / "out")
    assert again.exit_code == USAGE


@pytest.mark.usefixtures("spark")
def test_an_empty_log_is_no_rows_of_parquet(hub: Hub, tmp_path: Path) -> None:
    done = run("to-parquet", hub.clone(tmp_path / "clone"), tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["rows"] == 0


@pytest.mark.usefixtures("spark")
def test_a_damaged_log_leaves_the_target_as_it_was(hub: Hub, tmp_path: Path) -> None:
    hub.send("orders", 20)
    clone, out = hub.clone(tmp_path / "clone"), tmp_path / "out"
    chunk = files_of(clone)[1]
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:-1])
    failed = run("to-parquet", clone, out)
    assert failed.exit_code == PROTOCOL
    assert str(chunk) in failed.output
    kept = run("to-parquet", clone, out, "--mode", "quarantine", "--json")
    assert kept.exit_code == 0, kept.output
    assert json.loads(kept.output)["damaged"] == 1
    before = sorted(out.rglob("*"))
    assert run("to-parquet", clone, out, "--overwrite").exit_code == PROTOCOL
    assert sorted(out.rglob("*")) == before
    chunk.write_bytes(whole)
    done = run("to-parquet", clone, out, "--overwrite", "--json")
    assert (done.exit_code, json.loads(done.output)["rows"]) == (0, 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clone", "hub", "out"]


def test_nothing_but_parquet_is_overwritten(hub: Hub, tmp_path: Path) -> None:
    """TARGET is forgotten, or another's: it is said before Spark starts."""
    hub.send("orders", 3)
    clone, text = hub.clone(tmp_path / "clone"), tmp_path / "text"
    text.write_text("mine")
    logs = sorted(clone.rglob("*"))
    for target in (clone, text, tmp_path, Path("/")):
        refused = run("to-parquet", clone, target, "--overwrite")
        assert (refused.exit_code, "would be lost" in refused.output) == (USAGE, True), refused.output
    assert sorted(clone.rglob("*")) == logs
    assert text.read_text() == "mine"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveHub]:
    hub = LiveHub(tmp_path / "live")
    hub.start()
    yield hub
    hub.stop()


def test_a_stream_goes_on_where_it_ended_and_refuses_half_of_what_it_left(
    live: LiveHub, spark: SparkSession, tmp_path: Path
) -> None:
    target, checkpoint = tmp_path / "out", tmp_path / "out.checkpoint"
    command = ("stream", target, "--hub", live.url, "--hub-id", live.hub_id.hex(), "--stream", "orders")

    def follow() -> Result:
        return run(*command, "--once", "--json")

    assert json.loads(follow().stdout)["rows"] == 0  # nothing there yet
    for count, rows in ((5, 5), (3, 8)):
        live.send("orders", count)
        done = follow()
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout) == {"rows": rows, "target": str(target), "checkpoint": str(checkpoint)}
    numbers = spark.read.parquet(str(target)).select("stream_seq").collect()
    assert sorted(row.stream_seq for row in numbers) == list(range(1, 9))
    for gone, why in ((checkpoint, "does not say how far"), (target, "does not hold it")):
        gone.rename(tmp_path / "elsewhere")
        refused = follow()
        assert (refused.exit_code, why in refused.output) == (USAGE, True), refused.output
        (tmp_path / "elsewhere").rename(gone)
    assert json.loads(follow().stdout)["rows"] == 8


def test_an_error_in_a_worker_is_said_in_its_own_words_with_its_code() -> None:
    trace = "An exception was thrown\nTraceback (most recent call last):\n"
    damaged = command_error(f"{trace}veen_spark.errors.DamagedLog: a.log, byte 7: cut short\n")
    assert (damaged.message, damaged.exit_code) == ("a.log, byte 7: cut short", PROTOCOL)
    away = command_error(f"{trace}veen_hub.client.errors.Unreachable: no hub answers\n")
    assert (away.message, away.exit_code) == ("no hub answers", NETWORK)
    assert command_error("[NO_IDEA] something of Spark's").exit_code == USAGE


@pytest.mark.parametrize("command", [("to-parquet", "LOG", "THERE"), ("verify", "LOG", "--report", "THERE")])
def test_what_is_there_already_is_refused_before_any_work(command: tuple[str, ...], tmp_path: Path) -> None:
    places = {"LOG": tmp_path / "nothing", "THERE": tmp_path}
    result = run(*(places.get(word, word) for word in command))
    assert result.exit_code == USAGE
    assert "is there already: choose another folder" in result.output
