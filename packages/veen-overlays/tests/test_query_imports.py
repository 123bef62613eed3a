"""Imported events appear with the values of their origin: both zones give one digest (P7, P11)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from memory_log import READER
from query_view_writer import DURABLE
from recorder_logs import HUB_ID, RecorderLog, event, feed_of, identity_of, opener

from veen_core import LeafHash, SigningKey, SigningSeed, StreamSeq
from veen_core.errors import DecodeError, DivergenceError, EncodeError
from veen_core.ids import BundleId, ClientId, MmrRoot, StreamId, UnixTime
from veen_core.wire import Wire
from veen_overlays.bridge.records import Imported, ImportedEvent, TargetRange, leaf_of
from veen_overlays.live.query_view import DuckDbEngine, OriginHub, OriginLogReader, QueryView, ViewFollower
from veen_overlays.live.query_view import view as view_module
from veen_overlays.live.query_view.feed import follower as follower_module
from veen_overlays.query.engine import QueryAnswer
from veen_overlays.query.plain_engine import PlainEngine
from veen_overlays.query.request.descriptor import QueryDescriptor, normalise
from veen_overlays.query.result.coverage import Prefix
from veen_overlays.recorder.records import KeyContinuity, RecordEvent, sign_continuity

STREAM = "record/app/http"
ORIGIN_HUB = SigningKey(SigningSeed(b"\x31" * 32))
BRIDGE = SigningKey(SigningSeed(b"\x32" * 32))
BUNDLE = BundleId(b"\x41" * 32)


def origin_log(count: int = 6) -> RecorderLog:
    log = RecorderLog(STREAM, hub=ORIGIN_HUB)
    for n in range(count):
        log.record(event(n, principal_id=ClientId(log.writer.public)))
    log.unopened()
    log.other()
    return log


def import_log() -> RecorderLog:
    """The import stream of the other zone; the bridge writes it."""
    return RecorderLog("import/http", writer=BRIDGE)


def imported(log: RecorderLog, n: int, *, with_msg: bool = True) -> ImportedEvent:
    entry = log.entries[n]
    return ImportedEvent(
        bundle_id=BUNDLE,
        source_hub_id=log.hub_id,
        source_label=log.label,
        source_stream_seq=entry.stream_seq,
        origin_receipt=entry.receipt_bytes,
        origin_msg=entry.msg_bytes if with_msg else None,
        import_time=UnixTime(1_800_000_000),
        bridge_id=ClientId(BRIDGE.public),
        origin_leaf=None if with_msg else leaf_of(entry.msg),
    )


def wrap(target: RecorderLog, origin: RecorderLog, places: Sequence[int]) -> None:
    for n in places:
        leaf = origin.entries[n].receipt.leaf_hash
        target.append(target.seal(imported(origin, n), parent_id=leaf))


def origins(log: RecorderLog) -> OriginHub:
    return OriginHub.for_stream(identity_of(log.hub), STREAM, epoch_sec=0)


def descriptor(**changes: Any) -> QueryDescriptor:
    item = {"scope": [STREAM], "filter": {}, "projection": ["*"], "evidence": {"mode": "full"}, **changes}
    return normalise(item, new_query_id="q-1")


def answer_at_the_origin(log: RecorderLog, **changes: Any) -> QueryAnswer:
    plain = PlainEngine([log.source()])
    return plain.execute(descriptor(**changes), plain.prefixes([STREAM]))


def caught_up(view: QueryView, *feeds: Any) -> None:
    asyncio.run(ViewFollower(view, feeds).catch_up())


def prefixes(view: QueryView) -> tuple[Prefix, ...]:
    engine = DuckDbEngine(view, {STREAM: HUB_ID})
    try:
        return engine.prefixes([STREAM])
    finally:
        engine.close()


def answer(view: QueryView, **changes: Any) -> QueryAnswer:
    engine = DuckDbEngine(view, {STREAM: HUB_ID})
    try:
        return engine.execute(descriptor(**changes), engine.prefixes([STREAM]))
    finally:
        engine.close()


def test_wrapped_events_give_the_answer_of_their_origin(tmp_path: Path) -> None:
    origin, target = origin_log(), import_log()
    wrap(target, origin, range(len(origin.entries)))
    feed = feed_of(target, stream=STREAM, opener=opener(z1=origins(origin)))
    with QueryView.open(tmp_path) as view:
        caught_up(view, feed)
        assert answer(view) == answer_at_the_origin(origin)
        counted = {"aggregate": {"group_by": ["event_type"], "metrics": ["count", "min(event_time)"]}}
        for mode in ("none", "full"):
            changes = {**counted, "evidence": {"mode": mode}}
            assert list(answer(view, **changes).rows) == list(answer_at_the_origin(origin, **changes).rows)
            assert answer(view, **changes).coverage == answer_at_the_origin(origin, **changes).coverage


def test_copies_that_arrive_twice_or_out_of_order_appear_once_and_in_order(tmp_path: Path) -> None:
    origin, target = origin_log(), import_log()
    feed = feed_of(target, stream=STREAM, opener=opener(z1=origins(origin)))
    with QueryView.open(tmp_path) as view:
        wrap(target, origin, [0, 1, 1, 4, 3, 4])
        caught_up(view, feed)
        assert [p.to_seq for p in prefixes(view)] == [2]
        assert [row["hub_commit_seq"] for row in answer(view).rows] == [1, 2]
    with QueryView.open(tmp_path) as view:  # the events beyond the gap were kept
        wrap(target, origin, [0, 2, 6, 5, 7])
        caught_up(view, feed)
        assert answer(view) == answer_at_the_origin(origin)


def test_the_empty_source_of_an_import_stream_is_at_the_origin() -> None:
    origin, target = origin_log(), import_log()
    assert feed_of(target, stream=STREAM, opener=opener(z1=origins(origin))).home == origin.hub_id
    assert feed_of(origin, opener=opener(z1=origins(target))).home == origin.hub_id


def test_a_gap_at_the_start_survives_a_restart(tmp_path: Path) -> None:
    origin, target = origin_log(), import_log()
    feed = feed_of(target, stream=STREAM, opener=opener(z1=origins(origin)))
    wrap(target, origin, range(1, 8))
    with QueryView.open(tmp_path) as view:
        caught_up(view, feed)
        assert [p.size for p in prefixes(view)] == [0]
    wrap(target, origin, [0])
    with QueryView.open(tmp_path) as view:
        caught_up(view, feed)
        assert answer(view) == answer_at_the_origin(origin)


@pytest.mark.parametrize("order", [[3, 1, 2, 0], [0, 2, 3, 1], [2, 0, 3, 1]])
def test_events_that_arrive_before_the_link_that_attributes_them_are_attributed_as_at_the_origin(
    tmp_path: Path, order: list[int]
) -> None:
    """A filled gap (``veen bridge import --allow-gap``) changes no row, also over a restart."""
    origin, principal = RecorderLog(STREAM, hub=ORIGIN_HUB), SigningKey(SigningSeed(b"\x33" * 32))
    target = import_log()
    origin.record(event(0, principal_id=ClientId(principal.public)))
    origin.write(sign_continuity(principal, ClientId(origin.writer.public)))
    for n in (1, 2):
        origin.record(event(n, principal_id=ClientId(principal.public)))
    feed = feed_of(target, stream=STREAM, opener=opener(z1=origins(origin)))
    for n in order:
        wrap(target, origin, [n])
        with QueryView.open(tmp_path) as view:
            caught_up(view, feed)
    with QueryView.open(tmp_path) as view:
        assert [row["attributed"] for row in answer(view).rows] == [False, True, True]
        assert [row["hub_commit_seq"] for row in answer(view).rows] == [1, 3, 4]
    assert not list((tmp_path / "waiting").iterdir())


class Stopped(BaseException):
    """The process ends here."""


def test_a_stop_at_any_durable_step_loses_and_doubles_no_waiting_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, target = origin_log(), import_log()
    wrap(target, origin, [3, 5, 0, 4, 7, 1, 2, 6])
    feed = feed_of(target, stream=STREAM, opener=opener(z1=origins(origin)))
    monkeypatch.setattr(view_module, "FLUSH_ROWS", 1)
    monkeypatch.setattr(follower_module, "PAGE_ENTRIES", 1)
    expected, calls, stop_at = answer_at_the_origin(origin), 0, 0

    def counted(real: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == stop_at:
                raise Stopped
            return real(*args, **options)

        return call

    for name in DURABLE:
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    for stop_at in range(7, 2_000, 53):
        folder, calls = tmp_path / str(stop_at), 0
        try:
            with QueryView.open(folder) as view:
                caught_up(view, feed)
            ended = True
        except Stopped:
            ended = False
        calls = stop_at  # from here on, nothing stops
        with QueryView.open(folder) as view:
            caught_up(view, feed)
            assert answer(view) == expected, stop_at
        if ended:
            break
    assert ended
    assert stop_at > 100


def test_an_import_that_does_not_verify_is_no_import(tmp_path: Path) -> None:
    origin, target = origin_log(), import_log()
    other = RecorderLog("record/app/other", hub=ORIGIN_HUB)
    other.record(event(1))
    stranger = RecorderLog(STREAM, hub=SigningKey(SigningSeed(b"\x77" * 32)))
    stranger.record(event(1))
    wrap(target, origin, [0])
    wrap(target, other, [0])  # another stream of the pinned hub
    wrap(target, stranger, [0])  # a hub that is not pinned
    forged = bytearray(origin.entries[1].receipt_bytes)
    forged[-1] ^= 1
    record = replace(imported(origin, 1), origin_receipt=bytes(forged))
    target.append(target.seal(record, parent_id=origin.entries[1].receipt.leaf_hash))
    wrap(target, origin, [1])
    target.append(target.seal(imported(origin, 2), parent_id=LeafHash(bytes(32))))
    feed = feed_of(target, stream=STREAM, opener=opener(z1=origins(origin)))
    with QueryView.open(tmp_path) as view:
        caught_up(view, feed)
        sources = {p.hub_id: p for p in prefixes(view)}
        assert sources[origin.hub_id].to_seq == 2
        assert sources[target.hub_id].to_seq == 6, "the import stream itself has messages that are no imports"
        found = answer(view)
        assert [row["hub_id"] for row in found.rows] == [origin.hub_id.hex()] * 2
        counts = {c.hub_id: (c.scanned, c.opened, c.matched) for c in found.coverage}
        assert counts[target.hub_id] == (6, 6, 0)


def test_two_entries_of_an_origin_hub_at_one_place_are_evidence(tmp_path: Path) -> None:
    origin, target, fork = origin_log(), import_log(), RecorderLog(STREAM, hub=ORIGIN_HUB)
    fork.record(event(5))
    wrap(target, origin, [0, 1])
    wrap(target, fork, [0])
    feed = feed_of(target, stream=STREAM, opener=opener(z1=origins(origin)))
    with (
        QueryView.open(tmp_path) as view,
        pytest.raises(DivergenceError, match="two different entries 1") as caught,
    ):
        caught_up(view, feed)
    assert caught.value.shown == fork.entries[0].receipt_bytes


# --- mode reseal


class Resealed:
    """An import stream in mode reseal, and the bridge's audit log."""

    def __init__(self, origin: RecorderLog) -> None:
        self.origin, self.target = origin, import_log()
        self.audit = RecorderLog("bridge/offline/log", writer=BRIDGE)

    def reseal(self, places: Sequence[int]) -> None:
        for n in places:
            opened = self.origin.entries[n].msg.open(READER)
            leaf = self.origin.entries[n].receipt.leaf_hash
            schema = RecordEvent if opened.header.schema == RecordEvent.SCHEMA else KeyContinuity
            self.target.append(self.target.seal(schema.decode(opened.body), parent_id=leaf))

    def list_origins(self, places: Sequence[int]) -> None:
        for n in places:
            record = imported(self.origin, n, with_msg=False)
            self.audit.append(self.audit.seal(record, parent_id=self.origin.entries[n].receipt.leaf_hash))

    def report(self, to_seq: int) -> None:
        label = self.target.label
        target = TargetRange(
            stream_id=StreamId(bytes(32)), label=label, from_seq=StreamSeq(1), to_seq=StreamSeq(to_seq)
        )
        self.audit.write(
            Imported(
                bundle_id=BUNDLE,
                prev_bundle_id=BundleId(bytes(32)),
                source_hub_id=self.origin.hub_id,
                source_bridge_id=ClientId(bytes(32)),
                source_stream_id=StreamId(bytes(32)),
                source_label=self.origin.label,
                from_seq=StreamSeq(1),
                to_seq=StreamSeq(1),
                events=1,
                root_before=MmrRoot(bytes(32)),
                peaks_before=(),
                root_after=MmrRoot(bytes(32)),
                mode="reseal",
                targets=(target,),
                import_time=UnixTime(1),
                bridge_id=ClientId(BRIDGE.public),
                operator="test",
            )
        )

    def feed(self) -> Any:
        """A new feed: what it holds in memory is lost in a restart."""
        opens = opener(z1=origins(self.origin))
        log = OriginLogReader(self.audit.label, self.audit, keys=[READER], opener=opens, stream=STREAM)
        return feed_of(self.target, stream=STREAM, opener=opens, origin_log=log)


