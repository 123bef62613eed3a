"""Another hub's files mixed in: refused at open, or when they are first touched, to read or to write."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from veen_core.ids import Label, StreamSeq
from veen_storage.chunks import chunk_origin_check
from veen_storage.chunks.retention import PruneRule
from veen_storage.errors import DamageError, MismatchError
from veen_storage.fsck import fsck
from veen_storage.fsck.repair import RefusedError, repair
from veen_storage.opening import open_checks
from veen_storage.store import Store

from .conftest import MakeStore
from .sample import BORN, ORDERS, add, at, label, prune, send, send_each, signing_key

FOREIGN = r"no key of the hub.*another hub's files were mixed in; move the file out .*`veen hub fsck`"


def seq(number: int) -> StreamSeq:
    return StreamSeq(number)


def labels(count: int) -> list[Label]:
    return sorted(label(f"stream {number}") for number in range(count))


def fill(make_store: MakeStore, name: str, of: list[Label]) -> Path:
    """A closed hub with two entries in each label; two hubs get the same messages, and so the same roots."""
    store = make_store(name, key=signing_key(name))
    for at_once in range(0, len(of), 50):
        batch = store.batch(BORN)
        for to in of[at_once : at_once + 50] * 2:
            add(batch, to)
        store.commit(batch)
    store.apply()
    store.close()
    return store.layout.root


def mix_in(make_store: MakeStore, ours: Path, to: Label) -> str:
    """Another hub's chunk of the label in place of this hub's own; its name."""
    theirs = fill(make_store, "theirs", [to])
    (chunk,) = (theirs / "log").glob("chunk-*.open")
    mixed = ours / "log" / chunk.name
    assert mixed.stat().st_size == chunk.stat().st_size
    shutil.copy(chunk, mixed)
    return chunk.name


@pytest.mark.parametrize("place", [0, 1, 137, 298, 299])
def test_one_foreign_file_among_three_hundred_labels_is_refused_at_open(
    make_store: MakeStore, place: int
) -> None:
    of = labels(300)
    ours = fill(make_store, "ours", of)
    name = mix_in(make_store, ours, of[place])
    with pytest.raises(MismatchError, match=f"{name}: .*{FOREIGN}"):
        make_store("ours")


@pytest.fixture
def beyond(make_store: MakeStore) -> tuple[Store, Label, str]:
    """An open hub of more labels than opening looks at, and one it did not, whose chunk is another hub's."""
    of = labels(open_checks.MAX_CHECKED_LABELS + 100)
    ours = fill(make_store, "ours", of)
    store = make_store("ours")
    with store.index.reading() as view:
        seen = [cursor.label for cursor in open_checks._newest(view)]
        again = [cursor.label for cursor in open_checks._newest(view)]
    assert seen == again
    assert open_checks.MAX_CHECKED_LABELS // 2 < len(set(seen)) == len(seen) <= open_checks.MAX_CHECKED_LABELS
    store.close()
    chosen = next(held for held in of if held not in seen)
    name = mix_in(make_store, ours, chosen)
    return make_store("ours"), chosen, name


def test_a_foreign_file_that_opening_did_not_check_is_never_read(beyond: tuple[Store, Label, str]) -> None:
    store, chosen, name = beyond
    for _again in range(2):
        with pytest.raises(MismatchError, match=f"{name}: .*{FOREIGN}"):
            store.read.entries(chosen, seq(1), 10)
        with pytest.raises(MismatchError, match=FOREIGN):
            store.read.receipt(chosen, seq(1))
        with pytest.raises(MismatchError, match=FOREIGN):
            store.read.proof(chosen, seq(1), seq(2))


def test_a_foreign_file_that_opening_did_not_check_is_never_appended_to(
    beyond: tuple[Store, Label, str],
) -> None:
    store, chosen, name = beyond
    before = (store.layout.log / name).read_bytes()
    for _again in range(2):
        batch = store.batch(at(1))
        with pytest.raises(MismatchError, match=f"{name}: .*{FOREIGN}"):
            add(batch, chosen)
        with pytest.raises(MismatchError, match=FOREIGN):
            batch.checkpoint(chosen)
    store.apply()
    assert (store.layout.log / name).read_bytes() == before
    send(store, label("another"), now=at(1))  # nothing was acknowledged, nothing is poisoned
    store.apply()


