"""Power cuts: at every operation, whatever was not synced is lost, or any part of it survives.

And the proof that this can fail: with any one kind of sync left out, some cut loses a promise.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from veen_core.errors import VeenError
from veen_storage.disk.files import Files
from veen_storage.errors import StorageError
from veen_storage.store import Store

from .faulty_files import Cut, Forgets, ForgettingFiles, KilledError, noting_the_index
from .oracle import Promises, check_directory, check_files, drop
from .scripted_run import Run, memory_folder
from .thorough import THOROUGH, share


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as path:
        yield path


def forgetting(
    base: Path,
    *,
    background: bool = False,
    zstd_level: int | None = None,
    forgets: Forgets = lambda _name, _path: False,
) -> tuple[Run, ForgettingFiles]:
    base.mkdir()
    promises = Promises()
    files = ForgettingFiles(base, lambda: len(promises.told), forgets)
    return Run(base / "hub", files, background, zstd_level, promises), files


def play(folder: Path, **how: Any) -> tuple[Run, Path, list[Cut]]:
    """A whole run, with what a power cut before each of its operations would have left."""
    run, files = forgetting(folder / "base", **how)
    with noting_the_index(files):
        run.play()
    return run, folder / "base", files.finish()


def check_cut(run: Run, base: Path, cut: Cut, target: Path, chance: random.Random | None = None) -> None:
    """What is left opens and holds what was promised by then; before VERSION, it is refused clearly."""
    cut.leave(base, target, chance)
    try:
        promises = run.promises.first(cut.promised)
        if (target / "hub" / "VERSION").exists():
            check_directory(target / "hub", promises, as_it_is=chance is None)
        else:
            assert not promises.created, "the whole directory is lost"
            with pytest.raises(StorageError, match="has no VERSION"):
                Store(target / "hub")
    except BaseException as exc:
        exc.add_note(f"power cut before {cut.before}")
        raise
    finally:
        shutil.rmtree(target)


def check_cuts(run: Run, base: Path, cuts: list[Cut], target: Path) -> int:
    """All of them, those that leave the same once; says how many were looked at."""
    looked_at = set()
    for cut in cuts:
        if (key := (cut.promised, cut.key())) not in looked_at:
            looked_at.add(key)
            check_cut(run, base, cut, target)
    return len(looked_at)


KINDS = {
    "in the foreground": (False, None),
    "in the background": (True, None),
    "compressed": (False, 3),
}


@pytest.mark.parametrize(("background", "zstd_level"), KINDS.values(), ids=KINDS)
def test_a_power_cut_at_any_operation_loses_nothing_that_was_promised(
    folder: Path, background: bool, zstd_level: int | None
) -> None:
    run, base, cuts = play(folder, background=background, zstd_level=zstd_level)
    assert len(cuts) > 200
    assert check_cuts(run, base, cuts, folder / "left") > 30


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_power_cut_may_also_leave_any_part_of_unsynced_writes(folder: Path, seed: int) -> None:
    """Of a folder, any of the changes to its names; of a file, old or new content, or sectors of either."""
    run, base, cuts = play(folder, zstd_level=3 if seed % 2 else None)
    for number, cut in share(list(enumerate(cuts)), 3, seed):
        check_cut(run, base, cut, folder / "left", random.Random(1_000 * seed + number))


def test_fsck_accepts_a_directory_that_only_needs_recovery(folder: Path) -> None:
    """It would send the operator for a clone, where opening the directory puts everything right."""
    run, base, cuts = play(folder)
    for number, cut in share(list(enumerate(cuts)), 3):
        if run.promises.first(cut.promised).created:
            cut.leave(base, folder / f"{number}", random.Random(number))
            check_files(folder / f"{number}" / "hub")
            shutil.rmtree(folder / f"{number}")


def test_a_power_cut_after_a_kill_and_a_reopening_loses_nothing_either(folder: Path) -> None:
    """What the killed process did not sync is in the cache still: the next must not take it for durable."""
    for number in count(1, 1 if THOROUGH else 2):
        run, files = forgetting(folder / f"{number}", zstd_level=3 if number % 2 else None)
        files.dies_at = number
        with noting_the_index(files):
            try:
                run.play()
            except KilledError as death:
                note = f"killed before {death}"
            else:
                break
            if run.store is not None:
                drop(run.store)
            if not (run.root / "VERSION").exists():
                continue
            Store(run.root, files=files, background=False).close()
        try:
            check_cut(run, run.root.parent, files.finish()[-1], folder / "left")
        except BaseException as exc:
            exc.add_note(note)
            raise
        shutil.rmtree(run.root)
    assert number > 200


# --- the proof that it can fail


FORGETFUL: dict[str, Forgets] = {
    "no file": lambda name, _path: name == "sync",
    "not the journal": lambda name, path: name == "sync" and path.parent.name == "journal",
    "no chunk": lambda name, path: name == "sync" and path.suffix == ".open",
    "no checkpoint": lambda name, path: name == "sync" and "checkpoint-" in path.name,
    "no pruned chunk": lambda name, path: name == "sync" and ".pruned" in path.name,
    "no entry of the hub log": lambda name, path: name == "sync" and path.name == "entries",
    "no hub checkpoint": lambda name, path: name == "sync" and path.name == "checkpoint.tmp",
    "nothing that is published": lambda name, path: name == "sync" and path.name == "published.tmp",
    "no attachment": lambda name, path: name == "sync" and "attachments" in path.parts,
    "no folder": lambda name, _path: name == "sync_directory",
    "not the folder of the directory": lambda name, path: name == "sync_directory" and path.name == "base",
    "not the directory itself": lambda name, path: name == "sync_directory" and path.name == "hub",
    "not the keys": lambda name, path: name == "sync_directory" and path.name == "keys",
    "not the journal's folder": lambda name, path: name == "sync_directory" and path.name == "journal",
    "not the hub log's folder": lambda name, path: name == "sync_directory" and path.name == "hublog",
    "not the log's folder": lambda name, path: name == "sync_directory" and path.name == "log",
    "not the attachments' folders": lambda name, path: (
        name == "sync_directory" and "attachments" in path.parts
    ),
}


@pytest.mark.parametrize("forgets", FORGETFUL.values(), ids=FORGETFUL)
def test_a_missing_sync_is_detected_by_these_tests(folder: Path, forgets: Forgets) -> None:
    run, base, cuts = play(folder, forgets=forgets)
    with pytest.raises((AssertionError, VeenError, OSError)):
        check_cuts(run, base, list(reversed(cuts)), folder / "left")


def test_files_that_never_sync_are_noticed(folder: Path) -> None:
    """The same with ``Files`` whose syncs do nothing, rather than with a disk that forgets them."""

    class Careless(ForgettingFiles):
        def sync(self, fd: int) -> None:
            Files.sync(self, fd)

        def sync_directory(self, path: Path) -> None:
            Files.sync_directory(self, path)

    promises = Promises()
    base = folder / "base"
    base.mkdir()
    files = Careless(base, lambda: len(promises.told))
    run = Run(base / "hub", files, promises=promises)
    with noting_the_index(files):
        run.play()
    with pytest.raises(AssertionError, match="the whole directory is lost"):
        check_cut(run, base, files.finish()[-1], folder / "left")