def test_resealed_events_wait_for_their_origin_and_then_give_its_values(tmp_path: Path) -> None:
    origin = RecorderLog(STREAM, hub=ORIGIN_HUB)
    for n in range(6):
        origin.record(event(n, principal_id=ClientId(origin.writer.public)))
    zone = Resealed(origin)
    zone.reseal(range(6))
    zone.list_origins(range(3))
    with QueryView.open(tmp_path) as view:
        caught_up(view, zone.feed())
        assert [p.to_seq for p in prefixes(view)] == [3]
    zone.list_origins(range(3, 6))
    with QueryView.open(tmp_path) as view:
        caught_up(view, zone.feed())
        found, wanted = answer(view), answer_at_the_origin(origin)
        assert found == wanted
        assert all(row["attributed"] for row in found.rows)


def test_a_key_that_the_origin_links_attributes_resealed_events(tmp_path: Path) -> None:
    origin, principal = RecorderLog(STREAM, hub=ORIGIN_HUB), SigningKey(SigningSeed(b"\x33" * 32))
    origin.record(event(0, principal_id=ClientId(principal.public)))
    origin.write(sign_continuity(principal, ClientId(origin.writer.public)))
    origin.record(event(1, principal_id=ClientId(principal.public)))
    zone = Resealed(origin)
    zone.reseal(range(3))
    zone.list_origins(range(3))
    with QueryView.open(tmp_path) as view:
        caught_up(view, zone.feed())
        assert [row["attributed"] for row in answer(view).rows] == [False, True]


