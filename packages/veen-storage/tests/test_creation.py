"""An interrupted creation of a data directory is started over, and loses nothing that was not its own."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import pytest

from veen_core.ids import StreamSeq
from veen_storage.errors import StorageError
from veen_storage.store import Store, create

from .faulty_files import FaultyFiles
from .oracle import Promises, check_directory
from .sample import BORN, HUB_KEY, ORDERS, send, signing_key, tree

OTHER_KEY = signing_key("another hub")


def interrupt_creation(root: Path, operation: int) -> bool:
    """Create until file operation number ``operation`` fails; False if creation has fewer."""
    try:
        create(root, HUB_KEY, BORN, files=FaultyFiles(operation, "after", for_ever=True))
    except OSError:
        return True
    return False


def test_a_creation_interrupted_anywhere_is_started_over_with_another_key(tmp_path: Path) -> None:
    for operation in count(1):
        root = tmp_path / f"{operation}"
        if not interrupt_creation(root, operation):
            break
        if (root / "VERSION").exists():
            continue
        identity = create(root, OTHER_KEY, BORN)
        assert identity.newest.hub_pk == OTHER_KEY.public
        check_directory(root, Promises())
        shutil.rmtree(root)
    assert operation > 30


def test_opening_an_interrupted_creation_names_the_command_to_run(tmp_path: Path) -> None:
    root = tmp_path / "hub"
    assert interrupt_creation(root, 25)
    with pytest.raises(StorageError, match=r"creation was interrupted; run `veen hub init` again;"):
        Store(root)


def test_starting_over_keeps_the_key_that_the_first_attempt_wrote(tmp_path: Path) -> None:
    root = tmp_path / "hub"
    assert interrupt_creation(root, 25)
    (key,) = (root / "keys").iterdir()
    content = key.read_bytes()
    create(root, OTHER_KEY, BORN)
    assert key.read_bytes() == content
    assert len(list((root / "keys").iterdir())) == 2


@pytest.mark.parametrize("name", ["notes.txt", "log/notes.txt", "journal/journal-1.wal", "index/notes.txt"])
def test_a_folder_with_anything_else_in_it_is_refused_and_not_changed(tmp_path: Path, name: str) -> None:
    root = tmp_path / "hub"
    assert interrupt_creation(root, 25)
    (root / name).write_bytes(b"of the operator")
    before = tree(root)
    with pytest.raises(StorageError, match="is not empty"):
        create(root, OTHER_KEY, BORN)
    assert tree(root) == before


def test_a_finished_directory_is_refused_and_not_changed(tmp_path: Path) -> None:
    create(tmp_path / "hub", HUB_KEY, BORN)
    before = tree(tmp_path)
    with pytest.raises(StorageError, match="is a data directory already"):
        create(tmp_path / "hub", OTHER_KEY, BORN)
    assert tree(tmp_path) == before


def test_a_log_that_lost_its_version_file_is_not_started_over(tmp_path: Path) -> None:
    root = tmp_path / "hub"
    create(root, HUB_KEY, BORN)
    with Store(root) as store:
        send(store, ORDERS)
    version = (root / "VERSION").read_bytes()
    (root / "VERSION").unlink()
    with pytest.raises(StorageError, match="is not empty"):
        create(root, OTHER_KEY, BORN)
    (root / "VERSION").write_bytes(version)
    with Store(root) as store:
        assert store.read.receipt(ORDERS, StreamSeq(1)).stream_seq == 1


def test_the_operators_own_keys_folder_keeps_its_permissions(tmp_path: Path) -> None:
    """A folder that creation makes is private; one that exists belongs to the operator."""
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o750)
    shared.chmod(0o750)
    create(tmp_path / "one", HUB_KEY, BORN, keys_directory=shared)
    create(tmp_path / "two", OTHER_KEY, BORN)
    assert shared.stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "two" / "keys").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in shared.iterdir()} == {0o600}
