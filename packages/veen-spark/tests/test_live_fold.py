"""Live folds process every batch exactly once, also through crashes and restarts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from veen_core.errors import StateError, VerificationError
from veen_core.hashing import H, u64be
from veen_overlays.fold.event import Message
from veen_overlays.fold.overlay import Overlay
from veen_overlays.kv import KV, Delete, Put
from veen_overlays.wallet.ledger import LEDGER
from veen_spark.errors import SparkSetupError
from veen_spark.functions.reader_keys import ReaderKeys
from veen_spark.read.columns import arrow_schema, spark_schema
from veen_spark.stream.live_fold import LiveFold
from veen_spark.stream.state_folder import (
    KINDS,
    PARTS_PER_LEVEL,
    Commit,
    ParquetPart,
    StateFolder,
    full_level,
)

from .frames import entries, frame, in_one_process, row_of
from .live_hub import LiveHub
from .logs import BORN, Hub, reader_key
from .records import bodies
from .wallets import mirror


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub with a wallet stream whose duplicates are far apart, and another stream."""
    hub = Hub(tmp_path_factory.mktemp("live") / "hub")
    mirror(hub, "wallet", reader="world")
    hub.send_records("other", bodies(LEDGER, 10), reader="world")
    yield hub
    hub.close()


@pytest.fixture(scope="module")
def keys(spark: SparkSession) -> ReaderKeys:
    return ReaderKeys.broadcast(spark, [reader_key("world")])


def rows_of(hub: Hub, name: str) -> list[dict[str, Any]]:
    return [row_of(entry, hub.hub_id) for entry in entries(hub, name)]


def drop(rows: list[dict[str, Any]], folder: Path, name: str) -> None:
    """Add a file to a stream of files, one second newer than the last: Spark orders files by time."""
    moment = BORN + len(list(folder.glob("*.parquet")))
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema()), folder / f".{name}")
    os.utime(folder / f".{name}", (moment, moment))
    (folder / f".{name}").rename(folder / name)


def hashes(states: DataFrame) -> dict[bytes, tuple[int, bytes]]:
    return {bytes(r.label): (r.upto_seq, bytes(r.state_hash)) for r in states.collect()}


def expected(overlay: Overlay[Any], hub: Hub, *names: str) -> dict[bytes, tuple[int, bytes]]:
    whole = {name: in_one_process(overlay, hub, name, reader_key("world")) for name in names}
    return {
        bytes(hub.label(name)): (len(entries(hub, name)), bytes(overlay.state_hash(summary)))
        for name, summary in whole.items()
    }


