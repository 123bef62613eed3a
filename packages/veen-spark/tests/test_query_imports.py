"""Imported events speak with the values of their origin: a query has one digest in both zones (P11)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from veen_core.entry import Entry
from veen_core.hashing import H
from veen_core.ids import BundleId, ClientId, HubId, Label, LeafHash, MmrRoot, StreamId, StreamSeq, UnixTime
from veen_core.receipt import Receipt
from veen_overlays.bridge.records import OFFLINE_LOG, Imported, ImportedEvent, TargetRange, leaf_of
from veen_overlays.live.query_view import (
    DuckDbEngine,
    EntryOpener,
    OriginHub,
    OriginLogReader,
    QueryView,
    StreamFeed,
    ViewFollower,
)
from veen_overlays.query.request.descriptor import normalise
from veen_overlays.query.result.digest import ResultDigest
from veen_overlays.query.result.result_file import Execution, make_digest, parse_result
from veen_overlays.query.verify.verification import ResultTrust, verify_result
from veen_overlays.recorder.records import sign_continuity
from veen_spark.functions.reader_keys import ReaderKeys
from veen_spark.query.evidence import run_query
from veen_spark.query.log_rows import OriginTerms
from veen_spark.query.log_view import view_of_logs

from .commands import run
from .frames import entries
from .logs import BORN, Hub, reader_key, signing_key
from .recorder_hub import HTTP, READER, event

IMPORTS = "import/zone1/http"
QUERY = {
    "query_id": "q-zones",
    "scope": [HTTP],
    "filter": {"where": {"attributed": True}},
    "projection": ["*"],
    "evidence": {"mode": "full"},
}


ALL = {**QUERY, "filter": {}}


def imported(source: Hub, entry: Entry, *, resealed: bool = False) -> ImportedEvent:
    """Return the record of an imported event."""
    return ImportedEvent(
        bundle_id=BundleId(H(b"bundle")),
        source_hub_id=HubId(source.hub_id),
        source_label=entry.label,
        source_stream_seq=entry.stream_seq,
        origin_receipt=entry.receipt_bytes,
        origin_msg=None if resealed else entry.msg_bytes,
        import_time=UnixTime(BORN + 1_000),
        bridge_id=ClientId(signing_key("bridge").public),
        origin_leaf=leaf_of(entry.msg) if resealed else None,
    )


def bring_resealed(source: Hub, target: Hub, *seqs: int, listed: bool = True) -> None:
    """Write the bodies of entries to the target, and their origins to the audit log (P4, P7)."""
    chosen = [entry for entry in entries(source, HTTP) if entry.stream_seq in seqs]
    opened = [entry.msg.open(reader_key(READER)) for entry in chosen]
    leaves = [entry.receipt.leaf_hash for entry in chosen]
    bodies = [(each.header.schema, each.body) for each in opened]
    target.send_records(IMPORTS, bodies, reader=READER, parents=leaves, who="bridge")
    if listed:
        records = [imported(source, entry, resealed=True) for entry in chosen]
        target.send_records(OFFLINE_LOG, records, reader=READER, parents=leaves, who="bridge")


def report(target: Hub, to_seq: int) -> None:
    """Report, as a bridge does last, that everything up to this entry of the import stream is imported."""
    label, zeros = target.label(IMPORTS), bytes(32)
    ends = TargetRange(
        stream_id=StreamId(zeros), label=label, from_seq=StreamSeq(1), to_seq=StreamSeq(to_seq)
    )
    done = Imported(
        bundle_id=BundleId(zeros),
        prev_bundle_id=BundleId(zeros),
        source_hub_id=HubId(zeros),
        source_bridge_id=ClientId(zeros),
        source_stream_id=StreamId(zeros),
        source_label=label,
        from_seq=StreamSeq(1),
        to_seq=StreamSeq(1),
        events=1,
        root_before=MmrRoot(zeros),
        peaks_before=(),
        root_after=MmrRoot(zeros),
        mode="reseal",
        targets=(ends,),
        import_time=UnixTime(BORN),
        bridge_id=ClientId(zeros),
        operator="test",
    )
    target.send_records(OFFLINE_LOG, [done], reader=READER, who="bridge")


def bring(source: Hub, target: Hub, *seqs: int) -> None:
    """Write entries of the source's stream to the target, as a bridge does in mode wrap (P7)."""
    chosen = [entry for entry in entries(source, HTTP) if not seqs or entry.stream_seq in seqs]
    records = [imported(source, entry) for entry in chosen]
    leaves = [entry.receipt.leaf_hash for entry in chosen]
    target.send_records(IMPORTS, records, reader=READER, parents=leaves, who="bridge")


