"""A replica's directory: the primary's batches, verified, give a byte-identical log (RESOLUTIONS P9)."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from veen_core import cbor, stream
from veen_core.entry import unframe
from veen_core.handover import UNSIGNED, Handover, attachments_hash
from veen_core.hashing import H
from veen_core.ids import Coid, HubPk
from veen_core.keys import SigningKey
from veen_storage import BatchesGoneError, JournalKeeping, RefusedBatchError, StorageError, Store
from veen_storage.chunks.retention import PruneRule
from veen_storage.commit import journal_format
from veen_storage.commit.journal import ENTRY
from veen_storage.commit.journal_format import Item, JournalBatch, encode_batch
from veen_storage.commit.kept_segments import KeptSegments
from veen_storage.commit.replicated_batch import split_batches
from veen_storage.copies.inherited import holder_of_stream
from veen_storage.copies.promote import lost_receipts, make_successor_key, promote, read_successor_key
from veen_storage.copies.snapshot import UNFINISHED, SnapshotTarget, send_snapshot
from veen_storage.fsck import fsck
from veen_testing.forks import check_fork

from .conftest import MakeStore
from .sample import (
    HUB_ID,
    HUB_KEY,
    INVOICES,
    ORDERS,
    Unsynced,
    add,
    at,
    authorize,
    checkpoint,
    hub_checkpoint,
    prune,
    send,
    send_each,
    signing_key,
    token,
    tree,
)

KEEP = JournalKeeping(max_bytes=1 << 30)


def copy(primary: Store, root: Path) -> int:
    """A new replica's directory, from a snapshot."""
    target = SnapshotTarget(root, HUB_ID, Unsynced())
    send_snapshot(primary, target.take)
    return target.finish()


def follow(primary: Store, replica: Store) -> None:
    """Replicate everything that is durable."""
    feed = primary.journal_feed(replica.last_batch)
    while (data := feed.read()[0]) != b"":
        for batch in split_batches(data):
            replica.replicate(batch)
    feed.close()


@pytest.fixture
def primary(make_store: MakeStore) -> Store:
    return make_store("primary", keeping=KEEP)


@pytest.fixture
def replica(make_store: MakeStore, primary: Store, tmp_path: Path) -> Store:
    """Has what the primary had before the test wrote to it: nothing."""
    copy(primary, tmp_path / "replica")
    return make_store("replica")


def write_much(store: Store) -> None:
    """Several labels and chunks, a token, checkpoints, hub checkpoints and a pruned chunk."""
    auth_ref = token().auth_ref
    authorize(store, token())
    send(store, ORDERS, 30, auth_ref=auth_ref)
    hub_checkpoint(store, at(1))
    send_each(store, INVOICES, 11, who="bob", now=at(2))
    checkpoint(store, INVOICES, at(20))
    while store.lag:
        store.apply()
    prune(store, ORDERS, PruneRule(max_age_sec=10), at(100))
    send(store, ORDERS, 5, now=at(101))
    hub_checkpoint(store, at(102))


def settle(*stores: Store) -> None:
    for store in stores:
        while store.lag:
            store.apply()


def assert_equal(primary: Store, replica: Store) -> None:
    settle(primary, replica)
    for folder in ("log", "hublog"):
        mine, theirs = tree(replica.layout.root, folder), tree(primary.layout.root, folder)
        assert mine.keys() == theirs.keys()
        assert mine == theirs
    binding = primary.layout.checkpoint_binding.read_bytes()
    assert replica.layout.checkpoint_binding.read_bytes() == binding


def assert_sound(store: Store) -> None:
    store.close()
    report = fsck(store.layout.root)
    assert report.faults == [], str(report)


def test_the_log_of_a_replica_is_byte_identical(primary: Store, replica: Store) -> None:
    write_much(primary)
    follow(primary, replica)
    assert_equal(primary, replica)
    assert any(name.endswith(".pruned") for name in tree(replica.layout.root, "log"))
    assert_sound(replica)


def test_a_snapshot_of_a_hub_with_history_continues_with_the_next_batch(
    make_store: MakeStore, primary: Store, tmp_path: Path
) -> None:
    write_much(primary)
    settle(primary)
    assert copy(primary, tmp_path / "replica") == primary.last_batch
    replica = make_store("replica")
    assert replica.last_batch == primary.last_batch
    send(primary, ORDERS, 20, now=at(200))
    hub_checkpoint(primary, at(201))
    follow(primary, replica)
    assert_equal(primary, replica)
    assert_sound(replica)


