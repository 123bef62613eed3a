"""Clone, fork, export and repair while each of their file operations fails, before or after it takes effect.

A copy is complete or does not count as one, the source is unchanged, and repair can be repeated.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from unittest.mock import patch

import lmdb
import pytest

from veen_core.errors import VeenError
from veen_core.export import MANIFEST, ExportForm
from veen_core.hub_export import HUB_EXPORT
from veen_core.ids import StreamSeq
from veen_storage.copies.clone import clone
from veen_storage.copies.export import export, export_hub, verify_export, verify_hub_export
from veen_storage.copies.fork import fork
from veen_storage.disk.files import Files
from veen_storage.fsck.repair import repair
from veen_storage.store import Store

from .faulty_files import FaultyFiles, When
from .oracle import check_directory, check_files, examine
from .sample import INVOICES, at, signing_key, tree
from .scripted_run import Run, memory_folder

BOTH = pytest.mark.parametrize("when", ["before", "after"])


@pytest.fixture
def run() -> Iterator[Run]:
    """A directory written by the scripted run; LMDB does not sync."""
    open_ = lmdb.open
    with (
        memory_folder() as folder,
        patch.object(lmdb, "open", lambda *args, **how: open_(*args, **{**how, "sync": False})),
    ):
        lived = Run(folder / "hub", Files(), zstd_level=3)
        lived.play()
        Store(lived.root, background=False).close()  # what its end left for recovery
        yield lived


def failing(when: When, do: Callable[[FaultyFiles], object], check: Callable[[], None]) -> int:
    """Run ``do`` with its first file operation failing, then its second, and so on; ``check`` after each."""
    for number in count(1):
        files = FaultyFiles(number, when)
        try:
            do(files)
        except OSError:
            assert files.failed is not None
        else:
            assert files.failed is None, f"{files.failed} failed, and nobody noticed"
            return number
        try:
            check()
        except BaseException as exc:
            exc.add_note(f"{files.failed}; failed {when} it took effect")
            raise
    raise AssertionError


@BOTH
@pytest.mark.parametrize("kind", ["clone", "fork"])
def test_an_interrupted_copy_is_complete_or_not_a_data_directory(run: Run, when: When, kind: str) -> None:
    target, before = run.root.with_name("copy"), tree(run.root, "log")

    def copy(files: FaultyFiles) -> None:
        if kind == "clone":
            clone(run.root, target, with_keys=True, files=files)
        else:
            fork(run.root, target, signing_key("fork/0"), at(100), files=files)

    def check() -> None:
        if not (target / "VERSION").exists():
            with pytest.raises(VeenError, match="has no VERSION"):
                Store(target)
        else:
            check_files(target)
            if kind == "clone":
                with Store(target, background=False) as store:
                    examine(store, run.promises)
        shutil.rmtree(target, ignore_errors=True)
        assert tree(run.root, "log") == before

    assert failing(when, copy, check) > 100
    check_directory(run.root, run.promises)


@BOTH
@pytest.mark.parametrize("form", ["set", "chunks"])
def test_an_interrupted_export_is_complete_or_not_an_export(run: Run, when: When, form: ExportForm) -> None:
    target = run.root.with_name("export")
    with Store(run.root, background=False) as store:
        hub = store.identity.hub_id

        def write(files: FaultyFiles) -> None:
            export(store, INVOICES, StreamSeq(2), StreamSeq(7), target, form=form, files=files)

        def check() -> None:
            if (target / MANIFEST).exists():
                verify_export(target, hub)
            else:
                with pytest.raises(VeenError):
                    verify_export(target, hub)
            shutil.rmtree(target, ignore_errors=True)

        assert failing(when, write, check) > 20
    verify_export(target, hub)


@BOTH
def test_an_interrupted_export_of_a_hub_is_complete_or_not_an_export(run: Run, when: When) -> None:
    target = run.root.with_name("export")
    with Store(run.root, background=False) as store:
        hub = store.identity.hub_id

        def check() -> None:
            if (target / HUB_EXPORT).exists():
                verify_hub_export(target, hub)
            else:
                with pytest.raises(VeenError):
                    verify_hub_export(target, hub)
            shutil.rmtree(target, ignore_errors=True)

        assert failing(when, lambda files: export_hub(store, target, files=files), check) > 100
    verify_hub_export(target, hub)


@BOTH
def test_an_interrupted_repair_can_be_repeated(run: Run, when: When) -> None:
    folder = run.root.parent
    damaged = Path(shutil.copytree(run.root, folder / "damaged"))
    shutil.rmtree(damaged / "index")
    (damaged / "journal" / "applied").unlink()
    for pattern in (f"log/chunk-{INVOICES.hex()}-*.summary", "log/peaks-*", "log/checkpoint-index-*"):
        next(damaged.glob(pattern)).write_bytes(b"")
    again = folder / "again"
    shutil.copytree(damaged, again)

    def check() -> None:
        repair(again)
        check_files(again)
        with Store(again, background=False) as store:
            examine(store, run.promises)
        shutil.rmtree(again)
        shutil.copytree(damaged, again)

    assert failing(when, lambda files: repair(again, files=files), check) > 10
