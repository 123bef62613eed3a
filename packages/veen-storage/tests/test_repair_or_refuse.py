"""Repair after a kill and the loss or truncation of one file, with and without the index.

Repair either refuses and changes nothing, or leaves a clean directory that opens and has every receipt.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest.mock import patch

import lmdb
import pytest

from veen_core.receipt import Receipt
from veen_storage.chunks.retention import PruneRule
from veen_storage.fsck import index_check
from veen_storage.fsck.repair import RefusedError, repair
from veen_storage.store import Store, create

from .oracle import check_files, drop
from .sample import BORN, HUB_KEY, INVOICES, ORDERS, SMALL, Unsynced, at, checkpoint, prune, send
from .scripted_run import memory_folder


def live(root: Path, second: int) -> list[Receipt]:
    """Write and seal chunks of two labels, make a checkpoint, prune a chunk; then kill the hub."""
    store = Store(root, background=False, files=Unsynced())
    told = send(store, ORDERS, 11, now=at(second))
    store.apply()
    told += send(store, INVOICES, 5, now=at(second + 1))
    checkpoint(store, INVOICES, at(second + 2))
    prune(store, ORDERS, PruneRule(max_age_sec=40), at(second + 3))
    told += send(store, ORDERS, 3, now=at(second + 4))
    drop(store)
    return told


@pytest.fixture(params=[None, 3], ids=["plain", "zstd"])
def killed(request: pytest.FixtureRequest) -> Iterator[tuple[Path, list[Receipt]]]:
    open_ = lmdb.open
    with (
        memory_folder() as folder,
        patch.object(lmdb, "open", partial(open_, sync=False)),
        patch.object(index_check, "run_isolated", lambda call, *args: call(*args)),
    ):
        root = folder / "hub"
        create(root, HUB_KEY, BORN, limits=SMALL, zstd_level=request.param, files=Unsynced())
        yield root, live(root, 1) + live(root, 50)


def contents(root: Path) -> dict[Path, bytes]:
    paths = (path for path in root.rglob("*") if path.is_file() and path.name not in {"lock", "lock.mdb"})
    return {path.relative_to(root): path.read_bytes() for path in paths}


def check_repaired(root: Path, told: list[Receipt]) -> None:
    with Store(root, background=False, files=Unsynced()) as store:
        assert [store.read.receipt(receipt.label, receipt.stream_seq) for receipt in told] == told
    check_files(root)


@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
@pytest.mark.parametrize("cut", [True, False], ids=["cut", "lost"])
def test_repair_refuses_or_leaves_a_clean_directory_with_every_receipt(
    killed: tuple[Path, list[Receipt]], cut: bool, index: bool
) -> None:
    root, told = killed
    done = {"refused": 0, "repaired": 0}
    for path in sorted((root / "log").iterdir()):
        copy = Path(shutil.copytree(root, root.with_name("copy")))
        damaged = copy / "log" / path.name
        content = damaged.read_bytes()
        damaged.unlink()
        if cut:
            damaged.write_bytes(content[: len(content) // 2])
        if not index:
            shutil.rmtree(copy / "index")
        before = contents(copy)
        try:
            repair(copy, files=Unsynced())
        except RefusedError:
            done["refused"] += 1
            assert contents(copy) == before, path.name
        else:
            done["repaired"] += 1
            check_repaired(copy, told)
        shutil.rmtree(copy)
    assert min(done.values()) > 5, done
