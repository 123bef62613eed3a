"""What must never happen to a data directory, each shown by the attempt that once did it."""

from __future__ import annotations

import dataclasses
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from veen_core.hashing import H
from veen_core.ids import Coid, Label, MmrRoot, StreamSeq
from veen_core.profile import Profile
from veen_core.receipt import sign_receipt
from veen_storage import store as store_module
from veen_storage.chunks.retention import PruneRule, due
from veen_storage.commit.changes import Prune
from veen_storage.commit.cursor_cache import MAX_CACHED_CURSORS, CursorCache
from veen_storage.commit.journal import ENTRY, Item, read_segment
from veen_storage.disk.hub_keys import NextIdentity
from veen_storage.errors import (
    AbsentError,
    ClosedError,
    DamageError,
    MismatchError,
    PoisonedError,
    PrunedError,
    StorageError,
)
from veen_storage.fsck import fsck
from veen_storage.fsck.repair import RefusedError, repair
from veen_storage.store import Store, create

from .conftest import MakeStore
from .oracle import drop
from .sample import (
    BORN,
    CONTROL,
    HUB_KEY,
    INVOICES,
    ORDERS,
    add,
    at,
    authorize,
    checkpoint,
    label,
    prune,
    send,
    send_each,
    signing_key,
    token,
)
from .scripted_run import short_segments


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


def foreign(make_store: MakeStore) -> tuple[Path, Path]:
    """Two hubs' directories with the same labels, each with five entries in its log."""
    roots = []
    for name in ("hub/0", "hub/1"):
        store = make_store(name.replace("/", "-"), key=signing_key(name))
        send(store, ORDERS, 5)
        store.apply()
        store.close()
        Store(store.layout.root).close()
        roots.append(store.layout.root)
    return roots[0], roots[1]


def test_another_hubs_log_is_refused_at_open_by_repair_and_by_fsck(make_store: MakeStore) -> None:
    ours, theirs = foreign(make_store)
    name = next((theirs / "log").glob("*.open")).name
    shutil.copy(theirs / "log" / name, ours / "log" / name)
    with pytest.raises(MismatchError, match=f"{name}.*another hub's files were mixed in"):
        Store(ours)
    assert any(name in fault.file and "hub_sig" in fault.what for fault in fsck(ours, processes=1).faults)
    with pytest.raises(RefusedError, match=f"{name}.*hub_sig"):
        repair(ours)


def test_an_older_log_is_refused_at_open(make_store: MakeStore, tmp_path: Path) -> None:
    ours, _theirs = foreign(make_store)
    shutil.copytree(ours / "log", tmp_path / "backup")
    with Store(ours) as store:
        send(store, ORDERS, 1)
    Store(ours).close()
    shutil.rmtree(ours / "log")
    shutil.copytree(tmp_path / "backup", ours / "log")
    with pytest.raises(DamageError, match="chunk-"):
        Store(ours)


def test_a_batch_is_committed_once_and_only_onto_the_state_it_was_made_from(store: Store) -> None:
    first, second = store.batch(BORN), store.batch(BORN)
    add(first, ORDERS)
    add(second, ORDERS, body=b"another")
    store.commit(first)
    with pytest.raises(StorageError, match="another batch was committed after"):
        store.commit(second)
    with pytest.raises(StorageError, match="another batch was committed after"):
        store.commit(first)
    assert [e.stream_seq for e in store.read.entries(ORDERS, seq(1), 10)] == [1]


@pytest.mark.parametrize("decision", ["no such range", "unknown label", "control label"])
def test_a_prune_that_cannot_be_applied_is_not_journaled(store: Store, decision: str) -> None:
    send_each(store, ORDERS, 20)
    authorize(store, token())
    store.apply()
    of, start, end = {
        "no such range": (ORDERS, 2, 5),
        "unknown label": (INVOICES, 1, 8),
        "control label": (CONTROL, 1, 1),
    }[decision]
    batch = store.batch(at(60))
    with pytest.raises(AbsentError, match="not one sealed chunk"):
        batch.prune(Prune(label=of, start_seq=seq(start), end_seq=seq(end), pruned_at=at(60)))
    assert not batch.items