def test_a_snapshot_leaves_batches_that_are_not_applied_to_the_journal(
    make_store: MakeStore, primary: Store, tmp_path: Path
) -> None:
    send(primary, ORDERS, 3)
    settle(primary)
    send(primary, ORDERS, 4)
    assert copy(primary, tmp_path / "replica") == primary.last_batch - 1
    replica = make_store("replica")
    follow(primary, replica)
    assert_equal(primary, replica)


def test_the_journals_of_both_hold_the_same_bytes(primary: Store, replica: Store) -> None:
    write_much(primary)
    follow(primary, replica)
    names = ["journal", "journal-kept"]
    theirs = b"".join(
        data for name in names for path, data in tree(primary.layout.root, name).items() if path != "applied"
    )
    mine = b"".join(data for path, data in tree(replica.layout.root, "journal").items() if path != "applied")
    assert mine == theirs


def test_a_reopened_replica_continues_where_it_stopped(
    make_store: MakeStore, primary: Store, replica: Store
) -> None:
    write_much(primary)
    follow(primary, replica)
    replica.close()
    send(primary, INVOICES, 7, who="bob", now=at(300))
    again = make_store("replica")
    assert again.last_batch == primary.last_batch - 1
    follow(primary, again)
    assert_equal(primary, again)


def test_a_primary_keeps_applied_segments_for_its_replicas(
    make_store: MakeStore, primary: Store, replica: Store
) -> None:
    write_much(primary)
    settle(primary)
    primary.close()
    again = make_store("primary", keeping=KEEP)
    assert not list(again.layout.journal.glob("*.wal"))
    send(again, ORDERS, 2, now=at(400))
    follow(again, replica)
    assert_equal(again, replica)


def test_a_replica_that_was_away_too_long_is_told_so(
    make_store: MakeStore, primary: Store, replica: Store
) -> None:
    write_much(primary)
    settle(primary)
    primary.close()
    again = make_store("primary")  # keeps nothing
    with pytest.raises(BatchesGoneError, match="no longer kept"):
        follow(again, replica)


def test_kept_segments_are_bounded_by_bytes_and_by_age(tmp_path: Path) -> None:
    folder = tmp_path / "journal-kept"
    kept = KeptSegments(Unsynced(), folder, JournalKeeping(max_bytes=25, max_age_sec=100), now=lambda: 1e12)
    for number in range(1, 5):
        segment = tmp_path / f"journal-{number:020d}.wal"
        segment.write_bytes(b"x" * 10)
        kept.retire(segment)
    young = KeptSegments(Unsynced(), folder, JournalKeeping(max_bytes=25, max_age_sec=100), now=lambda: 0.0)
    young.trim()
    assert [int(path.stem[8:]) for path in sorted(folder.iterdir())] == [3, 4]
    kept.trim()
    assert not list(folder.iterdir())


