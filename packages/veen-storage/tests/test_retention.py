from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from veen_core import hub_identity
from veen_core.chunk import PrunedEntry
from veen_core.consistency import verify_consistency
from veen_core.ids import StreamSeq
from veen_core.proof import verify_inclusion
from veen_core.receipt import Receipt
from veen_storage.chunks.pruned_chunk import read_pruned_chunk
from veen_storage.chunks.retention import LONG_TERM, PrunePolicy, PruneRule, due
from veen_storage.errors import DamageError, PrunedError
from veen_storage.fsck import fsck
from veen_storage.fsck.repair import repair
from veen_storage.index.records import LABEL_SEQ, MANIFEST_KEY, U64, Segment
from veen_storage.store import Store

from .conftest import MakeStore
from .sample import (
    CONTROL,
    INVOICES,
    ORDERS,
    at,
    authorize,
    prune,
    send,
    send_each,
    signing_key,
    token,
    tree,
)


def seq(number: int) -> StreamSeq:
    return StreamSeq(number)


@pytest.fixture
def written(store: Store) -> Store:
    """Thirty entries a second apart: chunks 1-8, 9-16, 17-24 are sealed, 25-30 grow."""
    send_each(store, ORDERS, 30)
    store.apply()
    return store


def ranges(store: Store, rule: PruneRule, now: int) -> list[tuple[int, int]]:
    return [(p.start_seq, p.end_seq) for p in due(store.index, ORDERS, rule, at(now))]


def test_a_chunk_is_due_when_its_last_entry_is_too_old(written: Store) -> None:
    rule = PruneRule(max_age_sec=100)
    assert ranges(written, rule, 107) == []  # entry 8 came at second 7
    assert ranges(written, rule, 108) == [(1, 8)]
    assert ranges(written, rule, 1_000) == [(1, 8), (9, 16), (17, 24)]


