"""Reading beside a hub that is running in another process: clone, fork and export need not stop it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from veen_core.hub_log import LabelHead
from veen_core.ids import StreamSeq
from veen_core.limits import Limits
from veen_core.tlog import tree
from veen_core.tlog.tiles import ENTRIES, Tile, decode_bundle
from veen_storage.copies.clone import clone
from veen_storage.copies.export import export, export_hub, verify_export, verify_hub_export
from veen_storage.copies.fork import fork
from veen_storage.disk.directory_lock import DirectoryLock
from veen_storage.disk.layout import Layout
from veen_storage.errors import DamageError, LockedError, MismatchError, StorageError
from veen_storage.fsck import fsck
from veen_storage.opening.observer import Observer, open_source
from veen_storage.store import Store, create
from veen_testing.forks import check_fork

from .sample import BORN, HUB_ID, HUB_KEY, Unsynced, at, signing_key
from .scripted_run import memory_folder

LIMITS = Limits(max_msg_bytes=2_048, max_body_bytes=1_024, max_chunk_bytes=8_192, max_checkpoint_interval=12)


@pytest.fixture
def place() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


@pytest.fixture
def running(place: Path) -> Iterator[Path]:
    """A hub that writes, seals, checkpoints and prunes in a process of its own."""
    root = place / "hub"
    create(root, HUB_KEY, BORN, limits=LIMITS, zstd_level=1)
    child = Path(__file__).with_name("crash_child.py")
    told = place / "told"
    with (
        told.open("wb") as out,
        subprocess.Popen(
            [sys.executable, str(child), str(root), "0.01"], stdin=subprocess.PIPE, stdout=out
        ) as hub,
    ):
        assert hub.stdin is not None
        hub.stdin.write(b"fork 1\n")
        hub.stdin.flush()
        while told.stat().st_size < 100_000:
            assert hub.poll() is None
            time.sleep(0.01)
        yield root
        pid = int((root / "lock").read_text().split()[0])
        subprocess.run(["kill", "-KILL", str(pid)], check=True)
        hub.stdin.write(b"reap\n")
        hub.stdin.close()
        assert hub.wait(30) == 0


def test_a_running_hub_is_cloned_repeatedly_and_each_clone_is_complete(running: Path, place: Path) -> None:
    sizes = []
    for number in range(3):
        cut = clone(running, place / f"clone{number}", files=Unsynced())
        report = fsck(place / f"clone{number}", processes=1)
        assert report.faults == []
        assert cut.hub_log is not None
        assert report.counters.hub_log_entries == cut.hub_log.size
        sizes.append(sum(held.stream_seq for held in cut.labels))
        with Store(place / f"clone{number}") as copy:
            assert {copy.read.head(held.label).mmr_root for held in cut.labels} == {
                held.mmr_root for held in cut.labels
            }
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1], "the hub went on"


def test_a_range_of_a_running_hub_is_exported_and_signed(running: Path, place: Path) -> None:
    with open_source(running) as source:
        assert isinstance(source, Observer)
        for number, label in enumerate(source.read.labels()):
            head = source.read.head(label)
            assert head is not None
            for form in ("set", "chunks"):
                folder = place / f"{form}{number}"
                export(source, label, StreamSeq(1), head.stream_seq, folder, form=form, files=Unsynced())
                verified = verify_export(folder, HUB_ID)
                assert (verified.manifest.to_seq, verified.signed) == (head.stream_seq, True)


def test_a_running_hub_is_exported_with_its_hub_log(running: Path, place: Path) -> None:
    with open_source(running) as source:
        manifest = export_hub(source, place / "export", files=Unsynced())
    verified = verify_hub_export(place / "export", HUB_ID)
    assert verified.manifest == manifest
    assert verified.checkpoint is not None


def test_the_hub_log_of_a_running_hub_is_read_as_of_one_moment(running: Path) -> None:
    with open_source(running) as source:
        log, before = source.hub_log, 0
        for _ in range(50):
            signed = log.checkpoint
            assert signed is not None
            assert signed.head.size >= before
            before = signed.head.size
            assert log.root_at(before) == signed.head.root
            last = before - 1
            bundle = decode_bundle(log.bundle(Tile(ENTRIES, last // 256, last % 256 + 1)))
            proof = log.prove_inclusion(last, before)
            tree.verify_inclusion(tree.leaf_hash(bundle[-1]), last, before, proof, signed.head.root)
            head = LabelHead.decode(bundle[-1])
            assert log.head_of(head.label, None, before) == (head, last)


def test_a_running_hub_is_forked(running: Path, place: Path) -> None:
    fork(running, place / "fork", signing_key("fork/0"), at(0), files=Unsynced())
    check_fork(place / "fork")


def test_entries_applied_later_are_visible_in_the_next_view(running: Path) -> None:
    with open_source(running) as source:
        label = source.read.labels()[0]
        first = source.read.head(label)
        while source.read.head(label) == first:
            pass


def test_the_keys_of_a_running_hub_are_not_copied(running: Path, place: Path) -> None:
    with pytest.raises(StorageError, match="stop the hub before you copy its keys"):
        clone(running, place / "clone", with_keys=True)
    assert not (place / "clone").exists()


def test_a_directory_under_repair_cannot_be_observed(running: Path, place: Path) -> None:
    clone(running, place / "clone", files=Unsynced())
    lock = DirectoryLock(Layout(place / "clone"))
    try:
        with pytest.raises(LockedError, match="in use by process"):
            clone(place / "clone", place / "second")
    finally:
        lock.release()


def test_an_index_of_another_hub_is_not_read(running: Path, place: Path) -> None:
    other = place / "other"
    create(other, signing_key("other"), BORN)
    (other / "index" / "data.mdb").unlink()
    (other / "index" / "data.mdb").hardlink_to(running / "index" / "data.mdb")
    with pytest.raises(MismatchError, match="belongs to another hub"):
        Observer(other)


def test_a_second_observer_in_one_process_is_refused_without_damage(running: Path, place: Path) -> None:
    with Observer(running), pytest.raises(StorageError, match="already open in this process") as caught:
        clone(running, place / "clone")
    assert not isinstance(caught.value, DamageError)


def test_reader_slots_of_killed_observers_are_reused(running: Path) -> None:
    reads = "from veen_storage.opening.observer import Observer; from pathlib import Path; import sys\n"
    reads += "with Observer(Path(sys.argv[1])).index.reading(): print(flush=True); sys.stdin.read()"
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", reads, str(running)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as observer:
            assert observer.stdout is not None
            observer.stdout.readline()
            observer.kill()
    with Observer(running) as source:
        hub = (running / "lock").read_text().split()[0]
        pids = {row.split()[0] for row in source.index._env.readers().splitlines()[1:]}
        assert pids <= {hub, str(os.getpid())}


def test_an_observer_waits_for_entries_that_were_durable_before(running: Path) -> None:
    with Observer(running) as source:
        before = source._last_batch()
        assert before > 0
        assert source.settle(30)
        assert source._meta(b"applied") >= before


def test_a_hub_that_does_not_apply_its_acknowledged_batches_is_not_cloned(
    running: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("veen_storage.opening.observer.OBSERVER_TIMEOUT_SEC", 0.1)
    monkeypatch.setattr(Observer, "_last_batch", lambda _self: 2**60)
    with pytest.raises(StorageError, match="did not apply all its batches"):
        clone(running, place / "clone")
    assert not (place / "clone").exists()
