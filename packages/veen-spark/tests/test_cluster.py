"""``--master spark://…`` and ``sc://…``: real servers on loopback, the command in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from veen_overlays.kv import KV, Put

from .daemons import BRIEF, connect_server, environment, packed_environment, standalone
from .frames import in_one_process
from .logs import Hub, reader_key

RECORDS = [Put(key=b"a", value=b"1"), Put(key=b"b", value=b"2")]
RUN = """
import json, sys
from veen_cli.frame import run_command
from veen_spark.commands import spark
sys.exit(max([run_command(spark, command, name="veen spark") for command in json.loads(sys.argv[1])]))
"""
"""Runs several commands in one process, each with a session of its own."""


@pytest.fixture
def place(hub: Hub, tmp_path: Path) -> Path:
    """A folder with a clone and its reader key."""
    hub.send_records("orders", RECORDS)
    hub.clone(tmp_path / "clone")
    (tmp_path / "reader").write_bytes(bytes(reader_key("orders").secret))
    (tmp_path / "reader").chmod(0o600)
    return tmp_path


def run(place: Path, *commands: list[str]) -> subprocess.CompletedProcess[str]:
    work = [sys.executable, "-c", RUN, json.dumps(commands)]
    return subprocess.run(
        work, cwd=place, env=environment(), capture_output=True, text=True, timeout=300, check=False
    )


def verified_and_folded(place: Path, *where: str, more: tuple[list[str], ...] = ()) -> list[str]:
    """Run both commands with relative paths, and more in the same process; return the lines they print."""
    verify = ["verify", "clone", "--json", *where]
    fold = ["fold", "clone", "--overlay", "kv.map", "--reader", "reader", "--out", "out", "--json", *where]
    done = run(place, verify, fold, *more)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def check(hub: Hub, lines: list[str]) -> None:
    verdict, folded = map(json.loads, lines)
    assert (verdict["ok"], verdict["entries"]) == (True, 2)
    whole = in_one_process(KV, hub, "orders", reader_key("orders"))
    assert [label["state_hash"] for label in folded["labels"]] == [KV.state_hash(whole).hex()]


def test_a_standalone_cluster_verifies_and_folds_in_a_packed_environment(hub: Hub, place: Path) -> None:
    home = packed_environment(place)
    packed = {
        "spark.archives": "environment.tar.gz#environment",
        "spark.pyspark.python": "./environment/bin/python",
        "spark.driver.extraJavaOptions": BRIEF,
        "spark.executor.extraJavaOptions": BRIEF,
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "1",
    }
    conf = [word for name, value in packed.items() for word in ("--conf", f"{name}={value}")]
    with standalone(place / "work") as url:
        check(hub, verified_and_folded(place, "--master", url, *conf))
    started = {Path(line) for line in (place / "started").read_text().splitlines()}
    assert home in started  # the driver plans reads
    executors = started - {home}
    assert executors  # executors run the unpacked environment
    assert all(path.is_relative_to(place / "work") for path in executors)
    assert (place / "out" / "state").is_dir()


def test_spark_connect_verifies_and_folds(hub: Hub, place: Path) -> None:
    ask = "select count(*) from log where veen_verify_msg(msg)"
    with connect_server() as url:
        sql = ["query-sql", "clone", "--query", ask, "--master", url]
        to_parquet = ["to-parquet", "clone", "--out", "pq", "--master", url]
        *both, _column, count, written = verified_and_folded(place, "--master", url, more=(sql, to_parquet))
    check(hub, both)
    assert (count, written) == ("2", "2 rows in pq")


@pytest.mark.parametrize("master", ["spark://127.0.0.1:1", "spark://127.0.0.1:1,localhost:1"])
def test_a_master_that_does_not_answer_is_reported_at_once(master: str, place: Path) -> None:
    failed = run(place, ["verify", "clone", "--master", master])
    assert failed.returncode == 2
    assert f"no server answers at {master}" in failed.stderr