@pytest.fixture
def zones(make_hub: Callable[..., Hub], tmp_path: Path) -> tuple[Hub, Hub]:
    source, target = make_hub("zone1"), make_hub("zone2", key="zone2/0")
    source.send_records(HTTP, [event(n) for n in range(6)], reader=READER)
    source.send_records(HTTP, [event(6)], reader="nobody")
    source.send_records(HTTP, [event(7)], reader=READER, who="mallory")
    (tmp_path / "reader").write_bytes(bytes(reader_key(READER).secret))
    (tmp_path / "reader").chmod(0o600)
    (tmp_path / "query.json").write_text(json.dumps(QUERY))
    return source, target


@pytest.mark.usefixtures("spark")
def test_a_query_has_the_same_digest_in_both_zones(zones: tuple[Hub, Hub], tmp_path: Path) -> None:
    source, target = zones
    bring(source, target, 2, 3)  # out of order, and some of them twice
    bring(source, target)
    source.clone(tmp_path / "clone1")
    target.clone(tmp_path / "clone2")
    identity = tmp_path / "clone1" / "hub-identity.cbor"
    both = ("--reader", tmp_path / "reader", "--json")
    there, here = tmp_path / "zone1.veenq", tmp_path / "zone2.veenq"
    first = run("query", tmp_path / "clone1", "--descriptor", tmp_path / "query.json", "--out", there, *both)
    assert first.exit_code == 0, first.stderr
    imported = ("--held-in", f"{HTTP}={IMPORTS}", "--identity", identity, "--out", here)
    second = run("query", tmp_path / "clone2", "--descriptor", tmp_path / "query.json", *imported, *both)
    assert second.exit_code == 0, second.stderr
    one, two = (parse_result(path.read_bytes()).digest for path in (there, here))
    assert one.row_count == 6
    assert [(each.scanned, each.unopened) for each in two.coverage] == [(8, 1)]
    for field in ("result_id", "rows_hash", "evidence_hash", "row_count"):
        assert getattr(one, field) == getattr(two, field), field
    verify_result(parse_result(here.read_bytes()), ResultTrust(pinned={HubId(source.hub_id)}))


class StoreReader:
    """The logs of a data directory as a view's follower reads them."""

    def __init__(self, hub: Hub) -> None:
        self._read = hub.store.read

    async def head(self, label: Label) -> Receipt | None:
        head = self._read.head(label)
        return None if head is None else (await self.page(label, head.stream_seq, 1))[0].receipt

    async def page(self, label: Label, from_seq: StreamSeq, max_items: int) -> Sequence[Entry]:
        head = self._read.head(label)
        last = 0 if head is None else min(head.stream_seq, from_seq + max_items - 1)
        return list(self._read.entries(label, from_seq, StreamSeq(last))) if from_seq <= last else []


def at_the_origin(source: Hub, folder: Path) -> ResultDigest:
    """Answer the query by the embedded view of the hub where the events were recorded."""
    reader: Any = StoreReader(source)
    feed = StreamFeed(
        stream=HTTP,
        hub_id=source.identity.hub_id,
        reader=reader,
        labels=source.label(HTTP),
        opener=EntryOpener(keys=[reader_key(READER)], origins={}),
    )
    return answered(feed, folder)


def embedded(source: Hub, target: Hub, folder: Path) -> ResultDigest:
    """Answer the query by the embedded view of the target, made by its follower."""
    reader: Any = StoreReader(target)
    opener = EntryOpener(
        keys=[reader_key(READER)],
        origins={source.identity.hub_id: OriginHub.for_stream(source.identity, HTTP, epoch_sec=0)},
    )
    audit = OriginLogReader(
        target.label(OFFLINE_LOG), reader, keys=[reader_key(READER)], opener=opener, stream=HTTP
    )
    feed = StreamFeed(
        stream=HTTP,
        hub_id=target.identity.hub_id,
        reader=reader,
        labels=target.label(IMPORTS),
        opener=opener,
        origin_log=audit,
    )
    return answered(feed, folder)


def answered(feed: StreamFeed, folder: Path) -> ResultDigest:
    descriptor = normalise(ALL, new_query_id="")
    with QueryView.open(folder) as view:
        follower = ViewFollower(view, [feed])
        asyncio.run(follower.catch_up())
        with closing(DuckDbEngine(view, follower.homes)) as engine:
            answer = engine.execute(descriptor, engine.prefixes([HTTP]))
        return make_digest(descriptor, answer, Execution(executed_at=0, hub_id=""))


def on_spark(spark: SparkSession, folder: Path, **imported_from: Any) -> ResultDigest:
    keys = ReaderKeys.broadcast(spark, [reader_key(READER)])
    view = view_of_logs(spark, [str(folder)], [HTTP], keys, **imported_from)
    return run_query(view, normalise(ALL, new_query_id=""), executed_at=0).digest