def test_an_anchor_needs_its_checkpoint(store: Store) -> None:
    send(store, ORDERS, 2)
    with pytest.raises(AbsentError, match="no checkpoint at 2"):
        store.batch(BORN).anchor(ORDERS, seq(2), b"ref")
    with pytest.raises(AbsentError, match="no checkpoint"):
        store.batch(BORN).anchor(INVOICES, seq(1), b"ref")
    checkpoint(store, ORDERS)
    for _ in range(2):  # while it waits, and when it is applied
        with pytest.raises(AbsentError, match="no checkpoint at 1"):
            store.batch(BORN).anchor(ORDERS, seq(1), b"ref")
        store.batch(BORN).anchor(ORDERS, seq(2), b"ref")
        store.apply()
    batch = store.batch(BORN)
    add(batch, ORDERS)
    batch.checkpoint(ORDERS)
    batch.anchor(ORDERS, seq(3), b"ref")
    with pytest.raises(AbsentError, match="no checkpoint at 3"):
        store.batch(BORN).anchor(ORDERS, seq(3), b"ref")


def test_a_decision_made_twice_before_it_is_applied_leaves_one_tombstone(store: Store) -> None:
    send_each(store, ORDERS, 20)
    store.apply()
    for second in (60, 61):
        batch = store.batch(at(second))
        for decision in due(store.index, ORDERS, PruneRule(max_age_sec=1), at(second)):
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


