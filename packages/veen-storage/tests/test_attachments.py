from __future__ import annotations

import os
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import lmdb
import pytest

from veen_core.hashing import H
from veen_core.ids import Coid
from veen_storage.copies.clone import clone
from veen_storage.disk.directory_lock import DirectoryLock
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.errors import AbsentError, DamageError
from veen_storage.fsck import fsck
from veen_storage.fsck.repair import repair
from veen_storage.index.lmdb_index import Index
from veen_storage.index.records import U64
from veen_storage.opening.observer import Observer
from veen_storage.read.attachments import ContentError, LostError, TooLargeError
from veen_storage.store import Store

from .conftest import MakeStore
from .sample import ORDERS, SMALL, Unsynced, send, tree

CONTENT = b"sealed elsewhere " * 10_000
COID, OTHER = Coid(H(CONTENT)), Coid(H(b"other"))
LOWER = SMALL.lowered({"max_attachment_bytes": len(CONTENT)})


def parts(content: bytes, size: int = 1_000) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))


def test_an_attachment_is_read_back_in_parts(store: Store) -> None:
    assert store.attachments.put(COID, parts(CONTENT)) is True
    got = list(store.attachments.get(COID, 4_096))
    assert b"".join(got) == CONTENT
    assert max(map(len, got)) == 4_096
    assert store.attachments.size(COID) == len(CONTENT)
    assert list(store.attachments.coids()) == [COID]


def test_the_same_content_twice_is_stored_once_and_not_read(store: Store) -> None:
    def never() -> Iterator[bytes]:
        pytest.fail("the second upload was read")
        yield b""

    store.attachments.put(COID, [CONTENT])
    assert store.attachments.put(COID, never()) is False
    assert len(tree(store.layout.attachments)) == 1


def test_other_bytes_than_the_coid_names_are_refused_and_leave_nothing(store: Store) -> None:
    with pytest.raises(ContentError, match=f"do not hash to attachment {COID.hex()}"):
        store.attachments.put(COID, [CONTENT, b"!"])
    assert tree(store.layout.attachments) == {}
    with pytest.raises(AbsentError, match="no attachment"):
        list(store.attachments.get(COID))
    with pytest.raises(AbsentError, match="no attachment"):
        store.attachments.size(COID)


def test_one_byte_over_the_limit_is_refused_before_it_is_written(make_store: MakeStore) -> None:
    store = make_store(limits=LOWER)
    store.attachments.put(COID, parts(CONTENT))
    larger = CONTENT + b"!"
    with pytest.raises(TooLargeError, match=f"max_attachment_bytes = {len(CONTENT)}"):
        store.attachments.put(Coid(H(larger)), parts(larger))
    assert len(tree(store.layout.attachments)) == 1


def test_an_endless_upload_is_aborted_at_the_limit(make_store: MakeStore) -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1_000
            yield bytes(1_000)

    with pytest.raises(TooLargeError):
        make_store(limits=LOWER).attachments.put(COID, endless())
    assert taken <= len(CONTENT) + 1_000


def test_an_empty_attachment_can_be_stored(store: Store) -> None:
    empty = Coid(H(b""))
    assert store.attachments.put(empty, [])
    assert list(store.attachments.get(empty)) == []


def test_an_upload_that_breaks_off_leaves_nothing(store: Store) -> None:
    def broken() -> Iterator[bytes]:
        yield CONTENT[:5_000]
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        store.attachments.put(COID, broken())
    assert tree(store.layout.attachments) == {}
    assert store.attachments.put(COID, parts(CONTENT))


def test_temporary_files_of_a_crash_are_not_listed_and_do_not_block_a_put(make_store: MakeStore) -> None:
    class Crash(Files):
        def rename(self, source: Path, target: Path) -> None:
            raise SystemExit(f"{source.name} does not become {target.name}")

    store = make_store(files=Crash())
    with pytest.raises(SystemExit):
        store.attachments.put(COID, parts(CONTENT))
    # What a process that really died would leave, since nobody cleans up after it:
    left = store.layout.attachment(COID).with_name(f"{COID.hex()}.1-0.tmp")
    left.write_bytes(CONTENT[:100])
    store.close()
    store = make_store()
    assert list(store.attachments.coids()) == []
    assert store.attachments.put(COID, parts(CONTENT))
    assert list(store.attachments.coids()) == [COID]


