"""The client's journal: one sync for many records, which survive kills, torn writes and failing disks."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from veen_core.errors import StateError
from veen_core.ids import HubId
from veen_hub.client import FileStateStore
from veen_hub.client.state import journal
from veen_hub.client.state.journal import ClientJournal, JournalGroup, JournalRecord, group_of, recover

HUB = HubId(b"\x07" * 32)


def journals(root: Path) -> list[Path]:
    return sorted((root / HUB.hex() / "journal").glob("*.journal"))


def frames(path: Path) -> bytes:
    """Return what was written to a journal, without the space that was allocated ahead."""
    data, end = path.read_bytes(), 0
    while (frame := journal.frame_at(data, end)) is not None:
        end = frame.end
    assert not data[end:].strip(b"\0")
    return data[:end]


def abandoned(root: Path, *records: tuple[str, bytes]) -> Path:
    """Leave the journal of a process that died."""
    folder = root / HUB.hex()
    mine = ClientJournal(folder)
    for name, content in records:
        mine.append({name: content}, durable=True)
    (path,) = journals(root)
    os.close(mine._fd)
    return path


def test_a_committed_record_is_read_back_and_its_file_is_written_on_release(tmp_path: Path) -> None:
    store = FileStateStore(tmp_path)
    lock = store.lock(HUB, "orders")
    assert lock is not None
    store.commit(HUB, {"orders": b"one"})
    store.save(HUB, "orders", b"two", durable=False)
    file = tmp_path / HUB.hex() / "orders.state"
    assert (store.load(HUB, "orders"), file.exists()) == (b"two", False)
    lock.release()
    assert (file.read_bytes(), journals(tmp_path)) == (b"two", [])
    assert FileStateStore(tmp_path).load(HUB, "orders") == b"two"


def test_records_committed_together_need_one_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStateStore(tmp_path)
    store.commit(HUB, {"first": b""})
    synced: list[int] = []
    sync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.append(fd), sync(fd))[1])
    store.commit(HUB, {f"label {n}": b"x" * 100 for n in range(64)})
    assert len(synced) == 1


CHILD = """
import os, signal, sys
from veen_core.ids import HubId
from veen_hub.client import FileStateStore
store, hub = FileStateStore(sys.argv[1]), HubId(bytes.fromhex(sys.argv[2]))
locks = [store.lock(hub, name) for name in ("a", "b")]
store.commit(hub, {"a": b"1", "b": b"1"})
store.commit(hub, {"a": b"2"})
store.save(hub, "b", b"3", durable=False)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_records_of_a_killed_process_are_found_by_the_next(tmp_path: Path) -> None:
    died = subprocess.run([sys.executable, "-c", CHILD, tmp_path, HUB.hex()], check=False, timeout=60)
    assert died.returncode == -signal.SIGKILL
    store = FileStateStore(tmp_path)
    assert store.lock(HUB, "a") is not None
    assert (store.load(HUB, "a"), store.load(HUB, "b")) == (b"2", b"3")
    assert journals(tmp_path) == []


def test_the_journal_of_a_running_process_is_left_alone(tmp_path: Path) -> None:
    one, two = FileStateStore(tmp_path), FileStateStore(tmp_path)
    held = one.lock(HUB, "a")
    one.commit(HUB, {"a": b"1"})
    assert two.lock(HUB, "a") is None
    other = two.lock(HUB, "b")
    two.commit(HUB, {"b": b"1"})
    assert len(journals(tmp_path)) == 2
    assert held is not None
    assert other is not None
    held.release()
    assert two.load(HUB, "a") == b"1"
    other.release()
    assert journals(tmp_path) == []