def test_a_resealed_event_without_the_leaf_of_its_original_is_not_attributed(tmp_path: Path) -> None:
    """Lists of earlier versions have no ``origin_leaf``: nothing proves which key signed the original."""
    origin = RecorderLog(STREAM, hub=ORIGIN_HUB)
    origin.record(event(0, principal_id=ClientId(origin.writer.public)))
    zone = Resealed(origin)
    zone.reseal([0])
    record = replace(imported(origin, 0, with_msg=False), origin_leaf=None)
    zone.audit.append(zone.audit.seal(record, parent_id=origin.entries[0].receipt.leaf_hash))
    with QueryView.open(tmp_path) as view:
        caught_up(view, zone.feed())
        assert [row["attributed"] for row in answer(view).rows] == [False]


@pytest.mark.parametrize("changed", ["client_id", "client_seq", "ct_hash", "profile_id"])
def test_the_leaf_of_another_original_is_refused(changed: str) -> None:
    origin = origin_log(1)
    record = imported(origin, 0, with_msg=False)
    assert record.origin_leaf is not None
    other = 9 if changed == "client_seq" else bytes(32)
    forged = replace(record, origin_leaf=replace(record.origin_leaf, **{changed: other}))
    with pytest.raises(EncodeError, match="origin_leaf hashes to the leaf of origin_receipt"):
        forged.encode()
    with pytest.raises(DecodeError, match="origin_leaf hashes to the leaf of origin_receipt"):
        ImportedEvent.decode(Wire.encode(forged))


def test_an_event_that_only_answers_another_is_read_once_the_bundle_is_reported(tmp_path: Path) -> None:
    origin = origin_log(3)
    zone = Resealed(origin)
    zone.reseal([0])
    zone.target.append(zone.target.seal(event(9), parent_id=LeafHash(b"\x09" * 32)))
    zone.list_origins([0])
    with QueryView.open(tmp_path) as view:
        caught_up(view, zone.feed())
        assert [(p.hub_id, p.to_seq) for p in prefixes(view)] == [(origin.hub_id, 1)]
        zone.report(2)
        caught_up(view, zone.feed())
        assert {(p.hub_id, p.to_seq) for p in prefixes(view)} == {(origin.hub_id, 1), (zone.target.hub_id, 2)}
        assert len(answer(view).rows) == 2
