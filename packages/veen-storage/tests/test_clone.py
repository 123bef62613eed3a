from __future__ import annotations

import dataclasses
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from veen_core import hub_identity, stream
from veen_core.chunk import PrunedEntry
from veen_core.entry import Entry
from veen_core.errors import SignatureError, VerificationError
from veen_core.hashing import H
from veen_core.ids import Coid, HubPk, Label, StreamSeq
from veen_core.limits import Limits
from veen_storage.chunks.retention import PruneRule
from veen_storage.copies import clone as cloning
from veen_storage.copies.clone import clone, copy_closed
from veen_storage.copies.consistent_prefix import Cut, take_cut
from veen_storage.copies.fork import ancestors, fork, read_fork
from veen_storage.copies.fork_record import verify_cuts, verify_record
from veen_storage.disk.files import Files
from veen_storage.errors import AbsentError, DamageError, LockedError, PrunedError, StorageError
from veen_storage.fsck import fsck
from veen_storage.index.lmdb_index import Index
from veen_storage.store import Store
from veen_testing.forks import check_fork

from .conftest import MakeStore
from .sample import (
    CONTROL,
    HUB_ID,
    INVOICES,
    ORDERS,
    Unsynced,
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
    tree,
)

NEW_KEY = signing_key("fork/0")
NEW_ID = stream.hub_id(HubPk(NEW_KEY.public))


def seq(number: int) -> StreamSeq:
    return StreamSeq(number)


def entries(store: Store, of: Label) -> list[Entry | PrunedEntry]:
    found: list[Entry | PrunedEntry] = []
    while page := store.read.entries(of, seq(len(found) + 1), 1_000):
        found += page
    return found


def fill(store: Store) -> None:
    """A store with several labels: sealed, growing and pruned chunks, checkpoints, a token, an anchor."""
    for name in (ORDERS, INVOICES):
        send_each(store, name, 21)
    send(store, label("short"), now=at(60))
    given = token()
    authorize(store, given, at(70))
    send(store, ORDERS, 2, auth_ref=given.auth_ref, now=at(71))
    checkpoint(store, INVOICES, at(71))
    batch = store.batch(at(71))
    batch.anchor(INVOICES, seq(21), b"block 7")
    store.commit(batch)
    store.attachments.put(Coid(H(b"sealed")), [b"sealed"])
    prune(store, ORDERS, PruneRule(max_age_sec=10), at(80))
    store.apply()


@pytest.fixture(params=[None, 3], ids=["plain", "zstd"])
def filled(request: pytest.FixtureRequest, make_store: MakeStore) -> Store:
    store = make_store(zstd_level=request.param)
    fill(store)
    return store


def assert_sound(root: Path) -> None:
    report = fsck(root, processes=1)
    assert report.faults == []


# --- clone


def test_a_clone_of_an_open_hub_gives_the_same_answers(filled: Store, tmp_path: Path) -> None:
    clone(filled, tmp_path / "clone", files=Unsynced())
    with Store(tmp_path / "clone", background=False) as copy:
        assert copy.identity == filled.identity
        assert copy.registry == filled.registry
        assert copy.read.labels() == filled.read.labels()
        for name in copy.read.labels():
            assert entries(copy, name) == entries(filled, name)
            assert copy.read.latest_checkpoint(name) == filled.read.latest_checkpoint(name)
            head = copy.read.head(name)
            assert head == filled.read.head(name)
            assert head is not None
            assert copy.read.proof(name, seq(1), head.stream_seq) == filled.read.proof(
                name, seq(1), head.stream_seq
            )
        assert copy.read.anchor(INVOICES, seq(21)) == b"block 7"
        assert copy.read.window(ORDERS, at(3), at(9)) == filled.read.window(ORDERS, at(3), at(9))
        assert b"".join(copy.attachments.get(Coid(H(b"sealed")))) == b"sealed"
        with pytest.raises(PrunedError):
            copy.read.entry(ORDERS, seq(1))
    assert_sound(tmp_path / "clone")


