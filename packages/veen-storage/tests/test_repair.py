"""repair rebuilds the index from the log, and refuses to invent anything else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from veen_core.ids import StreamSeq
from veen_storage.chunks.retention import PruneRule, due
from veen_storage.disk.layout import Layout
from veen_storage.errors import LockedError
from veen_storage.fsck import fsck
from veen_storage.fsck.repair import RefusedError, rebuild_index, repair
from veen_storage.index.lmdb_index import TABLES, Index
from veen_storage.store import Store, create

from .sample import (
    BORN,
    HUB_KEY,
    INVOICES,
    ORDERS,
    SMALL,
    Rate,
    at,
    authorize,
    checkpoint,
    label,
    send,
    token,
    tree,
)
from .test_fsck import NEW, abandon, chunk_path, make, offset_of

Rows = dict[str, dict[bytes, bytes]]
NUMBER_AT: dict[str, int | None] = {"labels": None, "caps": None, "attachments": None, "meta": None}
NUMBER_AT |= {"hub_nodes": None, "hub_bundles": None, "hub_moved": None}
NUMBER_AT |= {"all_times": 8, "buckets": 32, "epochs": 8}
"""Offset of the label's number in the keys of each table; 0 in all others."""


@pytest.fixture(scope="module", params=[None, 3], ids=["plain", "zstd"])
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("repair") / "data", request.param)


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "data"))


def rows(root: Path) -> Rows:
    """Return every table with labels instead of numbers, without the rows that files do not determine."""
    index = Index(root / "index", readonly=True)
    with index.reading() as view:
        names = {value: key for key, value in view.scan("labels", b"")}
        found = {table: dict(_named(table, view.scan(table, b""), names)) for table in TABLES}
    index.close()
    found["labels"] = dict.fromkeys(found["labels"], b"")
    for untold in (b"applied", b"finishing"):
        found["meta"].pop(untold, None)
    return found