def test_a_stream_is_folded_batch_by_batch_through_restarts(
    spark: SparkSession, hub: Hub, keys: ReaderKeys, tmp_path: Path
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    wallet, other = rows_of(hub, "wallet"), rows_of(hub, "other")
    stream = spark.readStream.schema(spark_schema()).option("maxFilesPerTrigger", 1).parquet(str(source))

    def follow() -> LiveFold:
        live = LiveFold(spark, LEDGER, target, keys)
        live.start(stream, availableNow=True).awaitTermination()
        return live

    drop(wallet[:3] + other[:4], source, "1.parquet")
    drop(wallet[3:8], source, "2.parquet")
    assert hashes(follow().current())[bytes(hub.label("other"))][0] == 4
    drop(wallet[8:] + other[4:], source, "3.parquet")
    assert hashes(follow().current()) == expected(LEDGER, hub, "wallet", "other")
    assert hashes(follow().current()) == expected(LEDGER, hub, "wallet", "other")  # nothing twice


def test_a_batch_that_is_repeated_after_its_commit_changes_nothing(
    spark: SparkSession, hub: Hub, keys: ReaderKeys, tmp_path: Path
) -> None:
    live = LiveFold(spark, LEDGER, tmp_path / "t", keys)
    batch = frame(spark, rows_of(hub, "wallet")[:5], 1)
    live.process_batch(batch, 0)
    before = live.target.last()
    live.process_batch(batch, 0)
    assert live.target.last() == before


def test_a_crash_before_the_commit_leaves_the_state_unchanged(
    spark: SparkSession, hub: Hub, keys: ReaderKeys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(hub, "wallet")
    live = LiveFold(spark, LEDGER, tmp_path / "t", keys)
    live.process_batch(frame(spark, rows[:5], 1), 0)
    before = hashes(live.current())

    def crash(*_: object) -> None:
        raise OSError("the machine went down")

    with monkeypatch.context() as patched:
        patched.setattr(StateFolder, "commit", crash)
        with pytest.raises(OSError, match="went down"):
            live.process_batch(frame(spark, rows[5:], 1), 1)
    assert hashes(LiveFold(spark, LEDGER, tmp_path / "t").current()) == before
    live.process_batch(frame(spark, rows[5:], 1), 1)
    assert hashes(live.current()) == expected(LEDGER, hub, "wallet")
    last = live.target.last()
    assert last is not None
    left = {folder.name for folder in (tmp_path / "t" / "states").iterdir()}
    assert left == {part.name for part in last.states}  # the leftovers of the crash are gone


def test_a_gap_or_a_lost_checkpoint_is_refused(
    spark: SparkSession, hub: Hub, keys: ReaderKeys, tmp_path: Path
) -> None:
    rows = rows_of(hub, "wallet")
    live = LiveFold(spark, LEDGER, tmp_path / "t", keys)
    live.process_batch(frame(spark, rows[:2], 1), 0)
    with pytest.raises(VerificationError, match="entries 3 to 3 are missing"):
        live.process_batch(frame(spark, rows[3:5], 1), 1)
    with pytest.raises(VerificationError, match="occurs twice"):
        live.process_batch(frame(spark, rows[1:3], 1), 1)
    with pytest.raises(StateError, match="checkpoint was removed"):
        live.process_batch(frame(spark, rows[:4], 1), 0)
    with pytest.raises(StateError, match="choose another folder"):
        LiveFold(spark, "kv.map", tmp_path / "t").current()
    with pytest.raises(SparkSetupError, match="not a stream"):
        live.start(frame(spark, rows, 1))


def test_parts_are_joined_exactly_once_although_the_query_fails_and_restarts(
    spark: SparkSession, hub: Hub, keys: ReaderKeys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two parts per level, four batches reach the third level."""
    monkeypatch.setattr("veen_spark.stream.state_folder.PARTS_PER_LEVEL", 2)
    source, target = tmp_path / "source", StateFolder(tmp_path / "target")
    source.mkdir()
    rows = rows_of(hub, "wallet")
    stream = spark.readStream.schema(spark_schema()).option("maxFilesPerTrigger", 1).parquet(str(source))
    for number, start in enumerate(range(0, len(rows), 5)):
        drop(rows[start : start + 5], source, f"{number}.parquet")
    commit = StateFolder.commit

    def crash(self: StateFolder, made: Commit) -> None:
        """Fail after the last batch and both joins are written."""
        if made.batch == 3:
            raise OSError("the machine went down")
        commit(self, made)

    def follow() -> LiveFold:
        live = LiveFold(spark, LEDGER, target.root, keys)
        live.start(stream, availableNow=True).awaitTermination()
        return live

    with monkeypatch.context() as patched:
        patched.setattr(StateFolder, "commit", crash)
        with pytest.raises(StreamingQueryException, match="went down"):
            follow()
    assert hashes(LiveFold(spark, LEDGER, target.root).current())[bytes(hub.label("wallet"))][0] == 15
    assert hashes(follow().current()) == expected(LEDGER, hub, "wallet")
    last = target.last()
    assert last is not None
    assert [part.level for part in (*last.states, *last.keys)] == [2, 2]
    index = spark.read.parquet(target.path("keys", last.keys[0]))
    assert index.count() == index.select("label", "key").distinct().count() > 0
    follow()
    assert target.last() == last  # nothing twice


KILLED = """
import os, signal, sys
from veen_overlays.wallet.ledger import LEDGER
from veen_spark import LiveFold, ReaderKeys, start
from veen_spark.read.columns import spark_schema
from veen_spark.stream.state_folder import StateFolder
from tests.daemons import BRIEF

source, target, key, moment = sys.argv[1:]
commit = StateFolder.commit

def killed(self, made):
    if made.batch == 1 and moment == "after the commit":
        commit(self, made)
    if made.batch == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    commit(self, made)

StateFolder.commit = killed
config = {"spark.sql.shuffle.partitions": "1", "spark.driver.extraJavaOptions": BRIEF}
spark = start("local[1]", config=config)
stream = spark.readStream.schema(spark_schema()).option("maxFilesPerTrigger", 1).parquet(source)
live = LiveFold(spark, LEDGER, target, ReaderKeys.from_files(key))
live.start(stream, availableNow=True).awaitTermination()
"""


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_a_driver_that_is_killed_in_a_batch_continues_there(
    moment: str, spark: SparkSession, hub: Hub, keys: ReaderKeys, tmp_path: Path
) -> None:
    """The process is killed when its own state and Spark's checkpoint differ."""
    source, target, key = tmp_path / "source", tmp_path / "target", tmp_path / "reader"
    source.mkdir()
    key.write_bytes(bytes(reader_key("world").secret))
    key.chmod(0o600)
    rows = rows_of(hub, "wallet")
    for number, start in enumerate(range(0, len(rows), 7)):
        drop(rows[start : start + 7], source, f"{number}.parquet")
    run = subprocess.run(  # waits for the JVM too, which holds the same pipes
        [sys.executable, "-c", KILLED, source, target, key, moment],
        capture_output=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert run.returncode == -signal.SIGKILL, run.stderr
    last = StateFolder(target).last()
    assert last is not None
    assert last.batch == (1 if moment == "after the commit" else 0)
    stream = spark.readStream.schema(spark_schema()).option("maxFilesPerTrigger", 1).parquet(str(source))
    live = LiveFold(spark, LEDGER, target, keys)
    live.start(stream, availableNow=True).awaitTermination()
    assert hashes(live.current()) == expected(LEDGER, hub, "wallet")


def test_parts_are_durable_before_their_commit(
    spark: SparkSession, hub: Hub, keys: ReaderKeys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, commit = set[Path](), StateFolder.commit
    monkeypatch.setattr("veen_spark.stream.state_folder._sync", synced.add)

    def checked(self: StateFolder, made: Commit) -> None:
        parts = [Path(self.path(kind, part)) for kind in KINDS for part in made.parts(kind)]
        files = [file for part in parts for file in part.rglob("*.parquet")]
        assert files
        assert synced >= {*files, *parts, *(part.parent for part in parts)}
        commit(self, made)

    monkeypatch.setattr(StateFolder, "commit", checked)
    LiveFold(spark, LEDGER, tmp_path / "t", keys).process_batch(
        frame(spark, rows_of(hub, "wallet")[:5], 1), 0
    )


def test_a_full_level_becomes_one_part_of_the_next() -> None:
    low = [ParquetPart(str(n)) for n in range(PARTS_PER_LEVEL)]
    assert full_level(low) == low
    assert full_level(low[1:]) == []
    assert full_level([*low[1:], *(ParquetPart(f"h{n}", 1) for n in range(PARTS_PER_LEVEL))])[0].level == 1


def test_a_damaged_commit_is_refused_with_the_next_step(tmp_path: Path) -> None:
    target = StateFolder(tmp_path)
    target.commit(Commit(3, "kv.map", "00"))
    assert target.last() == Commit(3, "kv.map", "00")
    (tmp_path / "commits" / "000000000003.json").write_text("{")
    with pytest.raises(StateError, match="start the live fold again"):
        target.last()


def test_a_live_hub_is_folded_as_it_grows(spark: SparkSession, tmp_path: Path) -> None:
    """The query reads ``format("veen")`` and is restarted once."""
    hub = LiveHub(tmp_path / "hub")
    hub.start()
    try:
        records = [Put(key=b"a", value=b"1"), Put(key=b"b", value=b"2"), Delete(key=b"a")]
        keys = ReaderKeys.broadcast(spark, hub.identity.dh_keys)
        source = spark.readStream.format("veen").option("hub", hub.url).option("hubId", hub.hub_id.hex())
        live = LiveFold(spark, KV, tmp_path / "target", keys)
        for sent in (records[:2], records[2:]):
            hub.send_records("map", sent)
            live.start(source.option("stream", "map").load(), availableNow=True).awaitTermination()
        (row,) = live.current().collect()
        messages = [Message(n, H(u64be(n)), r.SCHEMA, r.encode()) for n, r in enumerate(records, start=1)]
        assert (row.label.hex(), row.upto_seq) == (hub.label("map"), 3)
        assert bytes(row.state_hash) == KV.state_hash(KV.fold(messages))
    finally:
        hub.stop()