def test_the_log_of_a_clone_is_the_same_byte_for_byte(filled: Store, tmp_path: Path) -> None:
    clone(filled, tmp_path / "clone", files=Unsynced())
    for folder in ("log", "attachments"):
        assert tree(tmp_path / "clone", folder) == tree(filled.layout.root, folder)
    for name in ("registry.cbor", "hub-identity.cbor", "hub-identity.sig", "hub-key-map.cbor", "VERSION"):
        assert (tmp_path / "clone" / name).read_bytes() == (filled.layout.root / name).read_bytes()
    assert not any(
        path.samefile(filled.layout.log / path.name) for path in (tmp_path / "clone/log").iterdir()
    )


def test_a_clone_has_no_keys_unless_asked_for(filled: Store, tmp_path: Path) -> None:
    clone(filled, tmp_path / "clone", files=Unsynced())
    (seed,) = (path.read_bytes() for path in filled.layout.keys.iterdir())
    assert not any(seed[-32:] in content for content in tree(tmp_path / "clone").values())
    with Store(tmp_path / "clone", background=False) as copy:
        with pytest.raises(StorageError, match="put its file back"):
            send(copy, ORDERS, now=at(100))
        assert copy.read.head(ORDERS) == filled.read.head(ORDERS)


def test_a_clone_with_keys_continues_where_the_hub_stopped(filled: Store, tmp_path: Path) -> None:
    clone(filled, tmp_path / "clone", with_keys=True, files=Unsynced())
    with Store(tmp_path / "clone", background=False, files=Unsynced()) as copy:
        for who, name in (("alice", ORDERS), ("bob", INVOICES), ("alice", CONTROL)):
            assert send(copy, name, 10, who=who, now=at(5)) == send(filled, name, 10, who=who, now=at(5))
        copy.apply()
    filled.apply()
    assert tree(tmp_path / "clone", "log") == tree(filled.layout.root, "log")
    assert_sound(tmp_path / "clone")