def _named(table: str, held: object, names: dict[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    out = []
    for key, value in held:  # type: ignore[attr-defined]
        at_ = 7 if key.startswith(b"control") and table == "meta" else NUMBER_AT.get(table, 0)
        named = key if at_ is None else key[:at_] + names[key[at_ : at_ + 4]] + key[at_ + 4 :]
        out.append((named, value))
    return out


def unapplied(root: Path) -> None:
    """Write entries that only the journal holds."""
    store = Store(root, background=False)
    send(store, ORDERS, 12, now=at(70))
    send(store, NEW, 9, now=at(71))
    checkpoint(store, NEW, at(71))
    abandon(store)


def test_repair_rebuilds_the_same_index(root: Path) -> None:
    before, log = rows(root), tree(root, "log")
    shutil.rmtree(root / "index")
    report = repair(root)
    assert rows(root) == before
    assert tree(root, "log") == log
    assert (report.rewritten, report.counters.entries) == ([], 50)
    assert fsck(root, processes=1).ok
    assert not (root / "index.tmp").exists()
    assert not (root / "index.old").exists()


def test_a_repaired_directory_continues_exactly_as_an_undamaged_one(root: Path, tmp_path: Path) -> None:
    twin = Path(shutil.copytree(root, tmp_path / "twin"))
    shutil.rmtree(root / "index")
    repair(root)
    for each in (root, twin):
        with Store(each, background=False) as store:
            send(store, ORDERS, 20, now=at(100))
            send(store, label("newer"), 20, now=at(101))
            store.apply()
    assert tree(root, "log") == tree(twin, "log")
    assert rows(root) == rows(twin)


def test_repair_leaves_pending_batches_to_the_next_start(root: Path, tmp_path: Path) -> None:
    unapplied(root)
    twin = Path(shutil.copytree(root, tmp_path / "twin"))
    shutil.rmtree(root / "index")
    report = repair(root)
    assert report.counters.entries == 71
    assert fsck(root, processes=1).ok
    for each in (root, twin):
        Store(each, background=False).close()
    assert rows(root) == rows(twin)
    assert tree(root, "log") == tree(twin, "log")


@pytest.mark.parametrize("step", ["index", "finish"])
def test_repair_after_an_interrupted_round_of_the_applier_loses_nothing(
    step: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(root, background=False)
    send(store, ORDERS, 12, now=at(70))
    send(store, NEW, 20, now=at(71))
    batch = store.batch(at(72))
    batch.prune(due(store.index, INVOICES, PruneRule(max_age_sec=0), at(72))[0])
    batch.anchor(INVOICES, StreamSeq(8), b"anchored")
    store.commit(batch)

    def stop(*_: object) -> None:
        raise OSError(5, "cut off")

    target, name = (store._index, "write") if step == "index" else (store._applier, "finish")
    monkeypatch.setattr(target, name, stop)
    with pytest.raises(OSError, match="cut off"):
        store.apply()
    abandon(store)
    twin = Path(shutil.copytree(root, tmp_path / "twin"))
    shutil.rmtree(root / "index")
    repair(root)
    report = fsck(root, processes=1)
    assert report.ok, str(report)
    for each in (root, twin):
        Store(each, background=False).close()
    assert rows(root) == rows(twin)
    assert tree(root, "log") == tree(twin, "log")
    assert fsck(root, processes=1).ok


def test_a_torn_entry_is_written_again_if_the_journal_holds_it(root: Path) -> None:
    store = Store(root, background=False)
    send(store, ORDERS, 1, now=at(70))
    frame = store._queue.waiting[0].steps[-1].frame  # type: ignore[union-attr]
    abandon(store)
    path = chunk_path(root, ORDERS, 25)
    path.write_bytes(path.read_bytes() + frame[:99])
    shutil.rmtree(root / "index")
    repair(root)
    assert fsck(root, processes=1).ok
    with Store(root, background=False) as opened:
        assert opened.read.entry(ORDERS, StreamSeq(31)).encode() == frame


def test_a_torn_entry_that_nothing_else_holds_is_refused(root: Path) -> None:
    path = chunk_path(root, ORDERS, 25)
    path.write_bytes(path.read_bytes() + b"\x01" * 40)
    refuses(root, path.name, len(path.read_bytes()) - 40)


def refuses(root: Path, file: str, offset: int | None) -> None:
    shutil.rmtree(root / "index")
    before = tree(root)
    with pytest.raises(RefusedError) as refused:
        repair(root)
    assert (refused.value.file, refused.value.offset) == (file, offset)
    assert file in str(refused.value)
    after = tree(root)
    assert {**after, "lock": b""} == {**before, "lock": b""}
    assert not (root / "index.tmp").exists()


def test_a_damaged_chunk_is_refused_and_everything_left_as_it_was(root: Path) -> None:
    path = chunk_path(root, INVOICES, 17)
    data = bytearray(path.read_bytes())
    data[offset_of(path, 1) + 120] ^= 1
    path.write_bytes(data)
    refuses(root, path.name, offset_of(path, 1))


def test_a_missing_chunk_is_refused(root: Path) -> None:
    path = chunk_path(root, INVOICES, 9)
    path.unlink()
    refuses(root, path.name, None)


@pytest.mark.parametrize("kind", ["checkpoint", "anchor", "pruned"])
def test_a_damaged_file_that_cannot_be_derived_is_refused(root: Path, kind: str) -> None:
    pattern = f"*{ORDERS.hex()}*.pruned" if kind == "pruned" else f"{kind}-{ORDERS.hex()}-*"
    path = next((root / "log").glob(pattern))
    path.write_bytes(b"\xa0")
    refuses(root, path.name, 0)


def test_a_damaged_journal_is_refused(root: Path) -> None:
    unapplied(root)
    path = next((root / "journal").glob("journal-*.wal"))
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    refuses(root, path.name, 0)


def test_repair_refuses_if_the_old_index_knows_entries_that_no_file_holds(root: Path) -> None:
    path = chunk_path(root, INVOICES, 17)
    path.write_bytes(path.read_bytes()[: offset_of(path, 1)])
    with pytest.raises(RefusedError, match="entries 18 to 18 are in the index, but in no file"):
        repair(root)


def _delete(path: Path) -> None:
    path.unlink()


def _garble(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3] + b"\x00\x00\x00")


@pytest.mark.parametrize("harm", [_delete, _garble], ids=["deleted", "garbled"])
@pytest.mark.parametrize(
    "pattern",
    [
        f"log/chunk-{INVOICES.hex()}-*.summary",
        f"log/peaks-{INVOICES.hex()}-*",
        f"log/checkpoint-index-{INVOICES.hex()}.cbor",
        "checkpoint-binding.cbor",
        "hub-key-map.cbor",
        "hub-identity.sig",
    ],
)
def test_a_derived_file_is_rebuilt(root: Path, pattern: str, harm: Callable[[Path], None]) -> None:
    before = rows(root)
    path = next(root.glob(pattern))
    content = path.read_bytes()
    harm(path)
    report = repair(root)
    assert report.rewritten == [path.name]
    if path.name != "checkpoint-binding.cbor":  # its lines may stand in any order
        assert path.read_bytes() == content
    assert rows(root) == before
    assert fsck(root, processes=1).ok


def test_without_the_hubs_key_a_damaged_identity_signature_is_refused(root: Path) -> None:
    shutil.rmtree(root / "keys")
    (root / "hub-identity.sig").unlink()
    with pytest.raises(RefusedError, match="key to sign again is not in keys/"):
        repair(root)


def test_a_directory_that_is_open_is_refused(root: Path) -> None:
    with Store(root, background=False), pytest.raises(LockedError):
        repair(root)


def test_an_index_can_be_built_before_version_exists(root: Path) -> None:
    before = rows(root)
    shutil.rmtree(root / "index")
    (root / "VERSION").rename(root / "VERSION.later")
    rebuild_index(Layout(root))
    assert rows(root) == before


def test_a_token_that_was_used_before_it_was_authorized_keeps_its_record(tmp_path: Path) -> None:
    root = tmp_path / "data"
    create(root, HUB_KEY, BORN, limits=SMALL)
    given = token(rate=Rate(per_sec=1, burst=50))
    with Store(root, background=False) as store:
        send(store, ORDERS, 3, now=at(0), auth_ref=given.auth_ref)
        authorize(store, given, at(5))
        send(store, ORDERS, 3, now=at(6), auth_ref=given.auth_ref)
        send(store, INVOICES, 3, now=at(9), auth_ref=token(who="bob").auth_ref)
        send(store, ORDERS, 1, now=at(8), auth_ref=token(who="bob").auth_ref)
        store.apply()
    before = rows(root)
    assert before["buckets"]
    assert fsck(root, processes=1).ok
    shutil.rmtree(root / "index")
    repair(root)
    assert rows(root) == before


def test_a_token_used_beyond_its_rate_before_it_was_authorized_in_the_same_second_is_no_fault(
    tmp_path: Path,
) -> None:
    """The hub did not know the rate yet; the log does not show which of the two happened first."""
    root = tmp_path / "data"
    create(root, HUB_KEY, BORN, limits=SMALL)
    given = token(rate=Rate(per_sec=0, burst=2))
    with Store(root, background=False) as store:
        send(store, ORDERS, 3, now=at(5), auth_ref=given.auth_ref)
        authorize(store, given, at(5))
        send(store, ORDERS, 1, now=at(6), auth_ref=given.auth_ref)
        store.apply()
    report = fsck(root, processes=1)
    assert report.ok, str(report)
    assert any(given.claims_ref.hex() in note for note in report.notes)