def test_a_truncated_index_is_refused_and_does_not_kill_the_process(make_store: MakeStore) -> None:
    store = make_store()
    send_each(store, ORDERS, 40)
    store.apply()
    root = store.layout.root
    store.close()
    index = root / "index" / "data.mdb"
    index.write_bytes(index.read_bytes()[: index.stat().st_size // 2 // 4096 * 4096])
    with pytest.raises(DamageError, match=r"data\.mdb"):
        Store(root)


def test_an_interrupt_in_the_middle_of_a_commit_poisons_the_journal(make_store: MakeStore) -> None:
    store = make_store()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    store._files.write, write = interrupted, store._files.write  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        send(store, ORDERS, 1)
    store._files.write = write  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="reopen"):
        send(store, ORDERS, 1)


def test_a_batch_that_memory_does_not_adopt_poisons_the_journal(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is durable: the next one would get the same places."""
    store = make_store()

    def out_of_memory(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(store._ledger, "adopt", out_of_memory)
        with pytest.raises(MemoryError):
            send(store, ORDERS, 1)
    with pytest.raises(PoisonedError, match="reopen"):
        send(store, ORDERS, 1)
    store.close()
    assert make_store().read.head(ORDERS) is not None


# --- reads see all that is durable


def without_checkpoint(store: Store) -> list[Label]:
    return [each.label for each in store.read.label_progress() if each.entries > each.checkpointed]


def without_anchor(store: Store) -> list[Label]:
    return [each.label for each in store.read.label_progress() if each.checkpointed > each.anchored]


def test_checkpoints_and_anchors_are_visible_before_they_are_applied(store: Store) -> None:
    send(store, ORDERS, 3)
    store.apply()
    assert without_checkpoint(store) == [ORDERS]
    batch = store.batch(at(1))
    made = batch.checkpoint(ORDERS)
    assert made is not None
    store.commit(batch)
    assert without_checkpoint(store) == []
    assert without_anchor(store) == [ORDERS]
    assert store.read.anchored_upto(ORDERS) == 0
    assert store.read.checkpoints_by_epoch(0, 10**9, 10) == [made]
    for reference in (b"first", b"second"):
        batch = store.batch(at(2))
        batch.anchor(ORDERS, seq(3), reference)
        store.commit(batch)
        assert store.read.anchor(ORDERS, seq(3)) == reference
    assert without_anchor(store) == []
    assert store.read.anchored_upto(ORDERS) == 3
    send(store, ORDERS, 1)
    assert without_checkpoint(store) == [ORDERS]
    store.apply()
    assert without_checkpoint(store) == [ORDERS]
    assert store.read.anchor(ORDERS, seq(3)) == b"second"
    assert store.read.anchored_upto(ORDERS) == 3
    assert store.read.checkpoints_by_epoch(0, 10**9, 10) == [made]
    assert not store._tail.labels()


def test_checkpoints_are_ordered_by_epoch_across_tail_and_index(make_store: MakeStore) -> None:
    store = make_store(profile=Profile(epoch_sec=100, pad_block=0))
    for second, name in ((0, ORDERS), (0, INVOICES), (200, ORDERS), (300, INVOICES)):
        send(store, name, 1, now=at(second))
        checkpoint(store, name, at(second))
        if second == 200:
            store.apply()
    found = store.read.checkpoints_by_epoch(0, 10**9, 10)
    places = [(made.label_curr, made.upto_seq) for made in found]
    assert places == [(ORDERS, 1), (INVOICES, 1), (ORDERS, 2), (INVOICES, 2)]
    assert store.read.checkpoints_by_epoch(0, 10**9, 3) == found[:3]
    assert store.read.checkpoints_by_epoch(found[3].epoch, 10**9, 3) == found[3:]
    for at_, made in enumerate(found):  # page by page, wherever the last one of a page lies
        after = (made.label_curr, made.upto_seq)
        assert store.read.checkpoints_by_epoch(made.epoch, 10**9, 10, after) == found[at_ + 1 :]
    with pytest.raises(AbsentError):
        store.read.checkpoints_by_epoch(0, 10**9, 10, (label("nowhere"), seq(1)))


def test_reading_a_closed_directory_raises_closed(make_store: MakeStore) -> None:
    store = make_store()
    send(store, ORDERS, 3)
    store.apply()
    store.close()
    for read in (
        lambda: store.read.head(ORDERS),
        lambda: store.read.receipt(ORDERS, seq(1)),
        store.read.labels,
        store.tokens,
        store.check_access,
    ):
        with pytest.raises(ClosedError, match="is closed; open it again"):
            read()


def test_closing_waits_for_open_read_transactions(store: Store) -> None:
    send(store, ORDERS, 3)
    store.apply()
    closing = threading.Thread(target=store.close)
    with store.index.reading() as view:
        closing.start()
        with store.index._gate:
            assert store.index._gate.wait_for(lambda: store.index._closed, 30)
        assert view.get("labels", ORDERS) is not None
    closing.join(30)
    assert not closing.is_alive()


# --- attachments


def test_a_damaged_attachment_is_replaced_by_putting_it_again(store: Store) -> None:
    coid = Coid(H(b"content"))
    assert store.attachments.put(coid, [b"content"])
    store.layout.attachment(coid).write_bytes(b"c0ntent")
    with pytest.raises(DamageError, match="upload it again"):
        list(store.attachments.get(coid))
    assert store.attachments.put(coid, [b"con", b"tent"])
    assert b"".join(store.attachments.get(coid)) == b"content"
    assert not store.attachments.put(coid, [b"content"])


def test_stray_files_among_attachments_are_not_attachments(store: Store) -> None:
    coid = Coid(H(b"content"))
    store.attachments.put(coid, [b"content"])
    folder = store.layout.attachment(coid).parent
    for name in ("notes.txt", f"{coid.hex()}.1-1.tmp", coid.hex()[:-1]):
        (folder / name).touch()
    assert list(store.attachments.coids()) == [coid]


# --- what is gone


def test_a_missing_journal_segment_is_damage(make_store: MakeStore) -> None:
    """A killed hub had acknowledged what was in it, and nothing else knows of it."""
    store = make_store()
    send(store, ORDERS, 2)
    drop(store)
    (segment,) = store.layout.journal.glob("*.wal")
    segment.unlink()
    with pytest.raises(DamageError, match=rf"{segment.name}: is missing.*put the segment back"):
        Store(store.layout.root)
    assert [fault.file for fault in fsck(store.layout.root, processes=1).faults] == [segment.name]
    notes = repair(store.layout.root).notes
    assert any(segment.name in note and "are lost" in note for note in notes)
    with Store(store.layout.root) as again:
        assert again.read.head(ORDERS) is None
        send(again, ORDERS, 1)
    Store(store.layout.root).close()


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
def test_a_journal_whose_files_were_deleted_is_not_taken_for_a_new_one(
    make_store: MakeStore, applied: bool
) -> None:
    """``rm journal/*`` after a kill: to open it would give places away that have receipts."""
    store = make_store()
    if applied:
        send(store, ORDERS, 2)
        store.apply()
    send(store, ORDERS, 2)
    drop(store)
    for path in store.layout.journal.iterdir():
        path.unlink()
    with pytest.raises(DamageError, match=r"journal/applied: is missing.*put journal/ back"):
        Store(store.layout.root)
    (fault,) = fsck(store.layout.root, processes=1).faults
    assert (fault.file, fault.remedy[:17]) == ("journal/applied", "put journal/ back")
    assert any("journal/applied" in note and "are lost" in note for note in repair(store.layout.root).notes)
    assert fsck(store.layout.root, processes=1).ok
    Store(store.layout.root).close()


def test_a_missing_last_segment_of_several_is_damage(make_store: MakeStore) -> None:
    store = make_store()
    with short_segments(1_000):
        send_each(store, ORDERS, 6)
    drop(store)
    newest = max(store.layout.journal.glob("*.wal"))
    newest.unlink()
    with pytest.raises(DamageError, match=newest.name):
        Store(store.layout.root)


@pytest.mark.parametrize("end", ["torn", "whole"])
def test_a_newest_segment_that_ends_before_the_last_applied_batch_is_damage_and_not_torn(
    make_store: MakeStore, end: str
) -> None:
    """What is applied was durable before: a journal that lacks it lost more than its last write."""
    store = make_store()
    send_each(store, ORDERS, 6)
    store.apply()
    send(store, ORDERS, 3)  # acknowledged, and only in what is cut off
    drop(store)
    (segment,) = store.layout.journal.glob("*.wal")
    content = segment.read_bytes()
    places = [offset for offset, _batch in read_segment(segment, last=True)]
    segment.write_bytes(content[: places[3] + (40 if end == "torn" else 0)])
    with pytest.raises(
        DamageError, match=rf"{segment.name}: ends after batch 3, but batch 6 was .*put the segment back"
    ):
        Store(store.layout.root)
    assert [fault.file for fault in fsck(store.layout.root, processes=1).faults] == [segment.name]
    notes = repair(store.layout.root).notes
    assert any("ends after batch 3" in note and "are lost" in note for note in notes)
    with Store(store.layout.root) as again:
        assert again.read.entry(ORDERS, StreamSeq(6))
        send(again, ORDERS, 1)
    assert fsck(store.layout.root, processes=1).ok


@pytest.mark.parametrize("name", ["log", "journal", "attachments", "index", "checkpoint-binding.cbor"])
def test_a_missing_folder_is_not_taken_for_an_empty_one(make_store: MakeStore, name: str) -> None:
    store = make_store()
    send(store, ORDERS, 2)
    store.apply()
    store.close()
    (store.layout.root / name).rename(store.layout.root.with_name("elsewhere"))
    with pytest.raises(DamageError, match=f"{name}: is missing"):
        Store(store.layout.root)


def test_a_dropped_last_batch_is_logged_and_in_the_notices(
    make_store: MakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing tells a write that never arrived from a disk that lost it: an operator may know more."""
    store = make_store()
    send(store, ORDERS, 1)
    send(store, ORDERS, 1, body=b"x" * 1_500)
    drop(store)
    path = next(store.layout.journal.glob("*.wal"))
    data = bytearray(path.read_bytes())
    data[1_536:2_048] = bytes(512)
    path.write_bytes(data)
    with Store(store.layout.root) as again:
        head = again.read.head(ORDERS)
        assert head is not None
        assert head.stream_seq == 1
        assert len(again.notices) == 1
        assert path.name in again.notices[0]
    assert path.name in caplog.text
    with Store(store.layout.root) as again:
        assert again.notices == []


def test_an_applier_that_does_not_keep_up_poisons_the_journal(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store()
    monkeypatch.setattr(store_module, "MAX_TAIL_BYTES", 0)
    monkeypatch.setattr(store_module, "APPLY_TIMEOUT_SEC", 0.01)
    send(store, ORDERS, 1)
    store._queue.thread = threading.current_thread()  # as if one were at work
    for _ in range(2):
        with pytest.raises(PoisonedError, match="has not caught up"):
            send(store, ORDERS, 1)
        assert store.poisoned is not None
    store._queue.thread = None


# --- what nothing else would notice


def test_a_journal_whose_roots_do_not_follow_is_refused(make_store: MakeStore) -> None:
    """Signed by the hub and whole, but not what follows from the log before it (I3)."""
    store = make_store()
    send(store, ORDERS, 2)
    store.apply()
    batch = store.batch(at(1))
    receipt = add(batch, ORDERS).entry.receipt
    wrong = sign_receipt(HUB_KEY, dataclasses.replace(receipt, mmr_root=MmrRoot(bytes(32))))
    entry = dataclasses.replace(batch.entries[0], receipt_bytes=wrong.encode())
    store._journal.append([Item(ENTRY, entry.encode())])
    drop(store)
    with pytest.raises(DamageError, match=r"entry 3 .*mmr_root does not follow.*I3"):
        Store(store.layout.root)
    assert any("I3" in fault.what for fault in fsck(store.layout.root, processes=1).faults)


def test_unapplied_cursors_stay_cached_and_others_are_evicted_oldest_first() -> None:
    cache = CursorCache[int, str]()
    for number in range(1, MAX_CACHED_CURSORS + 11):
        cache.put(number, "value", number)
    cache.shrink(0)
    assert cache.get(1) == "value"  # and now it is the youngest
    cache.shrink(3)
    assert [cache.get(n) is not None for n in (1, 2, 3, 4)] == [True, False, False, True]
    cache.shrink(MAX_CACHED_CURSORS)
    assert sum(cache.get(n) is not None for n in range(1, MAX_CACHED_CURSORS + 11)) == MAX_CACHED_CURSORS


@pytest.mark.parametrize("then", ["sealed", "pruned"])
def test_a_chunk_that_is_renamed_during_the_lookup_is_found(store: Store, then: str) -> None:
    receipts = send(store, ORDERS, 5)
    store.apply()
    locate = store.read._locate

    def locate_then_rename(*args: Any) -> Any:
        found = locate(*args)
        store.read._locate = locate  # type: ignore[method-assign]
        send(store, ORDERS, 15, now=at(1))
        store.apply()
        if then == "pruned":
            assert prune(store, ORDERS, PruneRule(max_age_sec=0), at(60))
        return found

    store.read._locate = locate_then_rename  # type: ignore[method-assign]
    assert store.read.receipt(ORDERS, seq(3)) == receipts[2]
    assert not store.layout.chunk(ORDERS, seq(1), None).exists()


def test_another_hubs_rotation_file_is_refused_and_named(make_store: MakeStore) -> None:
    store, other = make_store(), make_store("other", key=signing_key("other"))
    store.close()
    theirs = NextIdentity(identity=other.identity, signature=other.identity_signature)
    store.layout.identity_next.write_bytes(theirs.encode())
    with pytest.raises(MismatchError, match=r"hub-identity\.next: .*another hub's files were mixed in"):
        Store(store.layout.root)
    with pytest.raises(MismatchError, match=r"hub-identity\.next"):
        repair(store.layout.root)
    assert [fault.file for fault in fsck(store.layout.root, processes=1).faults] == ["hub-identity.next"]


def test_a_directory_that_cannot_be_locked_says_so(make_store: MakeStore) -> None:
    store = make_store()
    store.close()
    store.layout.lock.unlink()
    store.layout.lock.mkdir()  # any error of the system will do: read-only, not permitted
    with pytest.raises(StorageError, match=r"lock cannot be written .* needs write access"):
        Store(store.layout.root)