def test_keys_in_another_folder_are_copied_if_asked_for(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    send(store, ORDERS)
    shutil.copytree(store.layout.keys, tmp_path / "keys")
    store.apply()
    clone(store, tmp_path / "clone", with_keys=True, keys_directory=tmp_path / "keys", files=Unsynced())
    assert len(list((tmp_path / "clone" / "keys").iterdir())) == 1


def test_a_clone_of_a_closed_directory_includes_its_pending_batches(
    make_store: MakeStore, tmp_path: Path
) -> None:
    store = make_store()
    send(store, ORDERS, 12)
    store.close()
    cut = clone(tmp_path / "data", tmp_path / "clone")
    assert [(c.label, c.stream_seq) for c in cut.labels] == [(ORDERS, 12)]
    assert_sound(tmp_path / "clone")
    with Store(tmp_path / "clone", background=False) as copy:
        assert len(entries(copy, ORDERS)) == 12


def test_an_empty_hub_can_be_cloned(store: Store, tmp_path: Path) -> None:
    assert clone(store, tmp_path / "clone").labels == ()
    assert_sound(tmp_path / "clone")
    with Store(tmp_path / "clone", background=False) as copy:
        assert copy.read.labels() == []


def test_a_clone_can_be_cloned(filled: Store, tmp_path: Path) -> None:
    clone(filled, tmp_path / "first", files=Unsynced())
    clone(tmp_path / "first", tmp_path / "second", files=Unsynced())
    assert tree(tmp_path / "first", "log") == tree(tmp_path / "second", "log")
    assert_sound(tmp_path / "second")


def test_a_clone_into_a_folder_that_is_not_empty_is_refused(filled: Store, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not empty"):
        clone(filled, tmp_path)


def test_cloning_by_path_is_refused_if_the_hub_is_open_in_this_process(filled: Store, tmp_path: Path) -> None:
    with pytest.raises(LockedError):
        clone(filled.layout.root, tmp_path / "clone")


def test_progress_is_reported_label_by_label(filled: Store, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    clone(filled, tmp_path / "clone", progress=lambda *done: told.append(done), files=Unsynced())
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_an_unfinished_clone_is_not_a_data_directory(filled: Store, tmp_path: Path) -> None:
    class Stops(Unsynced):
        def rename(self, source: Path, target: Path) -> None:
            if target.name == "VERSION":
                raise OSError("the machine stops")
            super().rename(source, target)

    with pytest.raises(OSError, match="stops"):
        clone(filled, tmp_path / "clone", files=Stops())
    with pytest.raises(StorageError, match="not a VEEN data directory"):
        Store(tmp_path / "clone")
    assert len(tree(tmp_path / "clone", "log")) == len(tree(filled.layout.log))


def test_everything_is_synced_before_version_is_written(make_store: MakeStore, tmp_path: Path) -> None:
    class Recording(Files):
        def __init__(self) -> None:
            self.written: dict[int, Path] = {}
            self.dirty: set[Path] = set()

        def open_append(self, path: Path, mode: int = 0o644) -> int:
            fd = super().open_append(path, mode)
            self.written[fd] = path
            return fd

        def write(self, fd: int, data: bytes, offset: int) -> None:
            self.dirty.add(self.written[fd])
            super().write(fd, data, offset)

        def sync(self, fd: int) -> None:
            self.dirty.discard(self.written[fd])
            super().sync(fd)

        def sync_many(self, fds: list[int]) -> None:
            self.dirty -= {self.written[fd] for fd in fds}

        def rename(self, source: Path, target: Path) -> None:
            if target.name == "VERSION":
                assert self.dirty == set()
            super().rename(source, target)

    store = make_store()
    fill(store)
    clone(store, tmp_path / "clone", files=Recording())


def test_damage_in_the_source_is_reported_and_not_copied(filled: Store, tmp_path: Path) -> None:
    path = next(path for path in filled.layout.log.iterdir() if path.suffix == ".open")
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(DamageError):
        clone(filled, tmp_path / "clone", files=Unsynced())
    with pytest.raises(StorageError, match="not a VEEN data directory"):
        Store(tmp_path / "clone")


def test_a_missing_chunk_is_named(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    send(store, ORDERS, 20)
    store.apply()
    gone = store.layout.chunk(ORDERS, seq(9), seq(16))
    gone.unlink()
    with pytest.raises(DamageError, match=f"{gone.name}: is missing"):
        clone(store, tmp_path / "clone")


@pytest.mark.parametrize("kind", ["summary", "peaks", "checkpoint", "anchor"])
def test_a_missing_summary_peaks_or_checkpoint_file_is_named(
    make_store: MakeStore, tmp_path: Path, kind: str
) -> None:
    store = make_store()
    send(store, ORDERS, 20)
    batch = store.batch(at(1))
    batch.anchor(ORDERS, seq(8), b"where it was anchored")
    store.commit(batch)
    store.apply()
    layout = store.layout
    gone = (
        layout.summary(ORDERS, seq(1), seq(8)) if kind == "summary" else getattr(layout, kind)(ORDERS, seq(8))
    )
    gone.unlink()
    with pytest.raises(DamageError, match=f"{gone.name}: is missing"):
        clone(store, tmp_path / "clone", files=Unsynced())
    assert not (tmp_path / "clone" / "VERSION").exists()


@pytest.mark.parametrize("kind", ["index", "binding"])
@pytest.mark.parametrize("cut", [True, False], ids=["cut", "gone"])
def test_a_checkpoint_index_or_binding_without_a_line_is_named_with_its_remedy(
    make_store: MakeStore, tmp_path: Path, kind: str, cut: bool
) -> None:
    store = make_store()
    send(store, ORDERS, 20)
    store.apply()
    layout = store.layout
    path = layout.checkpoint_index(ORDERS) if kind == "index" else layout.checkpoint_binding
    content = path.read_bytes()
    path.unlink()
    if cut:
        path.write_bytes(content[:-5])
    upto = {ORDERS: seq(18)}
    with pytest.raises(DamageError, match=rf"{path.name}.*`veen hub repair`"):
        fork(store, tmp_path / "fork", NEW_KEY, at(100), upto, files=Unsynced())


# --- of a hub that runs


def test_a_busy_hub_is_cloned_at_a_consistent_cut(make_store: MakeStore, tmp_path: Path) -> None:
    """A clone includes what its entries rely on in other labels: here, each token that a message uses."""
    store = make_store(
        background=True, zstd_level=1, limits=Limits(max_checkpoint_interval=8, max_msg_bytes=2_048)
    )
    names = [label(f"stream {n}") for n in range(6)]
    ready, stop = threading.Semaphore(0), threading.Event()

    def write() -> None:
        for n in range(400):
            given = token(f"person {n}")
            batch = store.batch(at(n))
            batch.authorize(given, given.encode(), CONTROL)
            store.commit(batch)
            batch = store.batch(at(n))
            for name in names:
                add(batch, name, who=f"person {n}", auth_ref=given.auth_ref)
            store.commit(batch)
            if n % 20 == 0:
                ready.release()
            if stop.is_set():
                return

    writer = threading.Thread(target=write)
    writer.start()
    cuts = []
    for number in range(3):
        ready.acquire()
        cuts.append(clone(store, tmp_path / str(number), files=Unsynced()))
    stop.set()
    writer.join()
    assert store.poisoned is None
    whole = {name: entries(store, name) for name in store.read.labels()}
    for number, cut in enumerate(cuts):
        with Store(tmp_path / str(number), background=False) as copy:
            held = {name: entries(copy, name) for name in copy.read.labels()}
            assert {c.label: c.stream_seq for c in cut.labels} == {name: len(e) for name, e in held.items()}
            assert all(found == whole[name][: len(found)] for name, found in held.items())
            view = copy.batch(at(0)).view
            for entry in held.get(names[0], []):
                assert isinstance(entry, Entry)
                assert entry.msg.auth_ref is not None
                record = view.cap(entry.msg.auth_ref)
                assert record is not None
                assert record.control_seq > 0
    assert_sound(tmp_path / "2")


def test_a_chunk_that_is_sealed_while_it_is_copied_ends_at_the_cut(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(zstd_level=3)
    send(store, ORDERS, 13)
    store.apply()

    def cut_then_go_on(_index: Index) -> Cut:
        cut = take_cut(store.index)
        send(store, ORDERS, 20, now=at(5))
        store.apply()
        return cut

    monkeypatch.setattr(cloning, "take_cut", cut_then_go_on)
    clone(store, tmp_path / "clone", files=Unsynced())
    with Store(tmp_path / "clone", background=False) as copy:
        assert entries(copy, ORDERS) == entries(store, ORDERS)[:13]
        assert copy.layout.chunk(ORDERS, seq(9), None).exists()
    assert_sound(tmp_path / "clone")


def test_a_chunk_that_is_pruned_while_it_is_copied_is_copied_as_pruned(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store()
    send_each(store, ORDERS, 13)
    store.apply()

    def cut_then_prune(_index: Index) -> Cut:
        cut = take_cut(store.index)
        prune(store, ORDERS, PruneRule(max_age_sec=0), at(10**5))
        return cut

    monkeypatch.setattr(cloning, "take_cut", cut_then_prune)
    clone(store, tmp_path / "clone", files=Unsynced())
    with Store(tmp_path / "clone", background=False) as copy:
        with pytest.raises(PrunedError):
            copy.read.entry(ORDERS, seq(8))
        assert copy.read.entry(ORDERS, seq(13)).stream_seq == 13
    assert_sound(tmp_path / "clone")


def test_a_cut_whose_growing_chunk_was_pruned_meanwhile_is_taken_again(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store()
    send_each(store, ORDERS, 5)
    store.apply()
    taken = []

    def cut_then_seal_and_prune(_index: Index) -> Cut:
        cut = take_cut(store.index)
        taken.append(cut)
        if len(taken) == 1:
            send_each(store, ORDERS, 10, now=at(10))
            prune(store, ORDERS, PruneRule(max_age_sec=0), at(10**5))
        return cut

    monkeypatch.setattr(cloning, "take_cut", cut_then_seal_and_prune)
    cut = clone(store, tmp_path / "clone", files=Unsynced())
    assert len(taken) == 2
    assert cut.labels[0].stream_seq == 15
    assert_sound(tmp_path / "clone")


# --- fork


def test_a_fork_is_a_new_hub_that_keeps_the_prefix_as_evidence(filled: Store, tmp_path: Path) -> None:
    record = fork(filled, tmp_path / "fork", NEW_KEY, at(200), files=Unsynced())
    assert (record.old_hub, record.new_hub) == (HUB_ID, NEW_ID)
    assert record.old_sig is not None
    with Store(tmp_path / "fork", background=False) as forked:
        assert forked.identity.hub_id == NEW_ID
        assert forked.read.labels() == []
        (receipt,) = send(forked, ORDERS, now=at(201))
        hub_identity.verify_receipt(forked.identity, receipt)
        with pytest.raises(SignatureError):
            hub_identity.verify_receipt(filled.identity, receipt)
        forked.apply()
    ((shown, ancestor),) = ancestors(tmp_path / "fork")
    assert shown == record
    with Store(ancestor, background=False) as old:
        assert old.identity == filled.identity
        for name in filled.read.labels():
            assert entries(old, name) == entries(filled, name)
    check_fork(tmp_path / "fork")
    assert_sound(tmp_path / "fork")
    assert_sound(ancestor)


def test_both_forks_continue_and_remain_verifiable(filled: Store, tmp_path: Path) -> None:
    fork(filled, tmp_path / "fork", NEW_KEY, at(200), files=Unsynced())
    send(filled, ORDERS, 5, now=at(210))
    filled.apply()
    filled.close()
    with Store(tmp_path / "fork", background=False) as forked:
        send(forked, ORDERS, 5, now=at(210))
        forked.apply()
    for root in (filled.layout.root, tmp_path / "fork", tmp_path / "fork" / "ancestry" / HUB_ID.hex()):
        assert_sound(root)
    check_fork(tmp_path / "fork")


def test_a_fork_may_be_cut_before_the_end(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    for name in (ORDERS, INVOICES, label("left out")):
        send_each(store, name, 21)
        checkpoint(store, name, at(50))
    store.apply()
    upto = {ORDERS: seq(11), label("left out"): seq(0)}
    fork(store, tmp_path / "fork", NEW_KEY, at(200), upto, files=Unsynced())
    found = read_fork(tmp_path / "fork")
    assert found is not None
    assert {line.label: line.upto_seq for line in found[1]} == {ORDERS: 11, INVOICES: 21}
    assert {line.label: line.mmr_root for line in found[1]}[ORDERS] == store.read.root(ORDERS, seq(11))
    ((_record, ancestor),) = ancestors(tmp_path / "fork")
    with Store(ancestor, background=False) as old:
        assert old.read.labels() == sorted([ORDERS, INVOICES])
        assert entries(old, ORDERS) == entries(store, ORDERS)[:11]
        assert [c.upto_seq for c in [old.read.latest_checkpoint(ORDERS)] if c] == [8]
    check_fork(tmp_path / "fork")
    assert_sound(ancestor)


def test_a_fork_may_be_cut_at_any_entry(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    send(store, ORDERS, 21)
    store.apply()
    for upto in range(1, 22):
        root = tmp_path / str(upto)
        fork(store, root, NEW_KEY, at(200), {ORDERS: seq(upto)}, files=Unsynced())
        check_fork(root)
        if upto in (7, 8, 9):  # before a chunk's end, at it and after it
            assert_sound(root / "ancestry" / HUB_ID.hex())


def test_a_cut_that_cannot_be_made_is_refused(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    send_each(store, ORDERS, 21)
    prune(store, ORDERS, PruneRule(max_age_sec=100), at(110))
    refusals: list[tuple[dict[Label, StreamSeq], type[StorageError], str]] = [
        ({ORDERS: seq(5)}, PrunedError, "entries 1 to 8 are pruned"),
        ({ORDERS: seq(22)}, AbsentError, "has 21 entries"),
        ({INVOICES: seq(1)}, AbsentError, "has no entries"),
    ]
    for number, (upto, error, why) in enumerate(refusals):
        with pytest.raises(error, match=why):
            fork(store, tmp_path / str(number), NEW_KEY, at(200), upto, files=Unsynced())
        assert not (tmp_path / str(number) / "VERSION").exists()
    with pytest.raises(StorageError, match="old hub's first key"):
        fork(store, tmp_path / "same", signing_key("hub/0"), at(200))
    with pytest.raises(StorageError, match="is not empty"):
        fork(store, tmp_path, NEW_KEY, at(200))


def test_without_the_old_hubs_key_only_the_new_hub_signs_the_record(
    make_store: MakeStore, tmp_path: Path
) -> None:
    store = make_store()
    send(store, ORDERS, 3)
    store.apply()
    record = fork(store, tmp_path / "fork", NEW_KEY, at(9), keys_directory=tmp_path, files=Unsynced())
    assert record.old_sig is None
    check_fork(tmp_path / "fork")


def test_a_fork_of_a_fork_keeps_all_ancestors(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    send(store, ORDERS, 9)
    store.apply()
    fork(store, tmp_path / "child", NEW_KEY, at(100), files=Unsynced())
    with Store(tmp_path / "child", background=False) as child:
        send(child, ORDERS, 2, now=at(101))
    fork(tmp_path / "child", tmp_path / "grandchild", signing_key("fork/1"), at(200), files=Unsynced())
    line = list(ancestors(tmp_path / "grandchild"))
    assert [record.old_hub for record, _root in line] == [NEW_ID, HUB_ID]
    for root in (tmp_path / "grandchild", *(root for _record, root in line)):
        assert_sound(root)
    check_fork(tmp_path / "grandchild")
    check_fork(line[0][1])
    clone(tmp_path / "grandchild", tmp_path / "clone", files=Unsynced())
    assert [record for record, _root in ancestors(tmp_path / "clone")] == [record for record, _root in line]
    check_fork(tmp_path / "clone")


def test_a_changed_record_or_cut_is_refused(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    send(store, ORDERS, 9)
    send(store, INVOICES, 3)
    store.apply()
    fork(store, tmp_path / "fork", NEW_KEY, at(100), files=Unsynced())
    found = read_fork(tmp_path / "fork")
    assert found is not None
    record, lines = found
    with Store(tmp_path / "fork", background=False) as forked:
        new, old = forked.identity, store.identity
    verify_record(record, new, old)
    verify_cuts(record, lines)
    assert record.old_sig is not None
    swapped = dataclasses.replace(record, new_sig=record.old_sig, old_sig=record.new_sig)
    for wrong in (dataclasses.replace(record, hub_ts=at(5)), dataclasses.replace(record, labels=3), swapped):
        with pytest.raises(VerificationError):
            verify_record(wrong, new, old)
    with pytest.raises(VerificationError, match="cuts_root"):
        verify_cuts(record, lines[:1])
    with pytest.raises(VerificationError, match="old_sig"):
        verify_record(dataclasses.replace(record, old_sig=record.new_sig), new, old)
    cuts = tmp_path / "fork" / "fork-cuts.cborseq"
    cuts.write_bytes(lines[0].encode())
    with pytest.raises(VerificationError, match="cuts_root"):
        check_fork(tmp_path / "fork")
    cuts.unlink()
    with pytest.raises(DamageError, match="fork-cuts"):
        check_fork(tmp_path / "fork")
    (tmp_path / "fork" / "fork.cbor").write_bytes(b"")
    with pytest.raises(DamageError, match="fork"):
        check_fork(tmp_path / "fork")


def test_a_hub_that_is_not_a_fork_has_no_ancestors(store: Store) -> None:
    assert read_fork(store.layout.root) is None
    assert list(ancestors(store.layout.root)) == []


def test_fsck_of_a_fork_compares_its_ancestor_with_the_cuts(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    send(store, ORDERS, 9)
    store.apply()
    for name, upto in (("fork", 9), ("shorter", 5)):
        fork(store, tmp_path / name, NEW_KEY, at(100), {ORDERS: seq(upto)}, files=Unsynced())
    ancestor = tmp_path / "fork" / "ancestry" / HUB_ID.hex()
    shutil.rmtree(ancestor)
    shutil.copytree(tmp_path / "shorter" / "ancestry" / HUB_ID.hex(), ancestor)
    assert_sound(ancestor)
    (fault,) = fsck(tmp_path / "fork", processes=1).faults
    assert fault.file == f"ancestry/{HUB_ID.hex()}/index/data.mdb"
    assert "do not end at the cuts" in fault.what


def test_an_unfinished_fork_is_not_a_data_directory(make_store: MakeStore, tmp_path: Path) -> None:
    class Stops(Unsynced):
        def rename(self, source: Path, target: Path) -> None:
            if target == tmp_path / "fork" / "VERSION":
                raise OSError("the machine stops")
            super().rename(source, target)

    store = make_store()
    send(store, ORDERS, 3)
    store.apply()
    with pytest.raises(OSError, match="stops"):
        fork(store, tmp_path / "fork", NEW_KEY, at(100), files=Stops())
    with pytest.raises(StorageError, match="not a VEEN data directory"):
        Store(tmp_path / "fork")


def test_an_ancestor_is_copied_without_its_index_and_journal(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    fill(store)
    store.close()
    shutil.rmtree(store.layout.keys)
    copy_closed(store.layout.root, tmp_path / "copy", Unsynced())
    assert tree(tmp_path / "copy", "log") == tree(store.layout.log)
    assert_sound(tmp_path / "copy")


def _no_ancestry(root: Path) -> str:
    shutil.rmtree(root / "ancestry")
    return f"ancestry/{HUB_ID.hex()}"


def _no_ancestor_identity(root: Path) -> str:
    name = f"ancestry/{HUB_ID.hex()}/hub-identity.cbor"
    (root / name).unlink()
    return name


def _folder_for_record(root: Path) -> str:
    (root / "fork.cbor").unlink()
    (root / "fork.cbor").mkdir()
    return "fork.cbor"


@pytest.mark.parametrize(
    "spoil", [_no_ancestry, _no_ancestor_identity, _folder_for_record], ids=lambda spoil: spoil.__name__[1:]
)
def test_fsck_of_a_fork_names_what_is_missing(
    filled: Store, tmp_path: Path, spoil: Callable[[Path], str]
) -> None:
    fork(filled, tmp_path / "fork", NEW_KEY, at(200), files=Unsynced())
    wrong = spoil(tmp_path / "fork")
    assert [fault.file for fault in fsck(tmp_path / "fork", processes=1).faults] == [wrong]


def test_another_hubs_chunk_is_not_copied_and_the_source_is_named(
    store: Store, make_store: MakeStore, tmp_path: Path
) -> None:
    theirs = make_store("theirs", key=signing_key("another hub"))
    for one in (store, theirs):
        send(one, ORDERS, 20)
        one.apply()
    name = store.layout.chunk(ORDERS, StreamSeq(1), StreamSeq(8)).name
    shutil.copy(theirs.layout.log / name, store.layout.log / name)
    for make in (
        lambda: clone(store, tmp_path / "clone", files=Unsynced()),
        lambda: fork(store, tmp_path / "fork", NEW_KEY, at(200), files=Unsynced()),
    ):
        with pytest.raises(DamageError, match=rf"{name}.*not copied.*fsck` on {store.layout.root}") as e:
            make()
        assert "repair" not in str(e.value)
    assert not (tmp_path / "clone" / "VERSION").exists()
    assert not (tmp_path / "fork" / "VERSION").exists()
