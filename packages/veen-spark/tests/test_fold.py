"""A fold gives the same bytes as one process, however the log is partitioned."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from veen_core.errors import VerificationError
from veen_overlays.fold.overlay import Overlay, Summary
from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.wallet.ledger import LEDGER
from veen_spark.errors import SparkSetupError
from veen_spark.fold import duplicates, ranges
from veen_spark.fold.fingerprints import fingerprint
from veen_spark.fold.folding import fold
from veen_spark.fold.ranges import record_batch
from veen_spark.fold.states import state, state_rows, state_schema
from veen_spark.functions.open import open_messages
from veen_spark.functions.reader_keys import ReaderKeys

from .frames import entries, frame, frame_of, in_one_process, opened, row_of
from .logs import Hub, reader_key
from .records import bodies
from .wallets import mirror

COUNT = 60


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub with one stream per overlay, all sealed to one key."""
    hub = Hub(tmp_path_factory.mktemp("world") / "hub")
    for name, overlay in OVERLAYS.items():
        hub.send_records(name, bodies(overlay, COUNT), reader="world")
    yield hub
    hub.close()


@pytest.fixture(scope="module")
def keys(spark: SparkSession) -> ReaderKeys:
    return ReaderKeys.broadcast(spark, [reader_key("world")])


@pytest.fixture(scope="module")
def read(spark: SparkSession, world: Hub, keys: ReaderKeys) -> Iterator[DataFrame]:
    """The opened messages of all streams, used by many tests."""
    frame = open_messages(frame_of(spark, world, *OVERLAYS), keys).persist()
    yield frame
    frame.unpersist()


def hashes(folded: DataFrame) -> dict[bytes, tuple[int, bytes, bytes]]:
    rows = folded.select("label", "upto_seq", "mmr_root", "state_hash").collect()
    return {bytes(row[0]): (row[1], bytes(row[2]), bytes(row[3])) for row in rows}


def expected(overlay: Overlay[Any], hub: Hub, *names: str) -> dict[bytes, tuple[int, bytes, bytes]]:
    found = {}
    for name in names:
        last = entries(hub, name)[-1].receipt
        summary = in_one_process(overlay, hub, name, reader_key("world"))
        found[bytes(last.label)] = (last.stream_seq, bytes(last.mmr_root), bytes(overlay.state_hash(summary)))
    return found


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_overlay_folds_to_the_state_of_one_process(name: str, world: Hub, read: DataFrame) -> None:
    overlay = OVERLAYS[name]
    part = read.where(read.label == bytearray(world.label(name)))
    assert hashes(fold(part, name, buffered=17)) == expected(overlay, world, name)


@pytest.mark.parametrize("seed", range(3))
def test_however_the_rows_are_partitioned(
    seed: int, spark: SparkSession, world: Hub, keys: ReaderKeys
) -> None:
    rng = random.Random(seed)
    name = "wallet.ledger"
    rows = [row_of(entry, world.hub_id) for entry in entries(world, name)]
    rng.shuffle(rows)
    cut = frame(spark, rows, rng.randrange(2, 7))
    folded = fold(cut, name, keys, buffered=rng.choice((1, 5, 1_000)))
    assert hashes(folded) == expected(OVERLAYS[name], world, name)


def test_the_summary_itself_is_that_of_one_process(world: Hub, read: DataFrame) -> None:
    row = fold(read.where(read.label == bytearray(world.label("kv.map"))), "kv.map").collect()[0]
    whole = in_one_process(OVERLAYS["kv.map"], world, "kv.map", reader_key("world"))
    assert OVERLAYS["kv.map"].load(row["summary"]) == whole
    assert (row["events"], row["foreign"], row["undecodable"]) == whole[:3]


def test_many_labels_at_once_each_have_a_state_of_their_own(world: Hub, read: DataFrame) -> None:
    assert hashes(fold(read, LEDGER)) == expected(LEDGER, world, *OVERLAYS)


def test_more_ranges_than_one_merge_takes_are_merged_in_a_tree(world: Hub, read: DataFrame) -> None:
    part = read.where(read.label == bytearray(world.label("queue.jobs")))
    assert hashes(fold(part, "queue.jobs", buffered=2)) == expected(
        OVERLAYS["queue.jobs"], world, "queue.jobs"
    )


