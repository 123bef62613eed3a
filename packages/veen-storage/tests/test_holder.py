from __future__ import annotations

import os
from pathlib import Path

from veen_core.ids import UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_storage.disk.lock_owner import holder
from veen_storage.store import Store, create


def test_an_open_directory_names_its_process_and_a_closed_one_nobody(tmp_path: Path) -> None:
    root = tmp_path / "data"
    assert holder(root) is None
    create(root, SigningKey(SigningSeed(bytes(32))), UnixTime(1))
    assert holder(root) is None
    with Store(root):
        assert holder(root) == os.getpid()
    assert holder(root) is None


def test_asking_does_not_keep_anybody_out(tmp_path: Path) -> None:
    root = tmp_path / "data"
    create(root, SigningKey(SigningSeed(bytes(32))), UnixTime(1))
    assert holder(root) is None
    Store(root).close()
    assert holder(root) is None
