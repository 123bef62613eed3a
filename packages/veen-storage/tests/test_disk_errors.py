"""What the disk does not give, and does not take: said with the file's name and what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from veen_core.hashing import H
from veen_core.ids import Coid, StreamSeq
from veen_storage.chunks.retention import Rule
from veen_storage.disk.files import Files, tells_errors
from veen_storage.errors import DamageError
from veen_storage.store import Store

from .conftest import MakeStore
from .sample import ORDERS, at, prune, send


@pytest.mark.parametrize("kind", ["growing", "sealed", "compressed", "pruned"])
def test_what_cannot_be_read_is_named(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    store = make_store(zstd_level=3 if kind == "compressed" else None)
    send(store, ORDERS, 10)
    if kind == "pruned":
        prune(store, ORDERS, Rule(max_age_sec=0), at(60))
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
    ("release", "told"),
    [("6.18.44", True), ("5.8.0", True), ("5.4.0-216-generic", False), ("4.18", False)],
)
def test_a_whole_file_system_is_synced_only_where_errors_are_told(release: str, told: bool) -> None:
    assert tells_errors("Linux", release) is told
    assert not tells_errors("Darwin", release)
