"""What must never happen to a data directory, each shown by the attempt that once did it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from veen_core.ids import StreamSeq
from veen_storage.errors import AbsentError, DamageError, MismatchError, PrunedError, StorageError
from veen_storage.fsck import fsck
from veen_storage.ledger import Prune
from veen_storage.retention import Rule, due
from veen_storage.store import Store, create

from .conftest import MakeStore
from .sample import (
    BORN,
    CONTROL,
    INVOICES,
    ORDERS,
    add,
    at,
    authorize,
    label,
    send,
    send_each,
    signing_key,
    token,
)


def seq(number: int) -> StreamSeq:
    return StreamSeq(number)


def test_an_index_older_than_the_log_is_refused(make_store: MakeStore, tmp_path: Path) -> None:
    """Else the next entry would take the place of one that was acknowledged."""
    store = make_store()
    root = store.layout.root
    send(store, ORDERS, 3)
    store.apply()
    store.close()
    Store(root).close()
    shutil.copy(root / "index" / "data.mdb", tmp_path / "old.mdb")
    with Store(root) as again:
        send(again, ORDERS, 3)
    Store(root).close()
    shutil.copy(tmp_path / "old.mdb", root / "index" / "data.mdb")
    with pytest.raises(DamageError, match=r"index/data\.mdb: is older than the log.*repair"):
        Store(root)


def test_another_hubs_journal_is_refused(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    send(store, ORDERS, 2)
    other = tmp_path / "other"
    create(other, signing_key("another hub"), BORN)
    for segment in store.layout.journal.glob("journal-*.wal"):
        shutil.copy(segment, other / "journal")
    with pytest.raises(MismatchError, match="another hub's files were mixed in"):
        Store(other)


def test_a_batch_is_committed_once_and_only_onto_the_state_it_was_made_from(store: Store) -> None:
    first, second = store.batch(BORN), store.batch(BORN)
    add(first, ORDERS)
    add(second, ORDERS, body=b"another")
    store.commit(first)
    with pytest.raises(StorageError, match="made before another one was committed"):
        store.commit(second)
    with pytest.raises(StorageError, match="made before another one was committed"):
        store.commit(first)
    assert [e.stream_seq for e in store.read.entries(ORDERS, seq(1), 10)] == [1]


@pytest.mark.parametrize("decision", ["no such range", "unknown label", "control label"])
def test_a_prune_that_could_not_be_applied_is_not_journaled(store: Store, decision: str) -> None:
    send_each(store, ORDERS, 20)
    authorize(store, token())
    store.apply()
    of, start, end = {
        "no such range": (ORDERS, 2, 5),
        "unknown label": (INVOICES, 1, 8),
        "control label": (CONTROL, 1, 1),
    }[decision]
    batch = store.batch(at(60))
    with pytest.raises(AbsentError, match="no sealed chunk"):
        batch.prune(Prune(label=of, start_seq=seq(start), end_seq=seq(end), pruned_at=at(60)))
    assert not batch.items


def test_an_anchor_needs_its_checkpoint(store: Store) -> None:
    send(store, ORDERS, 2)
    with pytest.raises(AbsentError, match="no checkpoint at 2"):
        store.batch(BORN).anchor(ORDERS, seq(2), b"ref")
    with pytest.raises(AbsentError, match="no checkpoint"):
        store.batch(BORN).anchor(INVOICES, seq(1), b"ref")


def test_a_decision_made_twice_before_it_is_applied_leaves_one_tombstone(store: Store) -> None:
    send_each(store, ORDERS, 20)
    store.apply()
    for second in (60, 61):
        batch = store.batch(at(second))
        for decision in due(store.index, ORDERS, Rule(max_age_sec=1), at(second)):
            batch.prune(decision)
        store.commit(batch)
    store.apply()
    with pytest.raises(PrunedError):
        store.read.entry(ORDERS, seq(1))
    root = store.layout.root
    store.close()
    assert fsck(root, processes=1).ok


def test_every_label_is_listed_while_they_move_from_the_tail_to_the_index(store: Store) -> None:
    names = [label(f"stream {n}") for n in range(60)]
    for name in names:
        send(store, name, 1)
    waiting = store._tail.labels

    def labels_then_apply() -> list[object]:
        found = waiting()
        store.apply()
        return found

    store._tail.labels = labels_then_apply  # type: ignore[method-assign]
    assert list(store.read.all_labels()) == sorted(names)


def test_a_cut_off_index_is_refused_and_does_not_end_the_process(make_store: MakeStore) -> None:
    store = make_store()
    send_each(store, ORDERS, 40)
    store.apply()
    root = store.layout.root
    store.close()
    index = root / "index" / "data.mdb"
    index.write_bytes(index.read_bytes()[: index.stat().st_size // 2 // 4096 * 4096])
    with pytest.raises(DamageError, match=r"data\.mdb"):
        Store(root)


def test_an_interrupt_in_the_middle_of_a_commit_stops_all_others(make_store: MakeStore) -> None:
    store = make_store()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    store._files.write, write = interrupted, store._files.write  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        send(store, ORDERS, 1)
    store._files.write = write  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="reopen"):
        send(store, ORDERS, 1)