@pytest.fixture
def mirrored(make_hub: Callable[..., Hub]) -> Hub:
    hub = make_hub("mirrored")
    mirror(hub, "wallet", reader="world")
    return hub


@pytest.mark.parametrize("held", [1, 2, 3, 5, 100])
def test_duplicates_are_resolved_in_whatever_ranges_they_are(
    held: int, spark: SparkSession, mirrored: Hub, keys: ReaderKeys
) -> None:
    whole: Summary[Any] = in_one_process(LEDGER, mirrored, "wallet", reader_key("world"))
    total = len(entries(mirrored, "wallet"))
    assert whole.events < total  # there are duplicates
    folded = fold(frame_of(spark, mirrored, "wallet", partitions=2), LEDGER, keys, buffered=held)
    row = folded.collect()[0]
    assert LEDGER.load(row["summary"]) == whole
    assert bytes(row["state_hash"]) == LEDGER.state_hash(whole)


@pytest.mark.parametrize("bucket", [1, 3, 1_000], ids=["many buckets", "some buckets", "one bucket"])
def test_many_fingerprints_are_compared_by_tasks_with_the_same_answer(
    bucket: int, spark: SparkSession, mirrored: Hub, keys: ReaderKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "MAX_DRIVER_FINGERPRINTS", 0)
    monkeypatch.setattr(duplicates, "BUCKET_FINGERPRINTS", bucket)
    whole: Summary[Any] = in_one_process(LEDGER, mirrored, "wallet", reader_key("world"))
    rows = frame_of(spark, mirrored, "wallet", partitions=2)
    for held in (2, 7, 12):
        folded = fold(rows, LEDGER, keys, buffered=held)
        assert LEDGER.load(folded.collect()[0]["summary"]) == whole