@pytest.mark.parametrize("waiting", [False, True], ids=["all_listed", "some_not_listed"])
def test_wrapped_and_resealed_events_have_the_digests_of_their_origin_in_both_engines(
    spark: SparkSession, make_hub: Callable[..., Hub], tmp_path: Path, *, waiting: bool
) -> None:
    source, target = make_hub("zone1"), make_hub("zone2", key="zone2/0")
    carol, link = signing_key("carol"), ClientId(signing_key("alice").public)
    mallory = ClientId(signing_key("mallory").public)
    of_carol = {"principal_id": ClientId(carol.public)}
    source.send_records(HTTP, [event(0), event(1, **of_carol)], reader=READER)
    source.send_records(HTTP, [sign_continuity(carol, link), event(2, **of_carol)], reader=READER)
    source.send_records(HTTP, [event(3), event(4), event(5, **of_carol)], reader=READER)
    source.send_records(HTTP, [event(6, principal_id=mallory)], reader=READER)
    bring(source, target, 6)  # out of order, before the link that attributes it
    bring(source, target, 1, 2)
    bring_resealed(source, target, 3, 4, 5)
    bring(source, target, 5)  # once more
    bring_resealed(source, target, 7, listed=not waiting)
    bring(source, target, 8)
    if not waiting:  # an event that only answers another
        parent = [LeafHash(H(b"another"))]
        target.send_records(IMPORTS, [event(9)], reader=READER, parents=parent)
        report(target, 10)
    there = at_the_origin(source, tmp_path / "view1")
    terms = {"held_in": {HTTP: IMPORTS}, "origins": [OriginTerms(identity=source.identity)]}
    here = on_spark(spark, target.clone(tmp_path / "clone2"), resealed=True, **terms)
    view = embedded(source, target, tmp_path / "view2")
    found = {bytes(each.hub_id): (each.to_seq, each.matched) for each in here.coverage}
    of_origin, of_target = bytes(source.hub_id), bytes(target.hub_id)
    assert found == ({of_origin: (6, 5)} if waiting else {of_origin: (8, 7), of_target: (10, 1)})
    for field in ("result_id", "rows_hash", "evidence_hash", "row_count"):
        assert getattr(here, field) == getattr(view, field), field
    without_own = [each for each in here.coverage if each.hub_id == source.hub_id]
    assert waiting or without_own == list(there.coverage)


@pytest.mark.usefixtures("spark")
def test_resealed_events_need_the_audit_log(zones: tuple[Hub, Hub], tmp_path: Path) -> None:
    source, target = zones
    bring_resealed(source, target, 1)
    target.export(IMPORTS, tmp_path / "export")
    identity = tmp_path / "origin.cbor"
    identity.write_bytes(source.identity.encode())
    args = (tmp_path / "export", "--descriptor", tmp_path / "query.json", "--reader", tmp_path / "reader")
    alone = run("query", *args, "--resealed")
    assert (alone.exit_code, "give --held-in and --identity" in alone.stderr) == (1, True)
    refused = run("query", *args, "--resealed", "--held-in", f"{HTTP}={IMPORTS}", "--identity", identity)
    assert refused.exit_code == 3
    assert f"give the export of {OFFLINE_LOG} too" in refused.stderr


@pytest.mark.usefixtures("spark")
def test_events_after_a_missing_import_are_not_queried(zones: tuple[Hub, Hub], tmp_path: Path) -> None:
    source, target = zones
    bring(source, target, 1, 2, 4, 5)
    source.clone(tmp_path / "clone1")
    target.clone(tmp_path / "clone2")
    args = ("--reader", tmp_path / "reader", "--held-in", f"{HTTP}={IMPORTS}", "--json")
    identity = ("--identity", tmp_path / "clone1" / "hub-identity.cbor")
    shown = run("query", tmp_path / "clone2", "--descriptor", tmp_path / "query.json", *args, *identity)
    assert shown.exit_code == 0, shown.stderr
    (source_shown,) = json.loads(shown.stdout)["result_digest"]["coverage"]
    assert (source_shown["to_seq"], source_shown["matched"]) == (2, 2)
    other = ("--identity", tmp_path / "clone2" / "hub-identity.cbor")  # not the origin's: nothing counts
    refused = run("query", tmp_path / "clone2", "--descriptor", tmp_path / "query.json", *args, *other)
    assert refused.exit_code == 0, refused.stderr
    coverage = json.loads(refused.stdout)["result_digest"]["coverage"]
    assert [each["hub_id"] for each in coverage] == [target.hub_id.hex()]
    assert [each["matched"] for each in coverage] == [0]
