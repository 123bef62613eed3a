"""fsck of a killed hub: can the next start apply every item that the journal holds?"""

from __future__ import annotations

import dataclasses
import shutil

import pytest

from veen_core.checkpoint import sign_checkpoint
from veen_core.ids import Epoch, Label, StreamSeq
from veen_storage.commit.changes import Anchor, Prune
from veen_storage.commit.journal import ANCHOR, CHECKPOINT, ENTRY, PRUNE, Item
from veen_storage.errors import SEGMENT_BACK, DamageError
from veen_storage.fsck import Report, fsck
from veen_storage.fsck.repair import repair
from veen_storage.store import Store

from .conftest import MakeStore
from .oracle import drop
from .sample import CONTROL, HUB_KEY, INVOICES, ORDERS, add, at, authorize, label, send, send_each, token
from .scripted_run import short_segments

NEWS = label("news")


def seq(number: int) -> StreamSeq:
    return StreamSeq(number)


def check_after_kill(store: Store) -> Report:
    drop(store)
    return fsck(store.layout.root, processes=1)


def entry_item(make_store: MakeStore, after: int) -> Item:
    """Return an entry that the hub would have signed after ``after`` other entries."""
    other = make_store("other")
    send(other, ORDERS, after)
    batch = other.batch(at(1))
    add(batch, ORDERS)
    batch.sign()
    return batch.items[-1]


@pytest.mark.parametrize("what", ["anchor", "unknown label", "prune", "control", "checkpoint", "entry"])
def test_an_item_that_could_not_be_applied_is_a_fault(make_store: MakeStore, what: str) -> None:
    store = make_store()
    send_each(store, ORDERS, 9)
    authorize(store, token())
    store.apply()
    third = make_store("third")
    send(third, INVOICES, 3)
    made = third.batch(at(1))
    made.checkpoint(INVOICES)
    items = {
        "anchor": Item(ANCHOR, Anchor(label=ORDERS, upto_seq=seq(5), anchor_ref=b"x").encode()),
        "unknown label": Item(ANCHOR, Anchor(label=NEWS, upto_seq=seq(5), anchor_ref=b"x").encode()),
        "prune": Item(PRUNE, Prune(label=ORDERS, start_seq=seq(1), end_seq=seq(7), pruned_at=at(1)).encode()),
        "control": Item(
            PRUNE, Prune(label=CONTROL, start_seq=seq(1), end_seq=seq(1), pruned_at=at(1)).encode()
        ),
        "checkpoint": next(item for item in made.items if item.kind == CHECKPOINT),
        "entry": entry_item(make_store, 20),
    }
    assert items["entry"].kind == ENTRY
    store._journal.append([items[what]])
    report = check_after_kill(store)
    assert not report.ok
    assert all(fault.file.endswith(".wal") for fault in report.faults), str(report)
    with pytest.raises(DamageError, match=r"journal batch|entry 21"):
        Store(store.layout.root, background=False)


@pytest.mark.parametrize("what", ["doubled", "wrong epoch"])
def test_a_pending_checkpoint_that_breaks_a_rule_is_a_fault(make_store: MakeStore, what: str) -> None:
    """Applied, it would be a fault of the log: core §4.4.1, H9."""
    store = make_store()
    send(store, ORDERS, 3)
    batch = store.batch(at(1))
    made = batch.checkpoint(ORDERS)
    assert made is not None
    if what == "doubled":
        store.commit(batch)
    else:
        made = sign_checkpoint(HUB_KEY, dataclasses.replace(made, epoch=Epoch(made.epoch + 1)))
    store._journal.append([Item(CHECKPOINT, made.encode())])
    report = check_after_kill(store)
    assert [fault.file[-4:] for fault in report.faults] == [".wal"], str(report)
    with pytest.raises(DamageError, match="journal batch"):
        Store(store.layout.root, background=False)


def test_a_pending_chunk_that_ends_without_a_checkpoint_is_a_fault(make_store: MakeStore) -> None:
    store = make_store()
    batch = store.batch(at(1))
    for _ in range(9):
        add(batch, ORDERS)
    batch.sign()
    assert CHECKPOINT in [item.kind for item in batch.items]
    store._journal.append([item for item in batch.items if item.kind != CHECKPOINT])
    report = check_after_kill(store)
    assert ["without a checkpoint" in fault.what for fault in report.faults] == [True], str(report)


def test_a_segment_that_begins_with_another_batch_than_its_name_says_is_a_fault(
    make_store: MakeStore,
) -> None:
    """Trimming goes by the names: a wrong one could remove batches that are not applied."""
    store = make_store()
    send(store, ORDERS, 3)
    store.apply()
    drop(store)
    (segment,) = store.layout.journal.glob("*.wal")
    segment.rename(segment.with_name("journal-00000000000000000000.wal"))
    report = fsck(store.layout.root, processes=1)
    assert "begins with batch 1, but its name says 0" in str(report)


