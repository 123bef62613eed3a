"""``veen spark …`` on the session of the tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from veen_cli.frame import Exit, Output
from veen_spark.commands import COMMANDS
from veen_spark.commands import session as command_session
from veen_spark.commands.session import command_error, starting
from veen_spark.verify.report import assemble_labels

from .commands import Result, run
from .live_hub import LiveHub
from .logs import Hub, files_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_group_lists_its_commands_and_each_has_help() -> None:
    shown = run("--help").stdout
    for name in COMMANDS:
        assert name in shown
        assert run(name, "--help").exit_code == 0


def test_verify_reports_in_words_and_json_and_by_its_exit_code(
    hub: Hub, spark: SparkSession, tmp_path: Path
) -> None:
    hub.send("orders", 20, cheap=True)
    clone = hub.clone(tmp_path / "clone")
    good = run("verify", clone, "--hub-id", hub.hub_id.hex(), "--out", tmp_path / "report")
    assert good.exit_code == 0, good.stderr
    assert "all checks passed: 20 entries of 1 label, 0 of them pruned" in good.stdout
    assert spark.read.parquet(str(tmp_path / "report")).count() == 1
    chunk = files_of(clone / "log")[1]
    chunk.write_bytes(chunk.read_bytes()[:-5])
    bad = run("verify", clone, "--json")
    assert bad.exit_code == Exit.PROTOCOL
    found = json.loads(bad.stdout)
    assert (found["ok"], found["entries"], found["hubs"][0]["pinned"]) == (False, 19, False)
    assert found["faults"][0]["fault_file"] == str(chunk)
    assert found["faults"][0]["fault_seq"] == 16


@pytest.mark.usefixtures("spark")
def test_verify_reports_a_damaged_folder_and_verifies_the_others(hub: Hub, tmp_path: Path) -> None:
    hub.send("orders", 20, cheap=True)
    for name in ("bad", "good"):
        hub.export("orders", tmp_path / "many" / name)
        (tmp_path / "many" / name / "manifest.sig").unlink()
    manifest = tmp_path / "many" / "bad" / "manifest.cbor"
    manifest.write_bytes(b"\xff")
    told = run("verify", tmp_path / "many", "--out", tmp_path / "report")
    assert told.exit_code == Exit.PROTOCOL
    assert f"FAULT  {manifest.parent}: " in told.stdout
    assert f"({manifest}, byte 0)" in told.stdout
    assert f"NOT SIGNED: {tmp_path / 'many' / 'good'} " in told.stdout
    assert "1 fault: 20 entries of 1 label" in told.stdout


@pytest.mark.parametrize(
    "args",
    [("verify",), ("verify", "x", "--hub-id", "zz"), ("verify", "x", "--conf", "nothing")],
    ids=["no path", "hub id", "conf"],
)
def test_wrong_usage_is_reported_before_spark_starts(args: tuple[str, ...]) -> None:
    assert run(*args).exit_code == Exit.USAGE


def test_a_missing_path_is_reported_before_spark_starts() -> None:
    converting = ("to-parquet", "nowhere", "--out", "target")
    for command in (("verify", "no*where"), ("query-sql", "nowhere", "--query", "select 1"), converting):
        failed = run(*command, "--master", "not a master")
        assert failed.exit_code == Exit.USAGE
        assert "does not exist" in failed.stderr


@pytest.mark.usefixtures("spark")
def test_a_missing_path_is_wrong_usage(tmp_path: Path) -> None:
    for command in (
        ("verify", tmp_path / "nowhere"),
        ("to-parquet", tmp_path / "nowhere", "--out", tmp_path / "out"),
    ):
        failed = run(*command)
        assert failed.exit_code == Exit.USAGE
        assert "does not exist" in failed.stderr


def test_logs_become_parquet_with_the_same_columns(hub: Hub, spark: SparkSession, tmp_path: Path) -> None:
    hub.send("orders", 20)
    clone = hub.clone(tmp_path / "clone")
    done = run("to-parquet", clone, "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 20
    assert (tmp_path / "out" / f"hub={hub.hub_id.hex()}" / "day=2023-11-14").is_dir()
    logs, parquet = spark.read.format("veen").load(str(clone)), spark.read.parquet(str(tmp_path / "out"))
    assert parquet.columns == [*logs.columns, "hub", "day"]
    assert parquet.drop("hub", "day").exceptAll(logs).count() == 0
    again = run("to-parquet", clone, "--out", tmp_path / "out")
    assert again.exit_code == Exit.USAGE


@pytest.mark.usefixtures("spark")
def test_an_empty_log_is_no_rows_of_parquet(hub: Hub, tmp_path: Path) -> None:
    done = run("to-parquet", hub.clone(tmp_path / "clone"), "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 0


@pytest.mark.usefixtures("spark")
def test_a_damaged_log_leaves_the_target_as_it_was(hub: Hub, tmp_path: Path) -> None:
    hub.send("orders", 20)
    clone, out = hub.clone(tmp_path / "clone"), tmp_path / "out"
    chunk = files_of(clone)[1]
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:-1])
    failed = run("to-parquet", clone, "--out", out)
    assert failed.exit_code == Exit.PROTOCOL
    assert str(chunk) in failed.stderr
    kept = run("to-parquet", clone, "--out", out, "--mode", "quarantine", "--json")
    assert kept.exit_code == 0, kept.stderr
    assert json.loads(kept.stdout)["damaged"] == 1
    before = sorted(out.rglob("*"))
    assert run("to-parquet", clone, "--out", out, "--overwrite").exit_code == Exit.PROTOCOL
    assert sorted(out.rglob("*")) == before
    chunk.write_bytes(whole)
    done = run("to-parquet", clone, "--out", out, "--overwrite", "--json")
    assert (done.exit_code, json.loads(done.stdout)["rows"]) == (0, 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clone", "hub", "out"]


def test_nothing_but_parquet_is_overwritten(hub: Hub, tmp_path: Path) -> None:
    """A folder with anything else is refused before Spark starts."""
    hub.send("orders", 3)
    clone, text = hub.clone(tmp_path / "clone"), tmp_path / "text"
    text.write_text("mine")
    logs = sorted(clone.rglob("*"))
    for target in (clone, text, tmp_path, Path("/")):
        refused = run("to-parquet", clone, "--out", target, "--overwrite")
        assert (refused.exit_code, "would be lost" in refused.stderr) == (Exit.USAGE, True), refused.stderr
    assert sorted(clone.rglob("*")) == logs
    assert text.read_text() == "mine"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveHub]:
    hub = LiveHub(tmp_path / "live")
    hub.start()
    yield hub
    hub.stop()


def test_a_stream_continues_where_it_stopped_and_needs_both_target_and_checkpoint(
    live: LiveHub, spark: SparkSession, tmp_path: Path
) -> None:
    target, checkpoint = tmp_path / "out", tmp_path / "out.checkpoint"
    command = (
        "stream",
        "--out",
        target,
        "--hub",
        live.url,
        "--hub-id",
        live.hub_id.hex(),
        "--stream",
        "orders",
    )

    def follow() -> Result:
        return run(*command, "--once", "--json")

    (target / "_spark_metadata").mkdir(parents=True)  # as a run leaves it that failed before its first batch
    assert json.loads(follow().stdout)["rows"] == 0  # the stream is empty
    for count, rows in ((5, 5), (3, 8)):
        live.send("orders", count)
        done = follow()
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout) == {"rows": rows, "out": str(target), "checkpoint": str(checkpoint)}
    numbers = spark.read.parquet(str(target)).select("stream_seq").collect()
    assert sorted(row.stream_seq for row in numbers) == list(range(1, 9))
    for gone, why in ((checkpoint, "is missing"), (target, "are not in")):
        gone.rename(tmp_path / "elsewhere")
        refused = follow()
        assert (refused.exit_code, why in refused.stderr) == (Exit.USAGE, True), refused.stderr
        (tmp_path / "elsewhere").rename(gone)
    assert json.loads(follow().stdout)["rows"] == 8


def test_an_error_on_an_executor_keeps_its_message_and_gets_its_exit_code() -> None:
    trace = "An exception was thrown\nTraceback (most recent call last):\n"
    damaged = command_error(f"{trace}veen_spark.errors.DamagedLog: a.log, byte 7: cut short\n")
    assert (damaged.message, damaged.code) == ("a.log, byte 7: cut short", Exit.PROTOCOL)
    away = command_error(f"{trace}veen_hub.client.errors.Unreachable: no hub answers\n")
    assert (away.message, away.code) == ("no hub answers", Exit.NETWORK)
    slow = command_error("[STREAM_FAILED] Query [id = …] terminated: Python worker failed to connect back.")
    assert (slow.code, slow.action) == (Exit.USAGE, "run the command again when the machine is less busy")
    assert command_error("[NO_IDEA] something of Spark's").code == Exit.USAGE


@pytest.mark.parametrize(
    "command", [("to-parquet", "LOG", "--out", "THERE"), ("verify", "LOG", "--out", "THERE")]
)
def test_an_existing_folder_is_refused_before_any_work(command: tuple[str, ...], tmp_path: Path) -> None:
    places = {"LOG": tmp_path / "nothing", "THERE": tmp_path}
    result = run(*(places.get(word, word) for word in command))
    assert result.exit_code == Exit.USAGE
    assert "exists already; choose another folder" in result.stderr


@pytest.mark.usefixtures("spark")
def test_a_verification_that_skipped_a_check_does_not_exit_with_0_unless_asked(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.send("orders", 3, cheap=True)
    clone = hub.clone(tmp_path / "clone")
    report = run("verify", clone, "--json")
    assert (report.exit_code, json.loads(report.stdout)["complete"]) == (0, True)
    monkeypatch.setattr("veen_spark.verify.pipeline.assemble_labels", _partly(1))
    partial = run("verify", clone)
    assert partial.exit_code == Exit.PROTOCOL
    assert "NOT CHECKED: 1 label with more than 4,096 writers" in partial.stdout
    assert "all checks passed" not in partial.stdout
    allowed = run("verify", clone, "--allow-partial")
    assert (allowed.exit_code, "NOT CHECKED" in allowed.stdout) == (0, True)


def _partly(count: int) -> Callable[..., Any]:
    def assemble(*args: Any) -> Any:
        labels, _ = assemble_labels(*args)
        return labels, count

    return assemble


@pytest.mark.usefixtures("spark")
def test_verify_says_that_a_small_log_needs_no_spark(hub: Hub, tmp_path: Path) -> None:
    hub.send("orders", 3, cheap=True)
    clone = hub.clone(tmp_path / "clone")
    assert "`veen verify` (an export) or `veen hub fsck` (a clone)" in run("verify", clone).stderr
    assert run("verify", clone, "--quiet").stderr == ""
    assert run("verify", clone, "--json").stderr == ""


def test_starting_spark_is_announced_and_repeated_while_it_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_session, "REMINDER_SEC", 0.01)
    reminded = threading.Event()

    class Listening(Output):
        def note(self, line: str) -> None:
            super().note(line)
            if "still starting Spark after" in line:
                reminded.set()

    with starting(Listening(), "local[2]"):
        assert reminded.wait(10)
    said = capsys.readouterr().err
    assert said.startswith("starting Spark on local[2]")
    assert "Spark is ready after" in said