def test_a_foreign_file_that_recovery_would_append_to_is_refused_at_open(make_store: MakeStore) -> None:
    of = labels(open_checks.MAX_CHECKED_LABELS + 100)
    ours = fill(make_store, "ours", of)
    store = make_store("ours")
    with store.index.reading() as view:
        seen = {cursor.label for cursor in open_checks._newest(view)}
    chosen = next(held for held in of if held not in seen)
    send(store, chosen, now=at(1))
    store.close()
    name = mix_in(make_store, ours, chosen)
    with pytest.raises(MismatchError, match=f"{name}: .*{FOREIGN}"):
        make_store("ours")


@pytest.fixture
def sealed(make_store: MakeStore) -> tuple[Store, Path]:
    """Two open hubs with the same twenty messages, hence the same roots: chunks 1-8, 9-16, 17-20."""
    stores = [make_store(name, key=signing_key(name)) for name in ("ours", "theirs")]
    for store in stores:
        send_each(store, ORDERS, 20)
        store.apply()
    ours, theirs = (store.layout.chunk(ORDERS, seq(1), seq(8)) for store in stores)
    shutil.copy(theirs, ours)
    stores[1].close()
    return stores[0], ours


def test_a_foreign_sealed_chunk_is_never_read(sealed: tuple[Store, Path]) -> None:
    store, chunk = sealed
    with pytest.raises(MismatchError, match=f"{chunk.name}: .*{FOREIGN}"):
        store.read.entries(ORDERS, seq(3), 2)
    with pytest.raises(MismatchError, match=FOREIGN):
        store.read.entries(ORDERS, seq(1), 20)
    assert len(store.read.entries(ORDERS, seq(9), 20)) == 12


def test_a_foreign_sealed_chunk_is_found_by_both_levels_and_not_repaired(
    sealed: tuple[Store, Path],
) -> None:
    store, chunk = sealed
    root = store.layout.root
    store.close()
    full, quick = fsck(root, processes=1), fsck(root, level="quick", processes=1)
    assert [f.seq for f in full.faults if f.file == chunk.name and "hub_sig" in f.what] == list(range(1, 9))
    assert [f.seq for f in quick.faults if f.file == chunk.name and "hub_sig" in f.what] == [8]
    with pytest.raises(RefusedError, match=f"{chunk.name}.*hub_sig"):
        repair(root)


def test_a_foreign_chunk_is_not_pruned(sealed: tuple[Store, Path]) -> None:
    store, chunk = sealed
    prune(store, ORDERS, PruneRule(max_age_sec=0), at(1_000))
    assert chunk.exists()
    assert not store.layout.pruned(ORDERS, seq(1), seq(8)).exists()
    assert [notice.partition(": retention")[0] for notice in store.notices] == [
        f"{chunk.name}: is not the chunk that the manifest records"
    ]
    assert store.layout.pruned(ORDERS, seq(9), seq(16)).exists()


def test_another_hubs_pruned_chunk_is_never_read(make_store: MakeStore) -> None:
    stores = [make_store(name, key=signing_key(name)) for name in ("ours", "theirs")]
    for store in stores:
        send_each(store, ORDERS, 20)
        prune(store, ORDERS, PruneRule(max_age_sec=0), at(1_000))
    ours, theirs = (store.layout.pruned(ORDERS, seq(9), seq(16)) for store in stores)
    shutil.copy(theirs, ours)
    with pytest.raises(MismatchError, match=f"{ours.name}: .*{FOREIGN}"):
        stores[0].read.receipt(ORDERS, seq(10))
    assert stores[0].read.receipt(ORDERS, seq(1)).stream_seq == 1


def test_a_damaged_last_entry_does_not_hide_those_before_it(sealed: tuple[Store, Path]) -> None:
    store, _chunk = sealed
    damaged = store.layout.chunk(ORDERS, seq(9), seq(16))
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    assert len(store.read.entries(ORDERS, seq(9), 7)) == 7
    with pytest.raises(DamageError, match=damaged.name):
        store.read.receipt(ORDERS, seq(16))


def test_files_are_checked_once_and_the_cache_is_bounded(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_origin_check, "MAX_CHECKED_FILES", 2)
    send_each(store, ORDERS, 30)
    store.apply()
    judged = store.read._origin
    asked: list[str] = []
    check = judged._check_signed

    def noted(name: str, receipt: object) -> None:
        asked.append(name)
        check(name, receipt)  # type: ignore[arg-type]

    monkeypatch.setattr(judged, "_check_signed", noted)
    for _again in range(3):
        store.read.entries(ORDERS, seq(1), 4)
    assert len(asked) == 1
    store.read.entries(ORDERS, seq(1), 30)
    assert len(asked) == 4
    assert len(judged._files) <= 2