@pytest.mark.parametrize("at_once", [0, 1_000], ids=["by tasks", "by the driver"])
def test_only_ranges_that_share_a_fingerprint_with_another_range_are_folded_again(
    at_once: int, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repetition within one range does not count, nor the same key in two labels."""
    monkeypatch.setattr(duplicates, "MAX_DRIVER_FINGERPRINTS", at_once)
    monkeypatch.setattr(duplicates, "BUCKET_FINGERPRINTS", 4)
    prints = {name: fingerprint(name.encode()) for name in "abcdefg"}
    claimed = [
        ("one range", 1, 3, "aab"),
        ("alike", 1, 2, "cc"),
        ("alike", 3, 3, "a"),
        ("shared", 1, 3, "ddb"),
        ("shared", 4, 5, "ee"),
        ("shared", 6, 7, "bf"),
    ]
    rows = [(la.encode(), start, end, b"".join(prints[k] for k in keys)) for la, start, end, keys in claimed]
    ranges = spark.createDataFrame(rows, "label binary, from_seq long, to_seq long, fingerprints binary")
    shared = duplicates.find_shared_ranges(ranges, sum(len(keys) for *_, keys in claimed))
    assert {(m.label, m.from_seq, m.to_seq): m.repeated for m in shared} == {
        (b"shared", 1, 3): {prints["d"], prints["b"]},
        (b"shared", 6, 7): {prints["b"]},
    }


def test_a_task_buffers_a_bounded_number_of_bytes(world: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each full buffer becomes a range, and the ranges merge to the same state; no Spark is needed."""
    monkeypatch.setattr(ranges, "MAX_BUFFERED_BYTES", 100)
    held = opened(world, "kv.map", reader_key("world"))
    columns = {
        "label": [b"label"] * len(held),
        "stream_seq": [message.seq for message in held],
        "leaf_hash": [message.msg_id for message in held],
        "mmr_root": [b"root"] * len(held),
        "kind": ["msg"] * len(held),
        "opened": [True] * len(held),
        "schema": [message.schema for message in held],
        "body": [message.body for message in held],
        "parent_id": pa.array([None] * len(held), pa.binary()),
    }
    overlay = OVERLAYS["kv.map"]
    task = ranges.range_task(overlay, None)
    rows = [row for batch in task([pa.RecordBatch.from_pydict(columns)]) for row in batch.to_pylist()]
    assert 5 < len(rows) < len(held)
    assert overlay.merge(overlay.load(row["summary"]) for row in rows) == overlay.fold(held)


def test_many_small_states_share_a_batch_and_large_ones_do_not() -> None:
    small, large = (b"label", b"x"), (b"label", bytes(ranges.MAX_BATCH_BYTES))
    schema = pa.schema([("label", pa.binary()), ("summary", pa.binary())])
    batches = ranges.record_batches([*[small] * 1_500, large, large, small], schema)
    assert [batch.num_rows for batch in batches] == [1_024, 477, 1, 1]


def test_a_gap_is_refused_and_named(spark: SparkSession, world: Hub, keys: ReaderKeys) -> None:
    part = frame_of(spark, world, "kv.map")
    for condition, missing in (("stream_seq != 7", "entries 7 to 7"), ("stream_seq > 2", "entries 1 to 2")):
        with pytest.raises(VerificationError, match=f"{missing} are missing"):
            fold(part.where(condition), "kv.map", keys)


def test_an_entry_read_twice_is_refused(spark: SparkSession, world: Hub, keys: ReaderKeys) -> None:
    part = frame_of(spark, world, "kv.map")
    with pytest.raises(VerificationError, match="entry 5 occurs twice"):
        fold(part.union(part.where("stream_seq = 5")), "kv.map", keys)


def test_what_retention_took_is_not_folded_over_in_silence(
    spark: SparkSession, world: Hub, keys: ReaderKeys
) -> None:
    rows = [row_of(entry, world.hub_id) for entry in entries(world, "kv.map")]
    rows[3] |= {"msg": None, "kind": "pruned"}
    with pytest.raises(VerificationError, match="retention has removed 1 of its messages"):
        fold(frame(spark, rows), "kv.map", keys)
    row = fold(frame(spark, rows), "kv.map", keys, allow_pruned=True).collect()[0]
    assert (row["pruned"], row["unopened"]) == (1, 0)


def test_what_does_not_open_is_foreign_and_counted(spark: SparkSession, world: Hub) -> None:
    stranger = ReaderKeys.broadcast(spark, [reader_key("somebody else")])
    row = fold(frame_of(spark, world, "kv.map"), "kv.map", stranger).collect()[0]
    assert (row["events"], row["foreign"], row["unopened"]) == (0, COUNT, COUNT)


def test_an_empty_log_has_no_state(spark: SparkSession, keys: ReaderKeys) -> None:
    assert fold(frame(spark, []), "kv.map", keys).collect() == []


def test_sealed_rows_without_keys_and_unknown_overlays_say_what_to_do(
    spark: SparkSession, world: Hub, keys: ReaderKeys
) -> None:
    part = frame_of(spark, world, "kv.map")
    with pytest.raises(SparkSetupError, match="give reader keys"):
        fold(part, "kv.map")
    with pytest.raises(SparkSetupError, match=r"use one of .*wallet\.ledger"):
        fold(part, "wallet", keys)
    with pytest.raises(SparkSetupError, match="has no column kind"):
        fold(part.drop("kind"), "kv.map", keys)


@pytest.mark.parametrize("name", [name for name in OVERLAYS if name != "operation.recoveries"])
def test_every_overlay_has_a_table_of_its_own(name: str, world: Hub) -> None:
    """The declared columns take every value of the overlay's view; no Spark is needed.

    The table of recoveries needs a story: see ``test_recovery_fold``.
    """
    overlay = OVERLAYS[name]
    summary = in_one_process(overlay, world, name, reader_key("world"))
    rows = [(b"label", 1, b"root", *row) for row in state_rows(overlay, overlay.view(summary.inner))]
    assert rows
    batch = record_batch(rows, state_schema(overlay))
    assert batch.num_rows == len(rows)
    assert "state" not in batch.schema.names  # a table of its own, not the fallback


def test_wallet_balances_are_rows(world: Hub, read: DataFrame) -> None:
    folded = fold(read.where(read.label == bytearray(world.label("wallet.ledger"))), LEDGER)
    rows = state(folded, LEDGER).collect()
    view = LEDGER.view(in_one_process(LEDGER, world, "wallet.ledger", reader_key("world")).inner)
    assert {bytes(row.wallet_id): int(row.balance) for row in rows} == {
        wallet: shown["balance"] for wallet, shown in view.items()
    }
    last = entries(world, "wallet.ledger")[-1].receipt
    assert {(bytes(row.label), row.upto_seq, bytes(row.mmr_root)) for row in rows} == {
        (bytes(last.label), last.stream_seq, bytes(last.mmr_root))
    }
    with pytest.raises(SparkSetupError, match="holds no states"):
        state(read, LEDGER)