def test_a_payload_that_retention_prunes_leaves_the_kept_journal_too(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """COMP0.1: the journal of replicas must not serve what the log no longer has."""
    monkeypatch.setattr("veen_storage.commit.journal.SEGMENT_BYTES", 2_000)
    primary = make_store("primary", keeping=JournalKeeping(max_bytes=1 << 30, max_age_sec=1 << 40))
    for second in range(0, 80, 4):
        send(primary, ORDERS, 3, now=at(second))
        settle(primary)
        os.utime(max(primary.layout.journal.glob("*.wal")), (at(second), at(second)))
    decisions = prune(primary, ORDERS, PruneRule(max_age_sec=10), at(50))
    feed = primary.journal_feed(0)
    with pytest.raises(BatchesGoneError, match="no longer kept"):
        feed.read()
    kept = min(int(path.stem[8:]) for path in primary.layout.kept_journal.iterdir())
    items = [item for batch in batches(primary, kept - 1) for item in batch.items]
    left = [unframe(item.data).stream_seq for item in items if item.kind == ENTRY]
    assert max(decision.end_seq for decision in decisions) < min(left) < max(left) == 60


# --- what a replica refuses


def batches(store: Store, after: int = 0) -> list[JournalBatch]:
    feed = store.journal_feed(after)
    found = split_batches(feed.read(1 << 40)[0])
    feed.close()
    return found


def changed(batch: JournalBatch, at_item: int, data: bytes) -> JournalBatch:
    items = list(batch.items)
    items[at_item] = Item(items[at_item].kind, data)
    return split_batches(encode_batch(batch.number, items))[0]


def test_a_replica_refuses_a_batch_that_does_not_follow(primary: Store, replica: Store) -> None:
    send_each(primary, ORDERS, 3)
    _first, second, _third = batches(primary)
    with pytest.raises(RefusedBatchError, match="the replica's next batch is 1"):
        replica.replicate(second)
    assert replica.last_batch == 0


def test_every_flipped_bit_of_a_batch_is_refused(primary: Store, replica: Store) -> None:
    send(primary, ORDERS, 1)
    (good,) = batches(primary)
    frame = good.items[0].data
    for position in range(0, len(frame), 3):
        bad = bytearray(frame)
        bad[position] ^= 1 << (position % 8)
        with pytest.raises((RefusedBatchError, StorageError)):
            replica.replicate(changed(good, 0, bytes(bad)))
        assert replica.last_batch == 0
        assert replica.read.head(ORDERS) is None
    replica.replicate(good)


def test_a_batch_that_was_changed_on_the_way_is_refused_by_its_checksum(primary: Store) -> None:
    send(primary, ORDERS, 1)
    data = bytearray(primary.journal_feed(0).read()[0])
    data[len(data) // 2] ^= 4
    with pytest.raises(StorageError, match="checksum"):
        split_batches(bytes(data))


def test_a_replica_refuses_a_second_history_and_names_the_receipt(
    make_store: MakeStore, primary: Store, replica: Store
) -> None:
    send(primary, ORDERS, 2)
    follow(primary, replica)
    other = make_store("other")  # the same key: an old copy that was started again
    send(other, ORDERS, 1, body=b"other")
    send(other, INVOICES, 1)
    second = batches(other)[0]
    with pytest.raises(RefusedBatchError) as caught:
        replica.replicate(JournalBatch(2, second.items))
    assert caught.value.receipt is not None
    assert caught.value.receipt.stream_seq == 1


@pytest.mark.parametrize("missing", range(3))
def test_a_replica_refuses_a_hub_checkpoint_without_one_of_the_entries_before_it(
    primary: Store, replica: Store, missing: int
) -> None:
    batch = primary.batch(at(0))
    for to in (ORDERS, INVOICES, ORDERS):
        add(batch, to)
    batch.hub_checkpoint("example.org/log")
    primary.commit(batch)
    (good,) = batches(primary)
    items = [item for position, item in enumerate(good.items) if position != missing]
    with pytest.raises(RefusedBatchError):
        replica.replicate(JournalBatch(1, tuple(items)))
    replica.replicate(good)


def test_a_snapshot_is_refused_if_one_byte_of_a_chunk_or_summary_is_changed(
    primary: Store, tmp_path: Path
) -> None:
    write_much(primary)
    settle(primary)
    items: list[bytes] = []
    send_snapshot(primary, items.append)
    names = [str(cbor.decode_items(one)[1]) if cbor.decode_items(one)[0] == "file" else "" for one in items]
    chunks = [n for n, name in enumerate(names) if "/chunk-" in name and not name.endswith(".pruned")]
    assert len(chunks) > 5  # in a pruned chunk, no hash binds prev_ack and auth_ref (ADR 0008)
    for number in chunks:
        _file, name, data = cbor.decode_items(items[number])
        bad = bytearray(data)
        bad[len(bad) // 2] ^= 1
        sent = [*items[:number], cbor.encode(["file", name, bytes(bad)]), *items[number + 1 :]]
        target = SnapshotTarget(tmp_path / "replica", HUB_ID, Unsynced())
        for one in sent:
            target.take(one)
        with pytest.raises(StorageError, match="does not verify"):
            target.finish()
        assert not (tmp_path / "replica" / "VERSION").exists()


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "keys/hub.key", "log/../../x", "journal/applied", "log/.x", "lock", "log/a/b"]
)
def test_a_snapshot_writes_no_other_file(tmp_path: Path, name: str) -> None:
    target = SnapshotTarget(tmp_path / "replica", HUB_ID, Unsynced())
    target.take(cbor.encode(["snapshot", 1, bytes(HUB_ID)]))
    with pytest.raises(StorageError, match="does not belong"):
        target.take(cbor.encode(["file", name, b"x"]))


def test_a_snapshot_that_ends_early_is_no_data_directory(primary: Store, tmp_path: Path) -> None:
    send(primary, ORDERS, 3)
    settle(primary)
    items: list[bytes] = []
    send_snapshot(primary, items.append)
    target = SnapshotTarget(tmp_path / "replica", HUB_ID, Unsynced())
    for one in items[:-1]:
        target.take(one)
    with pytest.raises(StorageError, match="ended early"):
        target.finish()
    copy(primary, tmp_path / "replica")  # starts over in what was left


def test_a_snapshot_never_removes_files_that_it_did_not_write(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    (folder / "photos").mkdir(parents=True)
    (folder / "photos" / "one").write_bytes(b"precious")
    with pytest.raises(StorageError, match=r"not empty.*photos"):
        SnapshotTarget(folder, HUB_ID, Unsynced())
    assert (folder / "photos" / "one").read_bytes() == b"precious"


def test_a_finished_snapshot_leaves_no_mark_of_an_unfinished_one(primary: Store, tmp_path: Path) -> None:
    copy(primary, tmp_path / "replica")
    assert not (tmp_path / "replica" / UNFINISHED).exists()


def test_the_version_in_a_snapshot_is_bounded(tmp_path: Path) -> None:
    target = SnapshotTarget(tmp_path / "replica", HUB_ID, Unsynced())
    target.take(cbor.encode(["snapshot", 1, bytes(HUB_ID)]))
    part = cbor.encode(["file", "VERSION", bytes(2_000)])
    target.take(part)
    target.take(part)
    with pytest.raises(StorageError, match="exceeds"):
        target.take(part)


def test_a_snapshot_of_another_hub_is_refused(primary: Store, tmp_path: Path) -> None:
    target = SnapshotTarget(tmp_path / "replica", type(HUB_ID)(H(b"another")), Unsynced())
    with pytest.raises(StorageError, match="snapshot is of hub"):
        send_snapshot(primary, target.take)


def test_a_snapshot_has_no_keys_and_no_attachments(primary: Store, tmp_path: Path) -> None:
    primary.attachments.put(Coid(H(b"content")), [b"content"])
    copy(primary, tmp_path / "replica")
    assert not (tmp_path / "replica" / "keys").exists()
    assert tree(tmp_path / "replica", "attachments") == {}


def test_the_header_of_a_batch_gives_its_size(primary: Store) -> None:
    send(primary, ORDERS, 1)
    data, count = primary.journal_feed(0).read()
    header = journal_format.read_header(data)
    assert header is not None
    assert (header.number, journal_format.batch_size(header), count) == (1, len(data), 1)


# --- promotion


def handed_over(store: Store, new_key: SigningKey) -> Handover:
    """What a hub signs last, made here without a hub."""
    hub_checkpoint(store, at(900))
    signed = store.hub_log.checkpoint
    assert signed is not None
    coids = list(store.attachments.coids())
    record = Handover(
        old_hub=HUB_ID,
        new_hub=stream.hub_id(HubPk(new_key.public)),
        hub_ts=store.hub_ts,
        checkpoint=signed.encode(),
        attachments=len(coids),
        attachments_hash=attachments_hash(coids),
        url="",
        sig=UNSIGNED,
    )
    return dataclasses.replace(record, sig=HUB_KEY.sign(record.digest))


NEW_KEY = signing_key("successor")


def test_a_planned_promotion_forks_from_exactly_the_handover(
    primary: Store, replica: Store, tmp_path: Path
) -> None:
    write_much(primary)
    record = handed_over(primary, NEW_KEY)
    follow(primary, replica)
    replica.close()
    made = promote(
        tmp_path / "replica", tmp_path / "new", NEW_KEY, at(1_000), handover=record, files=Unsynced()
    )
    assert (made.old_hub, made.new_hub) == (HUB_ID, record.new_hub)
    check_fork(tmp_path / "new")
    assert (
        Handover.decode((tmp_path / "new" / "ancestry" / HUB_ID.hex() / "handover.cbor").read_bytes())
        == record
    )
    for root in (tmp_path / "new", tmp_path / "new" / "ancestry" / HUB_ID.hex()):
        report = fsck(root)
        assert report.faults == [], str(report)


def test_a_promotion_is_refused_while_the_replica_lacks_a_batch(
    primary: Store, replica: Store, tmp_path: Path
) -> None:
    send(primary, ORDERS, 5)
    follow(primary, replica)
    record = handed_over(primary, NEW_KEY)
    replica.close()
    with pytest.raises(StorageError, match="wait until the replica has caught up"):
        promote(tmp_path / "replica", tmp_path / "new", NEW_KEY, at(1_000), handover=record)
    assert not (tmp_path / "new").exists()


def test_a_promotion_is_refused_with_another_key_and_with_entries_after_the_handover(
    primary: Store, replica: Store, tmp_path: Path
) -> None:
    send(primary, ORDERS, 5)
    record = handed_over(primary, NEW_KEY)
    follow(primary, replica)
    with pytest.raises(StorageError, match="another hub's"):
        promote(tmp_path / "replica", tmp_path / "new", signing_key("thief"), at(1_000), handover=record)
    send(primary, ORDERS, 1, now=at(950))  # the primary lies: it has written after its last hub checkpoint
    follow(primary, replica)
    replica.close()
    with pytest.raises(StorageError, match="not covered"):
        promote(tmp_path / "replica", tmp_path / "new", NEW_KEY, at(1_000), handover=record)


def test_a_promotion_is_refused_while_an_attachment_is_missing(
    primary: Store, replica: Store, tmp_path: Path
) -> None:
    send(primary, ORDERS, 5)
    primary.attachments.put(Coid(H(b"content")), [b"content"])
    record = handed_over(primary, NEW_KEY)
    follow(primary, replica)
    replica.close()
    with pytest.raises(StorageError, match="copied all attachments"):
        promote(tmp_path / "replica", tmp_path / "new", NEW_KEY, at(1_000), handover=record)


def test_lost_receipts_are_those_beyond_the_cut_of_the_ancestor(
    primary: Store, replica: Store, tmp_path: Path
) -> None:
    kept = send(primary, ORDERS, 5)
    follow(primary, replica)
    lost = [*send(primary, ORDERS, 2), *send(primary, INVOICES, 1)]
    replica.close()
    promote(tmp_path / "replica", tmp_path / "new", NEW_KEY, at(1_000), handover=None, files=Unsynced())
    forged = dataclasses.replace(kept[0], hub_ts=at(5))
    fates = [fate.fate for fate in lost_receipts(tmp_path / "new", [*kept, *lost, forged])]
    assert fates == ["kept"] * 5 + ["lost"] * 3 + ["foreign"]


def test_receipts_of_every_ancestor_are_found_after_two_cutovers(
    primary: Store, replica: Store, tmp_path: Path
) -> None:
    kept = send(primary, ORDERS, 3)
    follow(primary, replica)
    lost = send(primary, ORDERS, 2)
    replica.close()
    promote(tmp_path / "replica", tmp_path / "new", NEW_KEY, at(1_000), handover=None, files=Unsynced())
    newest = signing_key("the third")
    promote(tmp_path / "new", tmp_path / "third", newest, at(2_000), handover=None, files=Unsynced())
    fates = [fate.fate for fate in lost_receipts(tmp_path / "third", [*kept, *lost])]
    assert fates == ["kept"] * 3 + ["lost"] * 2


def test_the_ancestor_that_has_a_stream_is_found(primary: Store, replica: Store, tmp_path: Path) -> None:
    send(primary, ORDERS, 1)
    follow(primary, replica)
    replica.close()
    promote(tmp_path / "replica", tmp_path / "new", NEW_KEY, at(1_000), handover=None, files=Unsynced())
    newest = signing_key("the third")
    promote(tmp_path / "new", tmp_path / "third", newest, at(2_000), handover=None, files=Unsynced())
    assert holder_of_stream(tmp_path / "third", stream.stream_id("orders")) == HUB_ID
    assert holder_of_stream(tmp_path / "third", stream.stream_id("invoices")) is None
    assert holder_of_stream(tmp_path / "replica", stream.stream_id("orders")) is None


def test_a_receipt_that_contradicts_the_ancestor_is_named(
    make_store: MakeStore, primary: Store, replica: Store, tmp_path: Path
) -> None:
    send(primary, ORDERS, 2)
    follow(primary, replica)
    other = make_store("other")
    contradicting = send(other, ORDERS, 1, body=b"other")
    replica.close()
    fates = [fate.fate for fate in lost_receipts(tmp_path / "replica", contradicting)]
    assert fates == ["contradicted"]


def test_the_key_of_a_successor_is_made_once_and_read_back(tmp_path: Path) -> None:
    hub_id = make_successor_key(tmp_path / "keys", NEW_KEY)
    assert hub_id == stream.hub_id(HubPk(NEW_KEY.public))
    assert read_successor_key(tmp_path / "keys").seed == NEW_KEY.seed
    with pytest.raises(StorageError, match="has a key already"):
        make_successor_key(tmp_path / "keys", NEW_KEY)
    with pytest.raises(StorageError, match="0 hub keys"):
        read_successor_key(tmp_path / "nothing")
