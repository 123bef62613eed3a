"""The hub log: what extends it, how it is read, and what every answer must agree with (RESOLUTIONS P1)."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from veen_core.errors import DecodeError, ProofError
from veen_core.hashing import H
from veen_core.hub_log import HeadTable, LabelHead, note_key, verify_hub_checkpoint
from veen_core.ids import Label, LeafHash, StreamSeq
from veen_core.tlog import tree
from veen_core.tlog.note import Note, sign_note, verified_signatures
from veen_core.tlog.tiles import (
    ENTRIES,
    Tile,
    check_bundle,
    decode_bundle,
    node_lookup,
    tile_hashes,
    tiles_of,
)
from veen_core.tlog.tree_head import SignedHead, TreeHead
from veen_storage.commit.ledger import Ledger
from veen_storage.commit.writer import Batch
from veen_storage.disk.hub_keys import HubKeys
from veen_storage.errors import AbsentError, StorageError
from veen_storage.fsck import fsck
from veen_storage.index import tables
from veen_storage.index.lmdb_index import Index, Transaction
from veen_storage.index.records import LabelCursor, LabelNo
from veen_storage.opening.rotation import rotate
from veen_storage.read import hub_log_view
from veen_storage.store import Store

from .conftest import MakeStore
from .oracle import drop, hub_entries, index_read_here
from .sample import (
    BORN,
    HUB_KEY,
    INVOICES,
    ORDERS,
    ORIGIN,
    add,
    at,
    checkpoint,
    hub_checkpoint,
    label,
    send,
    signing_key,
)
from .sample import (
    tree as files_of,
)
from .thorough import THOROUGH

MANY = [label(f"stream {number}") for number in range(40)]


def heads(store: Store) -> list[LabelHead]:
    return [LabelHead.decode(entry) for entry in hub_entries(store)]


def grow(store: Store, rounds: int, start: int = 0) -> list[SignedHead]:
    """Extend the hub log some times, each time by another handful of labels."""
    made = []
    for number in range(start, start + rounds):
        batch = store.batch(at(number))
        for step in range(1 + number % 7):
            add(batch, MANY[(number * 11 + step * step) % len(MANY)])
        signed = batch.hub_checkpoint(ORIGIN)
        assert signed is not None
        store.commit(batch)
        made.append(signed)
    return made


def roots_of(entries: list[bytes]) -> list[bytes]:
    """The root at every size, by appending."""
    grown, roots = tree.Tree(), [tree.EMPTY_ROOT]
    for entry in entries:
        grown.append(tree.leaf_hash(entry))
        roots.append(grown.root)
    return roots


# --- what extends it


def test_an_extension_has_one_head_for_each_label_that_moved_in_order_of_labels(store: Store) -> None:
    send(store, ORDERS, 3, now=at(1))
    send(store, INVOICES, 2, now=at(2))
    signed = hub_checkpoint(store, at(3))
    assert signed is not None
    found = heads(store)
    assert [head.label for head in found] == sorted(head.label for head in found)
    assert {head.label: (head.upto_seq, head.hub_ts) for head in found} == {
        ORDERS: (3, at(1)),
        INVOICES: (2, at(2)),
    }
    for head in found:
        receipt = store.read.receipt(head.label, head.upto_seq)
        assert (head.mmr_root, head.hub_ts) == (receipt.mmr_root, receipt.hub_ts)
    verify_hub_checkpoint(store.identity, signed, since=at(2))
    assert signed.head == TreeHead(ORIGIN, 2, roots_of(hub_entries(store))[2])


def test_without_a_label_that_moved_there_is_no_hub_checkpoint(store: Store) -> None:
    assert hub_checkpoint(store) is None
    assert (store.hub_log.checkpoint, store.hub_log.size, store.hub_log.moved) == (None, 0, 0)
    send(store, ORDERS, 3)
    assert store.hub_log.moved == 1
    first = hub_checkpoint(store)
    checkpoint(store, ORDERS)
    batch = store.batch(BORN)
    batch.anchor(ORDERS, StreamSeq(3), b"anchored")
    store.commit(batch)
    assert hub_checkpoint(store) is None
    assert (store.hub_log.checkpoint, store.hub_log.moved) == (first, 0)


def test_entries_of_the_same_batch_are_covered_as_far_as_they_come_before(store: Store) -> None:
    batch = store.batch(at(1))
    add(batch, ORDERS)
    add(batch, INVOICES)
    batch.hub_checkpoint(ORIGIN)
    add(batch, ORDERS)
    store.commit(batch)
    assert sorted((head.label, head.upto_seq) for head in heads(store)) == sorted(
        [(ORDERS, 1), (INVOICES, 1)]
    )
    assert store.hub_log.moved == 1
    store.apply()
    drop(store)
    with Store(store.layout.root, background=False) as again:
        assert again.hub_log.moved == 1
        assert hub_checkpoint(again, at(2)) is not None
        assert (heads(again)[-1].label, heads(again)[-1].upto_seq) == (ORDERS, 2)


def test_two_extensions_of_one_batch_are_two_hub_checkpoints(store: Store) -> None:
    batch = store.batch(at(1))
    add(batch, ORDERS)
    first = batch.hub_checkpoint(ORIGIN)
    add(batch, ORDERS)
    second = batch.hub_checkpoint(ORIGIN)
    assert batch.hub_checkpoint(ORIGIN) is None
    store.commit(batch)
    assert first is not None
    assert second is not None
    for _ in range(2):
        assert store.hub_log.checkpoint == second
        assert [store.hub_log.root_at(size) for size in (1, 2)] == [first.head.root, second.head.root]
        store.apply()


def test_a_batch_that_is_dropped_leaves_the_hub_log_as_it_was(store: Store) -> None:
    grow(store, 3)
    before = hub_entries(store), store.hub_log.checkpoint
    batch = store.batch(at(9))
    add(batch, ORDERS)
    assert batch.hub_checkpoint(ORIGIN) is not None
    assert (hub_entries(store), store.hub_log.checkpoint) == before
    assert store.hub_log.moved == 0


def test_sizes_only_grow_and_each_size_has_one_root_across_crashes(make_store: MakeStore) -> None:
    store, shown = make_store(), list[SignedHead]()
    for number in range(12):
        shown += grow(store, 5, start=5 * number)
        if number % 3 == 0:
            store.apply()
        drop(store)
        store = make_store()
        assert store.hub_log.checkpoint == shown[-1]
        for signed in shown:
            assert store.hub_log.root_at(signed.head.size) == signed.head.root
    assert all(a.head.size < b.head.size for a, b in pairwise(shown))


def test_an_origin_that_is_not_a_key_name_is_refused_and_the_batch_stays_usable(store: Store) -> None:
    batch = store.batch(at(1))
    add(batch, ORDERS)
    for origin in ("", "two words", "a+b", "a\nb"):
        with pytest.raises(DecodeError, match="origin of the hub log"):
            batch.hub_checkpoint(origin)
    signed = batch.hub_checkpoint("logs.example/hub")
    store.commit(batch)
    assert signed is not None
    verify_hub_checkpoint(store.identity, signed, origin="logs.example/hub")


def test_a_directory_without_keys_cannot_extend_its_hub_log(make_store: MakeStore) -> None:
    with make_store() as store:
        send(store, ORDERS)
    next(store.layout.keys.iterdir()).unlink()
    batch = make_store().batch(at(1))
    with pytest.raises(StorageError, match="is not available"):
        batch.hub_checkpoint(ORIGIN)
    assert batch.length == 0


def test_during_a_rotation_window_both_keys_sign(make_store: MakeStore, tmp_path: Path) -> None:
    make_store().close()
    rotate(tmp_path / "data", signing_key("hub/1"), at(100), window_sec=50)
    store = make_store()
    signers = []
    for now in (99, 100, 149, 150):
        send(store, ORDERS, now=at(now))
        signed = hub_checkpoint(store, at(now))
        assert signed is not None
        verify_hub_checkpoint(store.identity, signed, since=at(now))
        keys = [note_key(key, ORIGIN) for key in store.identity.hub_keys]
        made = verified_signatures(signed.note, keys)
        signers.append({key.public for key in made})
        assert len(signed.note.signatures) == len(made)
    old, new = (key.hub_pk for key in store.identity.hub_keys)
    assert signers == [{old}, {old, new}, {old, new}, {new}]
    drop(store)
    assert make_store().hub_log.checkpoint == signed


# --- reading: the same answers, whether an extension is applied or waits


@pytest.fixture(params=["all applied", "none applied", "half applied"])
def grown(store: Store, request: pytest.FixtureRequest) -> Store:
    """A hub log of more than one bundle."""
    grow(store, 70)
    if request.param != "none applied":
        store.apply()
    grow(store, 70, start=70)
    if request.param == "all applied":
        store.apply()
    assert store.hub_log.size > 512
    return store


def test_proofs_verify_at_all_sizes(grown: Store) -> None:
    log, entries = grown.hub_log, hub_entries(grown)
    roots, leaves = roots_of(entries), [tree.leaf_hash(entry) for entry in entries]
    for size in range(len(entries) + 1):
        assert log.root_at(size) == roots[size]
    for size in [*range(1, 18), 255, 256, 257, 511, 512, 513, len(entries)]:
        for index in {*range(min(size, 18)), size // 2, size - 1}:
            tree.verify_inclusion(leaves[index], index, size, log.prove_inclusion(index, size), roots[size])
        for old in {*range(min(size, 18)), size // 2, size - 1, size}:
            proof = log.prove_consistency(old, size)
            tree.verify_consistency(old, size, proof, roots[old], roots[size])


def test_a_proof_about_more_than_there_is_is_refused(grown: Store) -> None:
    log = grown.hub_log
    for ask in (
        lambda: log.root_at(log.size + 1),
        lambda: log.prove_inclusion(0, log.size + 1),
        lambda: log.prove_consistency(1, log.size + 1),
        lambda: log.head_of(MANY[0], None, log.size + 1),
        lambda: log.root_at(-1),
    ):
        with pytest.raises(AbsentError, match="the hub log has"):
            ask()
    with pytest.raises(ProofError):
        log.prove_inclusion(5, 5)
    with pytest.raises(ProofError):
        log.prove_consistency(6, 5)


def test_tiles_and_bundles_are_those_of_the_tree_over_the_entries(grown: Store) -> None:
    log, entries = grown.hub_log, hub_entries(grown)
    for tile in tiles_of(log.size):
        hashes = tile_hashes(tile, log.tile(tile))
        if tile.level == 0:
            found = decode_bundle(log.bundle(Tile(ENTRIES, tile.index, tile.width)))
            assert found == entries[tile.start : tile.start + tile.width]
            check_bundle(found, hashes)
    lookup = node_lookup(log.size, log.tile)
    assert tree.tree_at(log.size, lookup).root == log.root_at(log.size)
    for width in (1, 2, 3, 100, 255):
        assert log.tile(Tile(0, 1, width)) == log.tile(Tile(0, 1))[: 32 * width]
        assert decode_bundle(log.bundle(Tile(ENTRIES, 1, width))) == entries[256 : 256 + width]


def test_a_tile_that_the_tree_does_not_have_yet_is_absent(grown: Store) -> None:
    log = grown.hub_log
    full, rest = divmod(log.size, 256)
    for tile in (Tile(0, full), Tile(0, full, rest + 1), Tile(1, 0), Tile(1, 0, full + 1), Tile(ENTRIES, 0)):
        with pytest.raises(AbsentError, match="no tile"):
            log.tile(tile)
    for tile in (Tile(ENTRIES, full), Tile(ENTRIES, full, rest + 1), Tile(0, 0)):
        with pytest.raises(AbsentError, match="no tile"):
            log.bundle(tile)


def test_a_head_is_found_by_label_size_and_entry(grown: Store) -> None:
    log, found = grown.hub_log, heads(grown)
    for size in (0, 1, 2, 57, 256, 257, len(found)):
        table = HeadTable()
        for head in found[:size]:
            table.add(head)
        assert {head.label: head for head in log.heads(size)} == table.newest
        for name in MANY:
            if name in table.newest:
                head, index = log.head_of(name, None, size)
                assert (head, found[index]) == (table.newest[name], head)
            else:
                with pytest.raises(AbsentError, match="has no head"):
                    log.head_of(name, None, size)
    for name in MANY[:9]:
        own = [head for head in found if head.label == name]
        for seq in range(1, own[-1].upto_seq + 1):
            head, index = log.head_of(name, StreamSeq(seq))
            assert head == found[index] == next(head for head in own if head.upto_seq >= seq)
            with pytest.raises(AbsentError, match=f"that covers entry {seq}"):
                log.head_of(name, StreamSeq(seq), index)
        with pytest.raises(AbsentError, match="that covers entry"):
            log.head_of(name, StreamSeq(own[-1].upto_seq + 1))
    with pytest.raises(AbsentError):
        log.head_of(label("nobody wrote here"), None)


def test_heads_are_in_order_of_labels(grown: Store) -> None:
    listed = [head.label for head in grown.hub_log.heads()]
    assert listed == sorted(set(listed))


def test_readers_next_to_the_writer_see_whole_extensions(make_store: MakeStore) -> None:
    store = make_store(background=True)
    shown: dict[int, bytes] = {}
    failures: list[BaseException] = []
    over = threading.Event()

    def read() -> None:
        try:
            while not over.is_set():
                signed = store.hub_log.checkpoint
                if signed is None:
                    continue
                size, root = signed.head.size, signed.head.root
                assert store.hub_log.root_at(size) == root
                index = size * 7 // 11
                width = size % 256 or 256
                entries = decode_bundle(store.hub_log.bundle(Tile(ENTRIES, (size - 1) // 256, width)))
                last = tree.leaf_hash(entries[-1])
                tree.verify_inclusion(
                    last, size - 1, size, store.hub_log.prove_inclusion(size - 1, size), root
                )
                tree.verify_consistency(
                    index,
                    size,
                    store.hub_log.prove_consistency(index, size),
                    store.hub_log.root_at(index),
                    root,
                )
                head = LabelHead.decode(entries[-1])
                assert store.hub_log.head_of(head.label, head.upto_seq, size) == (head, size - 1)
        except BaseException as exc:  # noqa: BLE001 - for the test to raise
            failures.append(exc)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for number in range(60):
            for signed in grow(store, 1, start=number):
                assert shown.setdefault(signed.head.size, signed.head.root) == signed.head.root
            if number % 10 == 0:
                store.settle()
    finally:
        over.set()
        for reader in readers:
            reader.join()
    assert not failures, failures[0]


# --- publishing


def test_a_published_hub_checkpoint_is_served_after_reopening(make_store: MakeStore) -> None:
    store = make_store()
    first, second = grow(store, 2)
    assert store.hub_log.published is None
    store.publish(first)
    assert store.hub_log.published == first
    store.publish(second)
    drop(store)  # the extensions were never applied
    assert make_store().hub_log.published == second


def test_only_a_hub_checkpoint_of_this_hub_log_that_is_no_older_is_published(store: Store) -> None:
    first, second = grow(store, 2)
    batch = store.batch(at(9))
    add(batch, ORDERS)
    early = batch.hub_checkpoint(ORIGIN)
    assert early is not None
    head = TreeHead(ORIGIN, second.head.size, bytes(32))
    other = SignedHead(head, Note(head.text, (sign_note(HUB_KEY, ORIGIN, head.text),)))
    for signed in (early, other):
        with pytest.raises(StorageError, match="is not one of this hub log"):
            store.publish(signed)
    store.publish(second)
    with pytest.raises(StorageError, match="cannot be published after"):
        store.publish(first)
    assert store.hub_log.published == second
    store.commit(batch)
    store.publish(early)


# --- what it must not touch, and what it must not cost


def test_the_cadence_of_hub_checkpoints_leaves_no_trace_in_the_log(make_store: MakeStore) -> None:
    stores = [make_store(name) for name in ("often", "seldom", "never")]
    for number in range(40):
        for store, every in zip(stores, (1, 13, 1_000), strict=True):
            batch = store.batch(at(number))
            for step in range(1 + number % 4):
                add(batch, MANY[(number + step) % 5])
            if number % every == every - 1:
                batch.hub_checkpoint(ORIGIN)
            store.commit(batch)
            store.apply()
    often, seldom, never = (files_of(store.layout.root, "log") for store in stores)
    assert often == seldom == never
    sizes = [store.hub_log.size for store in stores]
    assert sizes[0] > sizes[1] > sizes[2] == 0


LABELS = 100_000 if THOROUGH else 20_000


def fill_index(index: Index, store: Store) -> None:
    """Add labels of one entry each to an index, without files; all of them have moved."""
    cursor = LabelCursor.fresh(ORDERS, LabelNo(0))
    cursor.log.append(LeafHash(bytes(32)))
    cursor.hashes.append(LeafHash(bytes(32)))
    rest = cursor.pack()[Label.SIZE :]
    labels = [Label(H(number.to_bytes(4, "big"))) for number in range(LABELS)]

    def write(txn: Transaction) -> None:
        tables.mark_index(txn, store.identity.hub_id)
        tables.LABELS.put_many(txn, [(name, LabelNo(number)) for number, name in enumerate(labels)])
        tables.HEADS.put_many(txn, [(LabelNo(number), name + rest) for number, name in enumerate(labels)])
        tables.HUB_MOVED.put_many(txn, [(name, b"") for name in labels])
        tables.write_number(txn, tables.NEXT_LABEL, LABELS)

    index.write(write)


def test_an_extension_costs_what_moved_and_not_how_many_labels_there_are(
    store: Store, tmp_path: Path
) -> None:
    index = Index(tmp_path / "many", sync=False)
    fill_index(index, store)
    ledger = Ledger(index, store.registry)
    signer = HubKeys(store.identity, {store.identity.newest.key_id: HUB_KEY})

    def extend(*moved: Label) -> tuple[float, int]:
        batch = Batch(ledger, signer, lambda _label: None, BORN)
        for name in moved:
            add(batch, name)
        began = time.perf_counter()
        signed = batch.hub_checkpoint(ORIGIN)
        elapsed = time.perf_counter() - began
        assert signed is not None
        ledger.adopt(batch.finish(ledger.adopted + 1))
        return elapsed, len(batch.items[-1].data)

    everything = extend()
    one = min(extend(ORDERS) for _ in range(5))
    index.close()
    assert ledger.hub_log.size == LABELS + 5
    assert everything[1] > 70 * LABELS
    assert one[1] < 1_000, "bytes in the journal"
    assert one[0] < everything[0] / 50, "seconds"


def test_opening_reads_no_entry_of_the_hub_log(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store()
    grow(store, 40)
    store.apply()
    grow(store, 3, start=40)
    size = store.hub_log.size
    drop(store)
    monkeypatch.setattr(hub_log_view, "read_part", no_reading)
    assert make_store().hub_log.size == size


def no_reading(*_: object) -> bytes:
    raise AssertionError("an entry of the hub log was read")


def test_a_hub_log_of_every_size_is_clean(make_store: MakeStore) -> None:
    store = make_store()
    for number in range(20):
        grow(store, 1, start=number)
        if number % 3:
            store.apply()
        drop(store)
        with index_read_here():
            report = fsck(store.layout.root, processes=1)
        assert report.ok, str(report)
        store = make_store()
    assert report.counters.hub_log_entries > 40
