"""The streaming source. Most tests call it without Spark, as Spark's driver and tasks do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from veen_core.errors import DivergenceError, IdentityError
from veen_core.ids import Label, StreamSeq
from veen_core.receipt import Receipt
from veen_spark.errors import SparkSetupError
from veen_spark.read.options import Options
from veen_spark.stream import live_hub
from veen_spark.stream.stream_source import OPTIONS, StreamPartition, VeenStreamReader

from .live_hub import LiveHub
from .logs import Hub

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveHub]:
    """A hub with twelve entries in ``orders`` and three in ``invoices``."""
    made = LiveHub(tmp_path_factory.mktemp("live") / "hub")
    made.start()
    made.send("orders", 12)
    made.send("invoices", 3)
    yield made
    made.stop()


def reader(hub: LiveHub, **options: str) -> VeenStreamReader:
    given = {"hub": hub.url, "hubId": hub.hub_id.hex(), "stream": "orders,invoices", **options}
    return VeenStreamReader(Options(given, OPTIONS))


def read(stream: VeenStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    parts = stream.partitions(start, end)
    return (
        pa.Table.from_batches([b for part in parts for b in stream.read(part)]).to_pylist() if parts else []
    )


def test_all_entries_from_the_earliest_on_are_read_and_verified(hub: LiveHub) -> None:
    stream = reader(hub)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    orders, invoices = hub.label("orders"), hub.label("invoices")
    assert {label: offset["seq"] for label, offset in end.items()} == {orders: 12, invoices: 3}
    rows = read(stream, start, end)
    found = sorted((row["label"].hex(), row["stream_seq"]) for row in rows)
    assert found == sorted([(orders, n) for n in range(1, 13)] + [(invoices, n) for n in range(1, 4)])
    last = max((row for row in rows if row["label"].hex() == orders), key=lambda row: row["stream_seq"])
    assert last["mmr_root"].hex() == end[orders]["root"]
    assert Receipt.decode(last["receipt"]).leaf_hash == last["leaf_hash"]
    assert (last["hub_id"], last["file"], last["offset"]) == (hub.hub_id, hub.url, 12)
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    assert read(stream, end, end) == []


def test_batches_respect_their_limit_and_continue_where_the_last_one_ended(hub: LiveHub) -> None:
    stream, seen = reader(hub, maxOffsetsPerTrigger="4"), list[tuple[str, int]]()
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    at = stream.initialOffset()
    while (end := stream.latestOffset(at, limit)) != at:
        rows = read(stream, at, end)
        assert 0 < len(rows) <= 4
        seen += [(row["label"].hex(), row["stream_seq"]) for row in rows]
        at = end
    assert len(seen) == len(set(seen)) == 15


def test_a_stream_can_start_at_the_latest_entry_or_at_a_given_one(hub: LiveHub) -> None:
    orders = hub.label("orders")
    latest = reader(hub, startingOffsets="latest").initialOffset()
    assert latest[orders]["seq"] == 12
    some = reader(hub, startingOffsets=f'{{"{orders}": 10}}')
    start = some.initialOffset()
    rows = read(some, start, some.latestOffset(start, ReadAllAvailable()))
    assert [row["stream_seq"] for row in rows if row["label"].hex() == orders] == [10, 11, 12]


@pytest.mark.parametrize("asked", ["lastest", "{", '{"00": 1}', '{"ORDERS": "1"}', '{"ORDERS": 0}', "[1]"])
def test_invalid_starting_offsets_are_refused(asked: str, hub: LiveHub) -> None:
    with pytest.raises(SparkSetupError, match="option startingOffsets"):
        reader(hub, startingOffsets=asked.replace("ORDERS", hub.label("orders"))).initialOffset()


def test_a_range_of_large_messages_is_read_in_pieces(hub: LiveHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_hub, "MAX_BUFFERED_BYTES", 1)
    monkeypatch.setattr(live_hub, "PAGE_ENTRIES", 5)
    stream = reader(hub, stream="orders")
    start = stream.initialOffset()
    rows = read(stream, start, stream.latestOffset(start, ReadAllAvailable()))
    assert [row["stream_seq"] for row in rows] == list(range(1, 13))


def test_a_hub_with_another_history_fails_the_stream(hub: LiveHub) -> None:
    stream, orders = reader(hub), hub.label("orders")
    held = {orders: {"seq": 5, "root": "00" * 32}}
    with pytest.raises(DivergenceError, match="two histories"):
        stream.latestOffset(held, ReadAllAvailable())


def test_a_task_fails_if_the_hub_shows_it_another_history_than_the_driver(
    make_hub: Callable[..., Hub],
) -> None:
    """Two hubs with one key stand for a hub that shows two histories."""
    faces = []
    for name, who in (("one", "alice"), ("two", "bob")):
        written = make_hub(name)
        written.send("orders", 8, who=who, cheap=True)
        written.close()
        faces.append(LiveHub(written.root))
    try:
        for face in faces:
            face.start()
        planned, shown = (reader(face, stream="orders") for face in faces)
        start = planned.initialOffset()
        end = planned.latestOffset(start, ReadAllAvailable())
        assert len(read(planned, start, end)) == 8
        with pytest.raises(DivergenceError, match="two histories"):
            read(shown, start, end)
    finally:
        for face in faces:
            face.stop()


def test_entries_that_the_hub_no_longer_has_are_an_error_unless_loss_is_tolerated(hub: LiveHub) -> None:
    orders = hub.label("orders")
    ahead = {orders: {"seq": 99, "root": "00" * 32}}
    with pytest.raises(live_hub.DataLoss, match="ends at 12"):
        reader(hub).latestOffset(ahead, ReadAllAvailable())
    waiting = reader(hub, failOnDataLoss="false", stream="orders")
    assert waiting.latestOffset(ahead, ReadAllAvailable()) == ahead
    waiting.prepareForTriggerAvailableNow()
    assert waiting.latestOffset(ahead, ReadAllAvailable()) == ahead  # and not back to 12


def test_a_pruned_entry_is_read_as_its_receipt_if_loss_is_tolerated(
    make_hub: Callable[..., Hub],
) -> None:
    written = make_hub()
    written.send("orders", 20, cheap=True)
    assert written.prune("orders", max_bytes=3_000) > 0
    kept = written.store.read.receipt(written.label("orders"), StreamSeq(1))
    written.close()
    served = LiveHub(written.root)
    served.start()
    try:
        strict, lenient = (reader(served, stream="orders", failOnDataLoss=loss) for loss in ("true", "false"))
        start = strict.initialOffset()
        end = strict.latestOffset(start, ReadAllAvailable())
        with pytest.raises(live_hub.DataLoss, match="entry 1 of label"):
            read(strict, start, end)
        rows = read(lenient, start, end)
    finally:
        served.stop()
    assert [row["stream_seq"] for row in rows] == list(range(1, 21))
    assert {row["kind"] for row in rows} == {"pruned", "msg"}
    assert kept is not None
    assert (rows[0]["kind"], rows[0]["msg"], rows[0]["receipt"]) == ("pruned", None, kept.encode())


def test_another_hub_than_the_pinned_one_is_refused(hub: LiveHub) -> None:
    with pytest.raises(IdentityError):
        reader(hub, hubId="00" * 32).initialOffset()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hubId": "zz"}, "want HubId"),
        ({"stream": ""}, "set the option stream or label"),
        ({"startingoffset": "latest"}, "has no option startingoffset"),
        ({"failOnDataLoss": "maybe"}, "maybe is not one of true, false"),
    ],
)
def test_a_wrong_option_is_refused_with_the_reason(
    hub: LiveHub, options: dict[str, str], message: str
) -> None:
    with pytest.raises(SparkSetupError, match=message):
        reader(hub, **options)


def test_a_label_that_needs_less_leaves_its_share_to_the_others() -> None:
    a, b, c = (Label(bytes([n]) * 32) for n in range(3))
    assert live_hub.share_out({a: 1, b: 50, c: 100}, 31) == {a: 1, b: 15, c: 15}
    assert live_hub.share_out({a: 1, b: 50}, None) == {a: 1, b: 50}
    assert sum(live_hub.share_out({a: 7, b: 7, c: 7}, 8).values()) == 8


def test_a_long_range_is_several_partitions(hub: LiveHub) -> None:
    label = hub.label("orders")
    parts = reader(hub).partitions({}, {label: {"seq": 45_000, "root": ""}})
    stretches = [(part.start, part.end) for part in parts if isinstance(part, StreamPartition)]
    assert stretches == [(1, 20_000), (20_001, 40_000), (40_001, 45_000)]


def test_a_query_continues_from_its_checkpoint_and_reads_every_entry_once(
    spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    hub = LiveHub(tmp_path_factory.mktemp("followed") / "hub")
    hub.start()

    def run() -> list[int]:
        rows = spark.readStream.format("veen").options(
            hub=hub.url, hubId=hub.hub_id.hex(), stream="orders", maxOffsetsPerTrigger="5"
        )
        writer = rows.load().writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.start(str(tmp_path / "out"))
        query.awaitTermination()
        found = spark.read.parquet(str(tmp_path / "out")).select("stream_seq").collect()
        return sorted(row.stream_seq for row in found)

    try:
        hub.send("orders", 7)
        assert run() == list(range(1, 8))
        hub.stop()
        hub.start()  # another port: what counts is who it is
        hub.send("orders", 4)
        assert run() == list(range(1, 12))
    finally:
        hub.stop()
