"""A Spark fold of a directory gives the state of a fold in one process (spec-5, core §11.3)."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from veen_core.ids import ClientId, HubPk, ProfileId, StreamId
from veen_core.stream import hub_id
from veen_overlays.discovery import DISCOVERY
from veen_overlays.discovery.identifiers import overlay_id, service_id
from veen_overlays.discovery.records import HubAdvertise, HubRetire, ServiceAdvertise
from veen_overlays.live import open_entry
from veen_overlays.recorder.records import sign_continuity
from veen_spark.fold.folding import fold
from veen_spark.functions.reader_keys import ReaderKeys

from .frames import entries, frame_of
from .logs import Hub, reader_key, signing_key


def hub_descriptor(who: str) -> HubAdvertise:
    key = HubPk(signing_key(who).public)
    return HubAdvertise(
        hub_id=hub_id(key),
        hub_pk=key,
        profile_id=ProfileId(bytes(32)),
        region="eu",
        tags=("public",),
        endpoints=(),
        overlays=(),
        ttl_sec=60,
        version="1",
    )


def service(who: str, name: str) -> ServiceAdvertise:
    return ServiceAdvertise(
        service_id=service_id(ClientId(signing_key(who).public), name),
        name=name,
        overlay_id=overlay_id("rpc"),
        methods=("pay",),
        stream_ids=(StreamId(bytes(32)),),
        regions=(),
        required_caps=(),
        tags=(),
        ttl_sec=90,
    )


def test_the_state_hash_of_a_directory_is_equal_on_spark(
    spark: SparkSession, make_hub: Callable[..., Hub]
) -> None:
    hub = make_hub("hub")
    for n in range(4):
        hub.send_records("disc", [hub_descriptor("alice"), service("bob", f"s{n}")], who="alice")
        hub.send_records("disc", [hub_descriptor("alice"), service("bob", f"s{n}")], who="bob")
    hub.send_records("disc", [HubRetire(hub_id=hub_descriptor("alice").hub_id)], who="bob")
    hub.send_records("disc", [sign_continuity(signing_key("bob"), ClientId(signing_key("alice").public))])
    key = reader_key("disc")
    expected = DISCOVERY.fold(open_entry(entry, entry.receipt, key) for entry in entries(hub, "disc"))
    rows = frame_of(spark, hub, "disc", partitions=2)
    folded = fold(rows, DISCOVERY, ReaderKeys.broadcast(spark, [key]), buffered=3).collect()[0]
    assert folded["events"] == expected.events
    assert bytes(folded["state_hash"]) == DISCOVERY.state_hash(expected)
    statuses = {each["status"] for each in DISCOVERY.view(expected.inner)}
    assert statuses == {"advertised", "rejected"}