def test_reading_a_damaged_attachment_raises_damage(store: Store) -> None:
    store.attachments.put(COID, parts(CONTENT))
    path = store.layout.attachment(COID)
    path.write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(DamageError, match="does not hash to its name"):
        list(store.attachments.get(COID))


def test_two_uploads_of_one_content_at_the_same_time_agree(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _n: store.attachments.put(COID, parts(CONTENT)), range(32)))
    assert tree(store.layout.attachments) == {
        str(store.layout.attachment(COID).relative_to(store.layout.attachments)): CONTENT
    }


def test_many_attachments_are_listed_in_order(store: Store) -> None:
    contents = [str(n).encode() for n in range(50)]
    for content in contents:
        store.attachments.put(Coid(H(content)), [content])
    assert list(store.attachments.coids()) == sorted(Coid(H(content)) for content in contents)


def test_stray_files_are_not_listed_and_folders_are_read_one_by_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = [str(n).encode() for n in range(20)]
    for content in contents:
        store.attachments.put(Coid(H(content)), [content])
    for stray in ("notes.txt", "00/notes.txt", "00/00/notes.txt", "zzz/00/" + COID.hex()):
        path = store.layout.attachments / stray
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    listed: list[str] = []
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(str(path)) or listdir(path))
    coids = store.attachments.coids()
    first = next(coids)
    assert len(listed) <= 5, "the folders of the others were not looked at yet"
    assert [first, *coids] == sorted(Coid(H(content)) for content in contents)


# --- what the index recorded


def one_lost(store: Store) -> Path:
    """A closed store in which one of two attachments was deleted; its root."""
    store.attachments.put(COID, parts(CONTENT))
    store.attachments.put(OTHER, [b"other"])
    store.layout.attachment(COID).unlink()
    store.close()
    return store.layout.root


@pytest.mark.parametrize("level", ["full", "quick"])
def test_fsck_names_a_deleted_attachment(store: Store, level: Literal["full", "quick"]) -> None:
    root = one_lost(store)
    (fault,) = fsck(root, level=level, processes=1).faults
    assert fault.file == f"attachments/{COID.hex()}"
    assert fault.what == f"was stored with {len(CONTENT)} bytes and is missing"
    assert "upload it again" in fault.remedy


def test_a_deleted_attachment_is_lost_until_it_is_put_again(store: Store, make_store: MakeStore) -> None:
    root = one_lost(store)
    store = make_store()
    with pytest.raises(DamageError, match=f"{COID.hex()}: was stored and is missing; upload it again"):
        list(store.attachments.get(COID))
    with pytest.raises(DamageError, match="was stored and is missing"):
        store.attachments.size(COID)
    assert list(store.attachments.lost()) == [COID]
    assert store.attachments.put(COID, parts(CONTENT)) is True
    assert list(store.attachments.lost()) == []
    store.close()
    assert fsck(root, processes=1).ok


def test_a_directory_that_lost_an_attachment_is_not_cloned(store: Store, tmp_path: Path) -> None:
    root = one_lost(store)
    with pytest.raises(LostError, match=rf"{COID.hex()}: was stored and is missing.*veen hub repair"):
        clone(root, tmp_path / "clone")
    assert not (tmp_path / "clone").exists(), "nothing is copied before that is known"
    repair(root)  # as the error says, if it is lost for good
    clone(root, tmp_path / "clone", files=Unsynced())


def test_repair_names_attachments_whose_size_differs_from_the_record(store: Store) -> None:
    store.attachments.put(COID, parts(CONTENT))
    store.layout.attachment(COID).write_bytes(CONTENT[:10])
    store.close()
    (note,) = repair(store.layout.root).notes
    assert note.startswith(f"attachments/{COID.hex()} does not have the {len(CONTENT)} bytes")
    assert repair(store.layout.root).notes == []


def test_a_folder_in_place_of_an_attachment_is_damage_with_a_remedy(store: Store) -> None:
    store.layout.attachment(COID).mkdir(parents=True)
    tries: list[Callable[[], object]] = [
        lambda: store.attachments.put(COID, parts(CONTENT)),
        lambda: list(store.attachments.get(COID)),
        lambda: store.attachments.size(COID),
    ]
    for attempt in tries:
        with pytest.raises(DamageError, match=rf"{COID.hex()}: is a folder; .*upload it again"):
            attempt()
    store.layout.attachment(COID).rmdir()
    assert store.attachments.put(COID, parts(CONTENT)) is True