def test_a_record_that_was_released_is_not_brought_back_by_an_old_journal(tmp_path: Path) -> None:
    """Another process has changed it since; the journal is still there for another record."""
    one, two = FileStateStore(tmp_path), FileStateStore(tmp_path)
    lock = one.lock(HUB, "a")
    one.commit(HUB, {"a": b"old", "b": b"kept"})
    assert lock is not None
    lock.release()
    again = two.lock(HUB, "a")
    assert again is not None
    two.commit(HUB, {"a": b"new"})
    again.release()
    os.close(one._journals[HUB]._fd)  # the first process dies
    recover(tmp_path / HUB.hex())
    assert (two.load(HUB, "a"), two.load(HUB, "b")) == (b"new", b"kept")


def test_the_size_of_a_journal_rarely_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ALLOCATED_BYTES", 10_000)
    store, sizes = FileStateStore(tmp_path), list[int]()
    for n in range(100):
        store.commit(HUB, {"a": b"%d" % n * 100})
        sizes.append(journals(tmp_path)[0].stat().st_size)
    assert len(set(sizes)) <= 4
    assert sizes[-1] >= len(frames(journals(tmp_path)[0])) > 20_000
    os.close(store._journals[HUB]._fd)
    recover(tmp_path / HUB.hex())
    assert store.file(HUB, "a").read_bytes() == b"99" * 100


def test_a_disk_without_room_to_allocate_ahead_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    path = abandoned(tmp_path, ("a", b"first"), ("b", b"second"))
    assert path.read_bytes() == frames(path)
    recover(tmp_path / HUB.hex())
    store = FileStateStore(tmp_path)
    assert (store.load(HUB, "a"), store.load(HUB, "b")) == (b"first", b"second")


@pytest.mark.parametrize("kind", ["cut", "zeros"])
def test_a_torn_last_record_is_dropped_wherever_it_was_torn(tmp_path: Path, kind: str) -> None:
    """The client was never told that it is durable, so its message has not left."""
    path = abandoned(tmp_path, ("a", b"first"), ("a", b"second"))
    whole = frames(path)
    for at in range(len(whole) - len(group_of({"a": b"second"}).frame(0)), len(whole)):
        path.write_bytes(whole[:at] + (bytes(len(whole) - at) if kind == "zeros" else b""))
        records: dict[str, bytes] = {}
        journal.replay(path.read_bytes(), path, records)
        assert records == {"a": b"first"}, at


def test_a_damaged_record_before_others_is_refused_and_nothing_is_removed(tmp_path: Path) -> None:
    """Whichever byte is damaged, also in the magic number or in a length."""
    path = abandoned(tmp_path, ("a", b"first"), ("b", b"second"), ("a", b"third"))
    whole = frames(path)
    for at in range(len(whole) - len(group_of({"a": b"third"}).frame(0))):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(StateError, match=r"damaged at byte \d+; restore the state folder"):
            FileStateStore(tmp_path).lock(HUB, "a")
        assert path.exists()
        assert not (tmp_path / HUB.hex() / "a.state").exists()


def test_a_write_that_was_torn_before_a_later_one_that_was_not_synced_either_is_no_damage(
    tmp_path: Path,
) -> None:
    """A power cut may keep the later of two writes and lose the earlier one."""
    mine = ClientJournal(tmp_path / HUB.hex())
    mine.append({"a": b"first"}, durable=True)
    mine.append({"a": b"second"}, durable=False)
    mine.append({"a": b"third"}, durable=True)
    (path,) = journals(tmp_path)
    os.close(mine._fd)
    whole, size = frames(path), len(group_of({"a": b"second"}).frame(0))
    start = len(whole) - size - len(group_of({"a": b"third"}).frame(0))
    path.write_bytes(whole[:start] + bytes(size) + whole[start + size :])
    recover(tmp_path / HUB.hex())
    assert FileStateStore(tmp_path).load(HUB, "a") == b"first"


def test_a_journal_whose_failed_write_cannot_be_undone_takes_no_more_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStateStore(tmp_path)
    store.commit(HUB, {"a": b"one"})

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fail)
        broken.setattr(os, "ftruncate", fail)
        with pytest.raises(StateError, match="Input/output error"):
            store.commit(HUB, {"a": b"two"})
    with pytest.raises(StateError, match="could not be undone; free disk space or repair the disk"):
        store.commit(HUB, {"a": b"three"})
    assert store.load(HUB, "a") == b"one"


