"""One process at a time has a data directory open, whatever happens to the files in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from veen_storage.disk.directory_lock import lock_owner
from veen_storage.errors import LockedError
from veen_storage.store import Store, create

from .sample import BORN, HUB_KEY

OPEN_IT = (
    "import sys; from pathlib import Path; from veen_storage.store import Store; Store(Path(sys.argv[1]))"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    create(tmp_path / "data", HUB_KEY, BORN)
    return tmp_path / "data"


def test_an_open_directory_has_an_owner_and_a_closed_one_has_none(root: Path) -> None:
    assert lock_owner(root.with_name("missing")) is None
    assert lock_owner(root) is None
    with Store(root):
        assert lock_owner(root) == os.getpid()
    assert lock_owner(root) is None


def test_asking_for_the_owner_does_not_lock_the_directory(root: Path) -> None:
    assert lock_owner(root) is None
    Store(root).close()
    assert lock_owner(root) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists who holds a lock")
def test_the_owner_is_known_also_after_its_note_was_deleted(root: Path) -> None:
    with Store(root):
        (root / "lock").unlink()
        assert lock_owner(root) == os.getpid()
        with pytest.raises(LockedError, match=f"is in use by process {os.getpid()}"):
            Store(root)
    assert lock_owner(root) is None


@pytest.mark.parametrize("removed", ["lock", "index/lock.mdb", "journal/applied"])
def test_a_second_process_stays_out_also_after_a_file_was_deleted(root: Path, removed: str) -> None:
    with Store(root):
        (root / removed).unlink()
        second = subprocess.run(
            [sys.executable, "-c", OPEN_IT, str(root)], capture_output=True, text=True, check=False
        )
        assert second.returncode != 0
        assert "LockedError" in second.stderr
        assert "is in use by process" in second.stderr


def test_a_second_process_stays_out_when_the_directory_is_moved(root: Path) -> None:
    with Store(root):
        moved = root.rename(root.with_name("moved"))
        with pytest.raises(LockedError):
            Store(moved)
        moved.rename(root)
