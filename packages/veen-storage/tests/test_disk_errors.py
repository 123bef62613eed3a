"""What the disk does not give, and does not take: said with the file's name and what to do."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from veen_core.hashing import H
from veen_core.ids import Coid, StreamSeq
from veen_storage.chunks.retention import PruneRule
from veen_storage.disk import files as files_module
from veen_storage.disk.files import MIN_FILES_FOR_SYNCFS, Files, reports_sync_errors
from veen_storage.errors import DamageError
from veen_storage.store import Store

from .conftest import MakeStore
from .sample import ORDERS, at, prune, send


@pytest.mark.parametrize("kind", ["growing", "sealed", "compressed", "pruned"])
def test_an_unreadable_file_is_named(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    store = make_store(zstd_level=3 if kind == "compressed" else None)
    send(store, ORDERS, 10)
    if kind == "pruned":
        prune(store, ORDERS, PruneRule(max_age_sec=0), at(60))
    store.apply()
    seq = StreamSeq(9 if kind == "growing" else 2)
    store.read.entries(ORDERS, seq, 1)

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(DamageError, match=r"chunk-.*cannot be read \(Input/output error\).*restore it"):
        store.read.receipt(ORDERS, seq)


def test_an_attachment_that_cannot_be_read_is_named_and_may_be_put_again(store: Store) -> None:
    coid = Coid(H(b"attached"))
    store.attachments.put(coid, [b"attached"])
    path = store.layout.attachment(coid)
    path.unlink()
    path.symlink_to("/proc/self/mem")  # opens, and gives an I/O error at its first byte
    with pytest.raises(DamageError, match=rf"attachments/{coid.hex()}: cannot be read"):
        list(store.attachments.get(coid))
    assert store.attachments.put(coid, [b"attached"])
    assert b"".join(store.attachments.get(coid)) == b"attached"


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    files = Files()
    fd = files.open_append(tmp_path / "full")
    try:
        for call in (lambda: files.write(fd, b"more", -1), lambda: files.truncate(fd, -1)):
            with pytest.raises(OSError, match="Invalid argument") as refused:
                call()
            assert refused.value.filename == str(tmp_path / "full")
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("release", "reported"),
    [("6.18.44", True), ("5.8.0", True), ("5.4.0-216-generic", False), ("4.18", False)],
)
def test_syncfs_is_used_only_on_kernels_that_report_its_errors(release: str, reported: bool) -> None:
    assert reports_sync_errors("Linux", release) is reported
    assert not reports_sync_errors("Darwin", release)


class RecordingFiles(Files):
    """Notes which files were synced one by one, and which stand for their whole file system."""

    def __init__(self) -> None:
        self.synced: list[int] = []
        self.file_systems: list[int] = []

    def sync(self, fd: int) -> None:
        self.synced.append(fd)

    def sync_file_system(self, fd: int) -> None:
        self.file_systems.append(fd)


@pytest.fixture
def many_files(tmp_path: Path) -> Iterator[list[int]]:
    fds = [Files().open_append(tmp_path / f"{n}") for n in range(MIN_FILES_FOR_SYNCFS)]
    yield fds
    for fd in fds:
        os.close(fd)


@pytest.mark.parametrize(
    ("name", "magic", "reliable"),
    [
        ("ext4", 0xEF53, True),
        ("xfs", 0x58465342, True),
        ("btrfs", 0x9123683E, True),
        ("f2fs", 0xF2F52010, True),
        ("fuse", 0x65735546, False),
        ("nfs", 0x6969, False),
        ("cifs", 0xFF534D42, False),
        ("unknown", 0, False),
    ],
)
def test_many_files_are_synced_one_by_one_unless_syncfs_reaches_the_disk(
    many_files: list[int], monkeypatch: pytest.MonkeyPatch, name: str, magic: int, reliable: bool
) -> None:
    """On FUSE syncfs returns success and syncs nothing."""
    monkeypatch.setattr(files_module, "_HAS_SYNCFS", True)
    monkeypatch.setattr(files_module, "_file_system_magic", lambda _fd: magic)
    files = RecordingFiles()
    files.sync_many(many_files)
    assert files.file_systems == (many_files[:1] if reliable else []), name
    assert files.synced == ([] if reliable else many_files), name


def test_files_on_several_file_systems_are_all_synced(
    many_files: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One syncfs reaches one file system: the files of another one need their own."""
    elsewhere = os.memfd_create("elsewhere")
    monkeypatch.setattr(files_module, "syncfs_is_reliable", lambda _fd: True)
    files = RecordingFiles()
    try:
        files.sync_many([*many_files, elsewhere])
    finally:
        os.close(elsewhere)
    assert files.file_systems == many_files[:1]
    assert files.synced == [elsewhere]


def test_the_file_system_of_an_open_file_is_recognized(many_files: list[int]) -> None:
    """The kernel's own answer, compared with what `stat -f` prints."""
    shown = subprocess.run(
        ["stat", "-f", "-c", "%t", f"/proc/self/fd/{many_files[0]}"],
        capture_output=True,
        text=True,
        check=True,
        pass_fds=many_files[:1],
    )
    assert files_module._file_system_magic(many_files[0]) == int(shown.stdout, 16)