def test_repair_records_existing_attachments_and_names_the_missing_ones(store: Store) -> None:
    root = one_lost(store)
    assert f"attachments/{COID.hex()} was stored and is missing" in str(repair(root))
    assert fsck(root, processes=1).ok
    assert "missing" not in str(repair(root))
    store.layout.attachment(OTHER).unlink()
    assert [fault.file for fault in fsck(root, processes=1).faults] == [f"attachments/{OTHER.hex()}"]


def test_a_clone_records_its_attachments(store: Store, tmp_path: Path) -> None:
    store.attachments.put(COID, parts(CONTENT))
    clone(store, tmp_path / "clone")
    copy = Layout(tmp_path / "clone")
    assert fsck(copy.root, processes=1).ok
    copy.attachment(COID).unlink()
    assert [fault.file for fault in fsck(copy.root, processes=1).faults] == [f"attachments/{COID.hex()}"]


@pytest.fixture
def older(store: Store) -> Path:
    """A directory from before attachments were recorded: the index has no table of them."""
    send(store, ORDERS, 12)
    store.attachments.put(COID, [CONTENT])
    store.apply()
    store.close()
    with lmdb.open(str(store.layout.index), max_dbs=64) as env, env.begin(write=True) as txn:
        txn.drop(env.open_db(b"attachments", txn=txn))
    return store.layout.root


@pytest.mark.parametrize("level", ["full", "quick"])
def test_a_directory_without_a_record_of_attachments_is_whole(
    older: Path, level: Literal["full", "quick"]
) -> None:
    assert fsck(older, level=level).faults == []


def test_a_directory_without_a_record_of_attachments_is_observed(older: Path) -> None:
    lock = DirectoryLock(Layout(older), observable=True)  # as a hub of an earlier version holds it
    try:
        with Observer(older) as observer:
            assert list(observer.attachments.coids()) == [COID]
            assert list(observer.attachments.lost()) == []
            assert b"".join(observer.attachments.get(COID)) == CONTENT
            with pytest.raises(AbsentError):
                observer.attachments.size(OTHER)
    finally:
        lock.release()


def test_any_other_table_that_is_missing_is_damage(older: Path) -> None:
    with lmdb.open(str(older / "index"), max_dbs=64) as env, env.begin(write=True) as txn:
        txn.drop(env.open_db(b"clients", txn=txn))
    assert [fault.file for fault in fsck(older).faults] == ["index/data.mdb"]


def test_a_put_interrupted_before_it_is_recorded_is_no_fault(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store()
    root = store.layout.root
    with monkeypatch.context() as patch:
        patch.setattr(Index, "write", lambda _self, _change: sys.exit("killed"))
        with pytest.raises(SystemExit):
            store.attachments.put(COID, parts(CONTENT))
    store.close()
    report = fsck(root, processes=1)
    assert report.ok
    assert [note for note in report.notes if note.startswith("1 attachment is not recorded")]
    store = make_store()
    assert store.attachments.put(COID, parts(CONTENT)) is False
    store.close()
    assert not [note for note in fsck(root, processes=1).notes if "not recorded" in note]


@pytest.mark.parametrize(
    ("level", "file"), [("full", "index/data.mdb"), ("quick", f"attachments/{COID.hex()}")]
)
def test_a_record_of_another_size_is_a_fault(
    store: Store, level: Literal["full", "quick"], file: str
) -> None:
    store.attachments.put(COID, parts(CONTENT))
    store.index.write(lambda txn: txn.put("attachments", COID, U64.pack(7)))
    root = store.layout.root
    store.close()
    (fault,) = fsck(root, level=level, processes=1).faults
    assert fault.file == file
    assert "7 bytes" in fault.what
    repair(root)
    assert fsck(root, processes=1).ok


def test_a_truncated_attachment_is_reported_once(store: Store) -> None:
    store.attachments.put(COID, parts(CONTENT))
    os.truncate(store.layout.attachment(COID), 10)
    store.close()
    (full,) = fsck(store.layout.root, processes=1).faults
    assert "not hash to its name" in full.what
    (quick,) = fsck(store.layout.root, level="quick", processes=1).faults
    assert quick.what == f"was stored with {len(CONTENT)} bytes and has another size now"


def test_a_large_attachment_is_never_whole_in_memory(make_store: MakeStore) -> None:
    store = make_store()
    part, count = bytes(range(256)) * 256, 256  # 16 MiB
    coid = Coid(H(part * count))
    tracemalloc.start()
    try:
        store.attachments.put(coid, (part for _ in range(count)))
        assert sum(map(len, store.attachments.get(coid))) == len(part) * count
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