def test_a_segment_that_was_truncated_after_it_was_applied_names_repair(make_store: MakeStore) -> None:
    store = make_store()
    send(store, ORDERS, 3)
    store.apply()
    drop(store)
    (segment,) = store.layout.journal.glob("*.wal")
    segment.write_bytes(b"")
    (fault,) = fsck(store.layout.root, processes=1).faults
    assert (fault.file, fault.remedy) == (segment.name, SEGMENT_BACK)
    repair(store.layout.root)
    assert fsck(store.layout.root, processes=1).ok


def test_pending_items_that_can_be_applied_are_no_faults(make_store: MakeStore) -> None:
    store = make_store()
    send_each(store, ORDERS, 20)
    store.apply()
    batch = store.batch(at(60))
    batch.prune(Prune(label=ORDERS, start_seq=seq(1), end_seq=seq(8), pruned_at=at(60)))
    add(batch, ORDERS)
    batch.checkpoint(ORDERS)
    batch.anchor(ORDERS, seq(21), b"ref")
    store.commit(batch)
    report = check_after_kill(store)
    assert report.ok, str(report)


def test_a_gap_among_applied_batches_is_no_fault(make_store: MakeStore) -> None:
    """Removals reach the disk in any order, so a power loss can bring back an older segment."""
    store = make_store()
    with short_segments(1_000):
        send_each(store, ORDERS, 3)
        first = min(store.layout.journal.glob("*.wal"))
        content = first.read_bytes()
        send_each(store, ORDERS, 9)
        store.apply()
    assert not first.exists()
    first.write_bytes(content)
    assert check_after_kill(store).ok
    Store(store.layout.root, background=False).close()


def cut_off_before_the_index(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the applier write its files, and fail where the index would commit to them."""

    def fail(*_: object) -> None:
        raise OSError(5, "cut off")

    monkeypatch.setattr(store._index, "write", fail)
    with pytest.raises(OSError, match="cut off"):
        store.apply()


@pytest.mark.parametrize("order", [(ORDERS, INVOICES, NEWS), (NEWS, INVOICES, ORDERS)], ids=["one", "other"])
def test_several_labels_checkpointed_in_one_batch_are_clean_after_a_kill(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, order: tuple[Label, ...]
) -> None:
    store = make_store()
    for name in (ORDERS, INVOICES, NEWS):
        send(store, name)
    store.apply()
    batch = store.batch(at(1))
    for name in order:
        batch.checkpoint(name)
    store.commit(batch)
    cut_off_before_the_index(store, monkeypatch)
    report = check_after_kill(store)
    assert report.ok, str(report)


def twice_pruned(store: Store, *, applied: int) -> None:
    """Journal two decisions to prune the same chunk, and apply the first or neither."""
    send_each(store, ORDERS, 20)
    store.apply()
    for second in (60, 61):
        batch = store.batch(at(second))
        batch.prune(Prune(label=ORDERS, start_seq=seq(1), end_seq=seq(8), pruned_at=at(second)))
        store.commit(batch)
        if second == 60 and applied:
            send(store, INVOICES, now=at(60))
            store.apply()
    send(store, INVOICES, now=at(62))


@pytest.mark.parametrize("applied", [0, 1], ids=["neither is applied", "the first is applied"])
def test_a_chunk_whose_prune_was_journaled_twice_is_clean_and_repairs(
    make_store: MakeStore, applied: int
) -> None:
    store = make_store()
    twice_pruned(store, applied=applied)
    report = check_after_kill(store)
    assert report.ok, str(report)
    shutil.rmtree(store.layout.index)
    repair(store.layout.root)
    with Store(store.layout.root, background=False) as opened:
        assert opened.read.head(INVOICES) is not None
    assert fsck(store.layout.root, processes=1).ok


def test_an_interrupted_prune_after_a_refused_one_is_clean(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first decision found the chunk damaged and was dropped; the file was restored before the second."""
    store = make_store()
    send_each(store, ORDERS, 20)
    store.apply()
    chunk = store.layout.chunk(ORDERS, seq(1), seq(8))
    content = chunk.read_bytes()
    chunk.write_bytes(content[:-1])
    for second in (60, 61):
        batch = store.batch(at(second))
        batch.prune(Prune(label=ORDERS, start_seq=seq(1), end_seq=seq(8), pruned_at=at(second)))
        store.commit(batch)
        if second == 60:
            store.apply()
            chunk.write_bytes(content)
    cut_off_before_the_index(store, monkeypatch)
    report = check_after_kill(store)
    assert report.ok, str(report)