@pytest.mark.parametrize("failing", ["fdatasync", "write"])
def test_a_disk_that_fails_leaves_the_records_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    store = FileStateStore(tmp_path)
    store.commit(HUB, {"a": b"one"})
    before = frames(journals(tmp_path)[0])

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, failing, fail)
        with pytest.raises(StateError, match="No space left on device"):
            store.commit(HUB, {"a": b"two"})
    assert store.load(HUB, "a") == b"one"
    assert frames(journals(tmp_path)[0]) == before
    store.commit(HUB, {"a": b"three"})
    assert store.load(HUB, "a") == b"three"
    os.close(store._journals[HUB]._fd)
    recover(tmp_path / HUB.hex())
    assert store.file(HUB, "a").read_bytes() == b"three"


def test_a_large_journal_continues_in_a_small_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "COMPACT_BYTES", 10_000)
    store = FileStateStore(tmp_path)
    for n in range(100):
        store.commit(HUB, {f"label {n % 3}": b"%d" % n * 100})
    (file,) = journals(tmp_path)
    assert len(frames(file)) < 11_000
    os.close(store._journals[HUB]._fd)
    recover(tmp_path / HUB.hex())
    again = FileStateStore(tmp_path)
    assert [again.load(HUB, f"label {n}") for n in range(3)] == [b"99" * 100, b"97" * 100, b"98" * 100]


@pytest.mark.parametrize(
    ("failing", "call"), [("fdatasync", 2), ("fsync", 1), ("fsync", 2), ("unlink", 1), ("open", 2)]
)
def test_a_record_that_is_written_is_acknowledged_even_if_the_next_file_cannot_be_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, call: int
) -> None:
    """Whichever call of the compaction fails: a message that is reported as lost would be sent twice."""
    monkeypatch.setattr(journal, "COMPACT_BYTES", 1_000)
    store = FileStateStore(tmp_path)
    lock = store.lock(HUB, "a")
    store.commit(HUB, {"a": b"one", "b": b"kept"})
    original, calls = getattr(os, failing), []

    def fail_once(*args: Any, **options: Any) -> Any:
        calls.append(args)
        if len(calls) == call:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(*args, **options)

    with monkeypatch.context() as broken:
        broken.setattr(os, failing, fail_once)
        store.commit(HUB, {"a": b"two" * 400})
    assert len(calls) >= call
    assert store.load(HUB, "a") == b"two" * 400
    store.commit(HUB, {"a": b"three" * 400})  # compacts again
    assert len(journals(tmp_path)) <= 2
    assert lock is not None
    lock.release()
    again = FileStateStore(tmp_path)
    recover(tmp_path / HUB.hex())  # the journal is still used: an old file of it must not count as abandoned
    assert again.load(HUB, "a") == b"three" * 400
    mine = store._journals[HUB]
    for fd in (mine._fd, *(fd for _, fd in mine._superseded)):  # the process dies
        os.close(fd)
    recover(tmp_path / HUB.hex())
    assert (again.load(HUB, "a"), again.load(HUB, "b")) == (b"three" * 400, b"kept")
    assert journals(tmp_path) == []


def test_a_crash_between_two_files_of_a_journal_keeps_the_newer_record(tmp_path: Path) -> None:
    """A power cut may bring the removed file back."""
    first = abandoned(tmp_path, ("a", b"old"), ("b", b"gone"))
    owner = first.name.split("-")[0]
    group = JournalGroup(records=(JournalRecord(name="a", content=b"new"), JournalRecord(name="b")))
    first.with_name(f"{owner}-00000002.journal").write_bytes(group.frame(0))
    recover(tmp_path / HUB.hex())
    store = FileStateStore(tmp_path)
    assert (store.load(HUB, "a"), store.load(HUB, "b")) == (b"new", None)
    assert journals(tmp_path) == []