def test_the_oldest_chunks_are_pruned_until_the_rest_fits(written: Store) -> None:
    size = written.layout.chunk(ORDERS, seq(1), seq(8)).stat().st_size
    assert ranges(written, PruneRule(max_bytes=10 * size), 50) == []
    assert ranges(written, PruneRule(max_bytes=2 * size + size // 2), 50) == [(1, 8)]
    assert ranges(written, PruneRule(max_bytes=0), 50) == [(1, 8), (9, 16), (17, 24)]


def test_long_term_keeps_everything(written: Store) -> None:
    assert ranges(written, LONG_TERM, 10**9) == []


def test_a_label_without_entries_has_nothing_due(written: Store) -> None:
    assert due(written.index, INVOICES, PruneRule(max_age_sec=0), at(10**6)) == []


def test_a_policy_has_a_rule_for_every_label(written: Store) -> None:
    policy = PrunePolicy(default=PruneRule(max_age_sec=1), labels={ORDERS: LONG_TERM})
    assert policy.rule(ORDERS) == LONG_TERM
    assert policy.rule(INVOICES) == PruneRule(max_age_sec=1)
    assert written.read.head(ORDERS) is not None


def test_the_growing_chunk_is_never_pruned(written: Store) -> None:
    prune(written, ORDERS, PruneRule(max_age_sec=0, max_bytes=0), at(10**6))
    assert [written.read.entry(ORDERS, seq(n)).stream_seq for n in range(25, 31)] == list(range(25, 31))


def test_payloads_that_are_too_old_but_cannot_be_pruned_are_logged(
    written: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Entries 25 to 30 are in the chunk that grows."""
    policy = PrunePolicy(default=PruneRule(max_age_sec=100))
    assert len(written.due(policy, at(129), keep=CONTROL)) == 3
    assert not caplog.messages
    written.due(policy, at(130), keep=CONTROL)
    written.due(PrunePolicy(default=PruneRule(max_bytes=1)), at(130), keep=CONTROL)
    (said,) = caplog.messages
    assert "1 labels keep payloads that are too old, because their chunk has not ended" in said


def test_reading_a_pruned_entry_raises_pruned_and_its_receipt_is_kept(written: Store) -> None:
    receipts = [written.read.receipt(ORDERS, seq(n)) for n in range(1, 31)]
    decisions = prune(written, ORDERS, PruneRule(max_age_sec=100), at(120))
    assert [(d.start_seq, d.end_seq) for d in decisions] == [(1, 8), (9, 16)]
    for n in range(1, 17):
        with pytest.raises(PrunedError, match=f"entry {n} .* pruned by retention"):
            written.read.entry(ORDERS, seq(n))
    assert [written.read.receipt(ORDERS, seq(n)) for n in range(1, 31)] == receipts
    for receipt in receipts:
        hub_identity.verify_receipt(written.identity, receipt)


def test_pages_cross_from_pruned_to_whole_entries(written: Store) -> None:
    prune(written, ORDERS, PruneRule(max_age_sec=100), at(110))
    found = written.read.entries(ORDERS, seq(5), 10)
    assert [entry.receipt.stream_seq for entry in found] == list(range(5, 15))
    assert [isinstance(entry, PrunedEntry) for entry in found] == [True] * 4 + [False] * 6


def test_proofs_across_pruned_entries_verify(written: Store) -> None:
    prune(written, ORDERS, PruneRule(max_age_sec=0), at(10**6))
    read = written.read
    for size in range(1, 31):
        root = read.root(ORDERS, seq(size))
        assert root == read.receipt(ORDERS, seq(size)).mmr_root
        for n in range(1, size + 1):
            leaf = read.receipt(ORDERS, seq(n)).leaf_hash
            verify_inclusion(read.proof(ORDERS, seq(n), seq(size)), root, seq(n), leaf, size)
        for smaller in range(1, size):
            proof = read.consistency(ORDERS, seq(smaller), seq(size))
            verify_consistency(proof, read.root(ORDERS, seq(smaller)), root)


def test_the_payload_is_gone_from_the_disk(written: Store) -> None:
    secret = written.read.entry(ORDERS, seq(3)).msg.ciphertext
    prune(written, ORDERS, PruneRule(max_age_sec=100), at(110))
    written.close()
    assert not written.layout.chunk(ORDERS, seq(1), seq(8)).exists()
    assert written.layout.pruned(ORDERS, seq(1), seq(8)).exists()
    assert written.layout.summary(ORDERS, seq(1), seq(8)).exists()
    assert not any(secret in content for content in tree(written.layout.log).values())


def test_tombstone_and_manifest_record_what_was_pruned_and_when(written: Store) -> None:
    prune(written, ORDERS, PruneRule(max_age_sec=100), at(110))
    with written.index.reading() as view:
        number = view.get("labels", ORDERS)
        assert number is not None
        ((key, value),) = view.scan("tombstones", number, number)
        assert LABEL_SEQ.unpack(key)[1] == 1
        assert value == U64.pack(8) + U64.pack(at(110))
        segments = [
            (MANIFEST_KEY.unpack(k)[2:], Segment.unpack(v)) for k, v in view.scan("manifest", number, number)
        ]
    assert [(place, segment.pruned) for place, segment in segments] == [
        ((1, 8), True),
        ((9, 16), False),
        ((17, 24), False),
    ]
    for (_start, end), segment in segments:
        assert segment.entry_count == 8
        assert segment.mmr_root_end == written.read.root(ORDERS, seq(end))


def test_a_pruned_chunk_is_not_due_again(written: Store) -> None:
    rule = PruneRule(max_age_sec=100)
    prune(written, ORDERS, rule, at(110))
    assert ranges(written, rule, 110) == []
    assert ranges(written, rule, 120) == [(9, 16)]


def test_pruning_survives_reopening_applied_or_not(make_store: MakeStore) -> None:
    store = make_store()
    send_each(store, ORDERS, 20)
    store.apply()
    for decision in due(store.index, ORDERS, PruneRule(max_age_sec=100), at(110)):
        batch = store.batch(at(110))
        batch.prune(decision)
        store.commit(batch)
    store.close()  # durable, not applied
    for _again in range(2):
        store = make_store()
        with pytest.raises(PrunedError):
            store.read.entry(ORDERS, seq(8))
        assert store.read.entry(ORDERS, seq(9)).stream_seq == 9
        assert send(store, ORDERS, now=at(200))
        store.close()


def test_the_same_decision_twice_is_one_pruning(written: Store) -> None:
    (decision,) = due(written.index, ORDERS, PruneRule(max_age_sec=100), at(110))
    for now in (110, 111):
        batch = written.batch(at(now))
        batch.prune(decision)
        written.commit(batch)
    written.apply()
    assert written.poisoned is None
    with pytest.raises(PrunedError):
        written.read.entry(ORDERS, seq(1))


def test_a_compressed_chunk_is_pruned_too(make_store: MakeStore) -> None:
    store = make_store(zstd_level=3)
    send_each(store, ORDERS, 20)
    prune(store, ORDERS, PruneRule(max_age_sec=100), at(110))
    with pytest.raises(PrunedError):
        store.read.entry(ORDERS, seq(8))
    assert store.read.entry(ORDERS, seq(9)).stream_seq == 9


def test_other_labels_keep_their_payloads(store: Store) -> None:
    for label in (ORDERS, INVOICES):
        send_each(store, label, 10)
    prune(store, ORDERS, PruneRule(max_age_sec=0), at(10**6))
    assert store.read.entry(INVOICES, seq(1)).stream_seq == 1


def test_the_control_label_is_never_pruned(store: Store) -> None:
    """Tokens have no ciphertext to drop, and issued_at is replayed from them (H5)."""
    for n in range(12):
        authorize(store, token(f"person {n}"))
    store.apply()
    assert prune(store, CONTROL, PruneRule(max_age_sec=0, max_bytes=0), at(10**6)) == []
    assert store.poisoned is None


def test_a_pruned_file_that_was_changed_is_damage(written: Store) -> None:
    prune(written, ORDERS, PruneRule(max_age_sec=100), at(110))
    path = written.layout.pruned(ORDERS, seq(1), seq(8))
    content = bytearray(path.read_bytes())
    content[-40] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(DamageError, match="pruned"):
        written.read.entries(ORDERS, seq(1), 8)


def test_a_receipt_of_a_pruned_chunk_is_found_without_reading_the_others(written: Store) -> None:
    """Two reads of the file, whatever it holds elsewhere."""
    prune(written, ORDERS, PruneRule(max_age_sec=0), at(60))
    path = written.layout.pruned(ORDERS, seq(9), seq(16))
    expected = [written.read.receipt(ORDERS, seq(n)) for n in range(9, 17)]
    data = bytearray(path.read_bytes())
    third = data.index(expected[2].hub_sig)
    data[: third - 300] = bytes(third - 300)  # head and first entries are gone
    path.write_bytes(data)
    assert written.read.receipt(ORDERS, seq(12)) == expected[3]
    assert [e.receipt for e in written.read.entries(ORDERS, seq(12), 3)] == expected[3:6]
    with pytest.raises(DamageError, match=path.name):
        written.read.receipt(ORDERS, seq(9))


def test_the_offsets_of_pruned_entries_are_checked(written: Store) -> None:
    prune(written, ORDERS, PruneRule(max_age_sec=0), at(60))
    path = written.layout.pruned(ORDERS, seq(1), seq(8))
    written.close()
    data = path.read_bytes()
    path.write_bytes(data[:-8] + data[-4:] + data[-4:])
    with pytest.raises(DamageError, match="table of its entries' offsets"):
        read_pruned_chunk(path)
    assert any("table of its entries' offsets" in str(fault) for fault in fsck(written.layout.root).faults)


# --- a chunk that is not the one that the manifest knows


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


WAYS: dict[str, Callable[[Path], None]] = {"flipped": _flip, "cut": _cut, "gone": Path.unlink}


@pytest.fixture(params=[*WAYS, "foreign"])
def damaged(request: pytest.FixtureRequest, written: Store, make_store: MakeStore) -> Store:
    """As ``written``, with chunk 9-16 of orders damaged, or another hub's."""
    path = written.layout.chunk(ORDERS, seq(9), seq(16))
    if request.param in WAYS:
        WAYS[request.param](path)
    else:
        theirs = make_store("theirs", key=signing_key("another hub"))
        send_each(theirs, ORDERS, 30)
        theirs.apply()
        shutil.copy(theirs.layout.log / path.name, path)
    return written


def _check_that_the_rest_is_pruned(store: Store, damage: Path) -> None:
    assert store.poisoned is None
    for n in (1, 8, 17, 24):
        with pytest.raises(PrunedError):
            store.read.entry(ORDERS, seq(n))
    assert not store.layout.pruned(ORDERS, seq(9), seq(16)).exists()
    assert send(store, INVOICES, now=at(2_000))
    store.apply()
    assert any(damage.name in notice and "clone" in notice for notice in store.notices)


def test_a_damaged_chunk_is_not_due_and_is_named(
    damaged: Store, make_store: MakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    path = damaged.layout.chunk(ORDERS, seq(9), seq(16))
    decisions = damaged.due(PrunePolicy(default=PruneRule(max_age_sec=0)), at(1_000), keep=CONTROL)
    assert [(d.start_seq, d.end_seq) for d in decisions] == [(1, 8), (17, 24)]
    assert [record.levelname for record in caplog.records if path.name in record.message] == ["WARNING"]
    batch = damaged.batch(at(1_000))
    for decision in decisions:
        batch.prune(decision)
    damaged.commit(batch)
    damaged.apply()
    _check_that_the_rest_is_pruned(damaged, path)
    damaged.close()
    again = make_store()
    assert send(again, INVOICES, now=at(3_000))


def test_a_chunk_damaged_after_the_decision_stops_nothing(damaged: Store, make_store: MakeStore) -> None:
    """The decision is in the journal, and neither applying nor opening stumbles over it."""
    path = damaged.layout.chunk(ORDERS, seq(9), seq(16))
    batch = damaged.batch(at(1_000))
    for decision in due(damaged.index, ORDERS, PruneRule(max_age_sec=0), at(1_000)):
        batch.prune(decision)
    damaged.commit(batch)
    damaged.close()  # durable, not applied
    store = make_store()
    _check_that_the_rest_is_pruned(store, path)
    store.close()
    store = make_store()
    assert send(store, INVOICES, now=at(3_000))
    store.close()
    faults = fsck(store.layout.root, processes=1).faults
    assert path.name in {fault.file for fault in faults}


def test_a_damaged_chunk_is_pruned_once_it_is_restored(written: Store, make_store: MakeStore) -> None:
    """Also if the index is lost before, and was made again from the log."""
    path = written.layout.chunk(ORDERS, seq(9), seq(16))
    good = path.read_bytes()
    _flip(path)
    rule = PruneRule(max_age_sec=0)
    prune(written, ORDERS, rule, at(1_000))
    send_each(written, ORDERS, 20, now=at(1_000))  # seals more, after the pruning that was not carried out
    written.apply()
    path.write_bytes(good)
    written.close()
    repair(written.layout.root)
    store = make_store()
    assert store.read.entry(ORDERS, seq(9)).stream_seq == 9
    assert (9, 16) in ranges(store, rule, 5_000)
    prune(store, ORDERS, rule, at(5_000))
    with pytest.raises(PrunedError):
        store.read.entry(ORDERS, seq(9))
    store.close()
    assert fsck(store.layout.root, processes=1).faults == []


# --- what stays, while the chunk is still there


def all_receipts(store: Store) -> list[Receipt]:
    return [store.read.receipt(ORDERS, seq(n)) for n in range(1, 31)]


def test_a_foreign_pruned_file_is_replaced(written: Store) -> None:
    receipts, path = all_receipts(written), written.layout.pruned(ORDERS, seq(1), seq(8))
    path.write_bytes(b"not what stays of the chunk")
    prune(written, ORDERS, PruneRule(max_age_sec=100), at(108))
    assert all_receipts(written) == receipts
    written.close()
    assert fsck(written.layout.root, processes=1).ok


@pytest.fixture
def unfinished(written: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Killed when the index knew that a chunk is pruned, and its file was not yet removed."""

    def die(*_: object) -> None:
        raise OSError(errno.EIO, "killed")

    with monkeypatch.context() as patched:
        patched.setattr(written._applier, "finish", die)
        with pytest.raises(OSError, match="killed"):
            prune(written, ORDERS, PruneRule(max_age_sec=100), at(108))
    written.close()
    assert written.layout.chunk(ORDERS, seq(1), seq(8)).exists()
    assert fsck(written.layout.root, processes=1).ok
    return written


@pytest.mark.parametrize("repaired", [True, False], ids=["repaired", "opened"])
@pytest.mark.parametrize("place", [0.3, 0.6, 0.99])
def test_a_damaged_pruned_file_is_replaced_while_the_chunk_exists(
    unfinished: Store, make_store: MakeStore, place: float, repaired: bool
) -> None:
    root, path = unfinished.layout.root, unfinished.layout.pruned(ORDERS, seq(1), seq(8))
    whole = path.read_bytes()
    at_byte = int(len(whole) * place)
    path.write_bytes(whole[:at_byte] + bytes([whole[at_byte] ^ 1]) + whole[at_byte + 1 :])
    (fault,) = fsck(root, processes=1).faults
    assert (fault.file, fault.offset) == (path.name, at_byte)
    if repaired:
        assert repair(root).rewritten == [path.name]
        assert fsck(root, processes=1).ok
    store = make_store()
    assert path.read_bytes() == whole
    assert not store.layout.chunk(ORDERS, seq(1), seq(8)).exists()
    assert [receipt.stream_seq for receipt in all_receipts(store)] == list(range(1, 31))


def test_a_damaged_chunk_may_be_removed_if_its_pruned_file_is_complete(
    unfinished: Store, make_store: MakeStore
) -> None:
    chunk, path = (
        place(ORDERS, seq(1), seq(8)) for place in (unfinished.layout.chunk, unfinished.layout.pruned)
    )
    _flip(chunk)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(DamageError, match=path.name):
        Store(unfinished.layout.root)
    assert chunk.exists()
    path.write_bytes(whole)
    assert len(all_receipts(make_store())) == 30
    assert not chunk.exists()
