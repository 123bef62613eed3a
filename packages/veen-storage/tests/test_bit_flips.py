"""No single flipped bit goes unnoticed, in any file of a data directory.

Every bit of the small files is flipped (in the usual run every third one, see ``thorough``), and a seeded
sample of bits of the large ones. Flips in version, registry and identity must be refused when the directory
is opened. Flips in the log must be found by the part of fsck that needs no LMDB, which takes milliseconds, or
else by fsck.

Bits that cannot matter, and are therefore not reported:

- ``lock``: its text is only shown to a process that finds the directory locked;
- ``index/lock.mdb``: LMDB's reader table, which every opening writes anew;
- pages of ``index/data.mdb`` without rows: free pages, and those of the transaction before the last;
- the one bit of a zstd frame header that the format reserves as unused: the content stays the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest

from veen_core.entry import FRAME_SIZE
from veen_core.errors import VeenError
from veen_core.ids import Coid, StreamSeq
from veen_core.limits import Limits
from veen_storage.chunks.chunk_files import ChunkFile
from veen_storage.chunks.retention import PruneRule, due
from veen_storage.commit.journal import HEADER_SIZE
from veen_storage.commit.journal_floor import read_floor
from veen_storage.copies.fork import fork
from veen_storage.disk.hub_keys import NextIdentity, read_identity
from veen_storage.disk.identity_artifacts import read_artifacts
from veen_storage.disk.layout import Layout
from veen_storage.disk.registry import read_registry
from veen_storage.errors import RESTORE, DamageError
from veen_storage.fsck import fsck
from veen_storage.fsck.context import FoldContext
from veen_storage.fsck.derived_index import DerivedIndex
from veen_storage.fsck.entries import LogTrust
from veen_storage.fsck.files import directory as fsck_directory
from veen_storage.fsck.files.attachments import check_attachment
from veen_storage.fsck.files.log_files import list_log
from veen_storage.fsck.journal_items import applied_by_files, read_journal
from veen_storage.fsck.log_check import check_log
from veen_storage.fsck.report import FsckLevel, Report
from veen_storage.fsck.workers import FsckWorkers
from veen_storage.index.lmdb_index import TABLES, Index, Transaction, View
from veen_storage.store import Store, create

from .sample import (
    BORN,
    HUB_KEY,
    ORDERS,
    Rate,
    Unsynced,
    at,
    authorize,
    hub_checkpoint,
    send,
    signing_key,
    token,
)
from .test_fsck import abandon
from .test_repair import rows
from .thorough import THOROUGH, share

TINY = Limits(max_msg_bytes=2_048, max_chunk_bytes=8_192, max_checkpoint_interval=2)
"""Limits under which a chunk holds two entries: three entries make one file of each kind."""


def make(root: Path, *, zstd: int | None = None, entries: int = 3, prune: bool = False) -> Path:
    create(root, HUB_KEY, BORN, limits=TINY, zstd_level=zstd)
    with Store(root, background=False) as store:
        given = token(rate=Rate(per_sec=1, burst=50))
        authorize(store, given)
        send(store, ORDERS, entries, now=at(1), auth_ref=given.auth_ref)
        signed = hub_checkpoint(store, at(1))
        assert signed is not None
        store.publish(signed)
        authorize(store, token(who="bob"), at(1))
        store.apply()
        batch = store.batch(at(2))
        batch.anchor(ORDERS, StreamSeq(2), b"anchor ref")
        if prune:
            batch.prune(due(store.index, ORDERS, PruneRule(max_age_sec=0), at(60))[0])
        store.commit(batch)
        store.apply()
        store.attachments.put(Coid(sha256(b"attached").digest()), [b"attached"])
    Store(root, background=False).close()
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("flips") / "data")


# --- flipping


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    """Flip one bit of the file for the duration of the block."""
    with path.open("r+b") as file:
        file.seek(bit // 8)
        was = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([was ^ 1 << bit % 8]))
    yield
    with path.open("r+b") as file:
        file.seek(bit // 8)
        file.write(bytes([was]))


def all_bits(path: Path) -> Iterable[int]:
    """Return every bit of the file; in the usual run every third one, and so some of every byte."""
    return share(range(8 * path.stat().st_size), 3)


def some_bits(path: Path, count: int) -> Iterable[int]:
    size = 8 * path.stat().st_size
    return sorted(Random(path.name).sample(range(size), min(count, size)))


# --- noticing


class NoView(View):
    def __init__(self) -> None: ...

    def get(self, table: str, key: bytes) -> bytes | None:  # noqa: ARG002
        return None

    def scan(self, table: str, start: bytes, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:  # noqa: ARG002
        return iter(())


class NoIndex(Index):
    """An index that stores nothing: a few entries fit into the ledger's memory."""

    def __init__(self) -> None: ...

    @contextmanager
    def reading(self) -> Iterator[View]:
        yield NoView()

    def write(self, change: Callable[[Transaction], object]) -> None: ...  # type: ignore[override]


def trust_in(root: Path) -> LogTrust:
    registry = read_registry(Layout(root))
    return LogTrust(read_identity(Layout(root), registry.hub_id), registry)


def log_is_clean(root: Path, trust: LogTrust, recent: int | None = None) -> bool:
    """Return whether fsck finds no fault in log and journal; does not use LMDB."""
    layout, report = Layout(root), Report(FsckLevel.FULL)
    journal, log = read_journal(layout, report), list_log(layout, report)
    applied = applied_by_files(layout, log, journal, zstd=trust.registry.zstd_level is not None)
    derived = DerivedIndex(NoIndex(), trust.registry, {}, applied)
    context = FoldContext(layout, trust, report, log, journal, derived)
    with FsckWorkers(1) as workers:
        check_log(context, workers, recent=recent, surplus_remedy=RESTORE)
    return report.ok


def unnoticed(root: Path, path: Path, bits: Iterable[int], recent: int | None = None) -> list[int]:
    trust, missed = trust_in(root), []
    for bit in bits:
        with flipped(path, bit):
            if log_is_clean(root, trust, recent) and fsck(root, processes=1).ok:
                missed.append(bit)
    return missed


def test_the_unchanged_directory_is_clean(root: Path) -> None:
    assert log_is_clean(root, trust_in(root))
    assert fsck(root, processes=1).ok


# --- every bit of the small files


@pytest.mark.parametrize("name", ["VERSION", "registry.cbor"])
def test_every_bit_of_the_registry_matters(root: Path, name: str) -> None:
    for bit in all_bits(root / name):
        with flipped(root / name, bit), pytest.raises(VeenError):
            read_registry(Layout(root))


@pytest.mark.parametrize("name", ["hub-identity.cbor", "hub-identity.sig", "hub-key-map.cbor"])
def test_every_bit_of_the_identity_matters(root: Path, name: str) -> None:
    hub = read_registry(Layout(root)).hub_id
    for bit in all_bits(root / name):
        with flipped(root / name, bit), pytest.raises(VeenError):
            read_identity(Layout(root), hub)


def test_every_bit_of_an_identity_that_is_being_replaced_matters(root: Path, tmp_path: Path) -> None:
    """The file hub-identity.next, as a rotation that is interrupted after its commit point leaves it."""
    layout = Layout(Path(shutil.copytree(root, tmp_path / "data")))
    registry, path = read_registry(layout), layout.identity_next
    identity, signature = read_artifacts(layout, registry.hub_id)
    path.write_bytes(NextIdentity(identity=identity, signature=signature).encode())
    for bit in all_bits(path):
        report = Report(FsckLevel.FULL)
        with flipped(path, bit):
            fsck_directory.check_identity(layout, registry, report)
        assert [fault.file for fault in report.faults] == [path.name], bit


def test_every_bit_of_the_journals_applied_file_matters(root: Path) -> None:
    path = root / "journal" / "applied"
    assert fsck(root, processes=1).ok
    for bit in all_bits(path):
        with flipped(path, bit), pytest.raises(DamageError, match="journal/applied"):
            read_floor(path.parent)
    with flipped(path, 3):
        assert not fsck(root, processes=1).ok


@pytest.mark.parametrize("name", ["fork.cbor", "fork-cuts.cborseq"])
def test_every_bit_of_a_fork_record_matters(root: Path, tmp_path: Path, name: str) -> None:
    fork(root, tmp_path / "fork", signing_key("fork/0"), at(100), files=Unsynced())
    layout = Layout(tmp_path / "fork")
    identity = read_identity(layout, read_registry(layout).hub_id)
    assert fsck(layout.root, processes=1).ok
    for bit in all_bits(layout.root / name):
        report = Report(FsckLevel.FULL)
        with flipped(layout.root / name, bit):
            fsck_directory.check_fork_record(layout, identity, report)
        assert len(report.faults) == 1, bit
    (layout.root / name).unlink()
    assert [fault.file for fault in fsck(layout.root, processes=1).faults] == [name]


def test_every_bit_of_a_key_matters(root: Path) -> None:
    layout = Layout(root)
    identity = read_identity(layout, read_registry(layout).hub_id)
    path = next(layout.keys.iterdir())
    for bit in all_bits(path):
        report = Report(FsckLevel.FULL)
        with flipped(path, bit):
            fsck_directory.check_keys(layout, identity, report)
        assert [fault.file for fault in report.faults] == [path.name], bit


@pytest.mark.parametrize(
    "pattern",
    [
        "log/chunk-*.summary",
        "log/peaks-*",
        "log/checkpoint-[0-9a-f]*-0*",
        "log/checkpoint-index-*",
        "checkpoint-binding.cbor",
        "hublog/entries",
        "hublog/checkpoint",
        "hublog/published",
    ],
    ids=[
        *("summary", "peaks", "checkpoint", "checkpoint index", "binding"),
        *("hub log", "hub checkpoint", "published hub checkpoint"),
    ],
)
def test_every_bit_of_a_file_next_to_the_entries_matters(root: Path, pattern: str) -> None:
    path = next(root.glob(pattern))
    assert unnoticed(root, path, all_bits(path), recent=0) == []  # no entry's signature can help here


@pytest.mark.parametrize(
    "pattern",
    [
        "log/chunk-*.summary",
        "log/chunk-*.log",
        "log/chunk-*.open",
        "log/peaks-*",
        "log/checkpoint-[0-9a-f]*-0*",
        "log/checkpoint-index-*",
        "log/anchor-*",
        "checkpoint-binding.cbor",
    ],
)
def test_a_fault_says_at_which_byte_of_which_file(root: Path, pattern: str) -> None:
    path = next(root.glob(pattern))
    with flipped(path, 0):
        faults = [fault for fault in fsck(root, processes=1).faults if fault.file == path.name]
    assert faults
    assert any(fault.offset is not None for fault in faults)


def test_every_bit_of_an_anchor_matters(root: Path) -> None:
    path = next(root.glob("log/anchor-*"))
    head = 8 * (path.stat().st_size - len(b"anchor ref"))
    assert unnoticed(root, path, share(range(head), 3)) == []
    assert unnoticed(root, path, [head, head + 41, head + 79]) == []  # only the index knows these


def test_every_bit_of_an_attachment_matters(root: Path) -> None:
    path = next(p for p in (root / "attachments").rglob("*") if p.is_file())
    for bit in all_bits(path):
        with flipped(path, bit):
            assert check_attachment(path, 100, content=True)[1] is not None


# --- a sample of the large ones


@pytest.mark.parametrize("kind", ["log", "open"])
def test_a_bit_of_a_chunk_matters(root: Path, kind: str) -> None:
    path = next(root.glob(f"log/chunk-{ORDERS.hex()}-*.{kind}"))
    header = share(range(8 * FRAME_SIZE), 3)
    assert unnoticed(root, path, [*header, *some_bits(path, 200 if THOROUGH else 80)]) == []


def test_a_bit_of_a_pruned_chunk_matters(tmp_path: Path) -> None:
    root = make(tmp_path / "data", prune=True)
    path = next(root.glob("log/*.pruned"))
    assert unnoticed(root, path, some_bits(path, 300 if THOROUGH else 100)) == []


def test_a_bit_of_a_compressed_chunk_matters_unless_its_content_stays_the_same(tmp_path: Path) -> None:
    root = make(tmp_path / "data", zstd=3)
    path = next(root.glob(f"log/chunk-{ORDERS.hex()}-*.log"))
    trust, content, same = trust_in(root), unpacked(path), []
    size = 8 * path.stat().st_size
    for bit in sorted({*range(96), *some_bits(path, 200), *range(size - 8 * 25, size)}):
        with flipped(path, bit):
            if unpacked(path) == content:
                same.append(bit)
            else:
                assert not log_is_clean(root, trust), bit
    assert same == [8 * 4 + 4], "the unused bit of the frame header descriptor, and no other"


def unpacked(path: Path) -> bytes | None:
    try:
        with ChunkFile(path, compressed=True) as chunk:
            return chunk.read(0, chunk.size)
    except DamageError:
        return None


def test_a_bit_of_the_journal_matters(root: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(root, tmp_path / "data"))
    store = Store(copy, background=False)
    send(store, ORDERS, 2, now=at(5))
    first = store._journal._size
    send(store, ORDERS, 2, now=at(6))
    abandon(store)
    assert log_is_clean(copy, trust_in(copy))
    path = next((copy / "journal").iterdir())
    last = range(8 * first, 8 * (first + HEADER_SIZE))
    headers = [*range(8 * HEADER_SIZE), *last, 8 * path.stat().st_size - 1]
    content = path.read_bytes()
    missed = unnoticed(copy, path, [*headers, *some_bits(path, 200)])
    cleared = [bit for bit in missed if bit >= 8 * first and content[bit // 8] == 1 << bit % 8]
    assert missed == cleared, "in the last batch a byte that became zero counts as never written"


# --- the index


def test_a_bit_of_a_row_of_the_index_matters(tmp_path: Path) -> None:
    """Flip a bit in known values of the file: if a row changes, fsck reports it."""
    copy = make(tmp_path / "data", prune=True)
    path, before = copy / "index" / "data.mdb", rows(copy)
    data = path.read_bytes()
    live = 0
    for name, needle in list(needles(copy)):
        found = 0
        for offset in occurrences(data, needle):
            with flipped(path, 8 * (offset + len(needle) // 2) + 3):
                if changed(copy, before):
                    found += 1
                    assert not fsck(copy, processes=1).ok, (name, offset)
        assert found, f"no live row holds {name}"
        live += found
    assert {name for name, _needle in needles(copy)} == set(TABLES)
    assert live >= len(TABLES)


def needles(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield for each table a value that only a row of that table holds."""
    index = Index(root / "index", readonly=True)
    with index.reading() as view:
        yield "labels", next(view.scan("labels", b""))[0]
        for table in ("heads", "nodes", "manifest", "checkpoints", "caps", "anchors", "hub_nodes"):
            yield table, next(view.scan(table, b""))[1][-40:]
        for table in (
            *("clients", "entries", "chunks", "times", "buckets", "tombstones", "attachments"),
            "hub_heads",
        ):
            key, value = next(view.scan(table, b""))
            yield table, key + value
        for table in ("all_times", "epochs", "hub_moved"):
            yield table, next(view.scan(table, b""))[0]
        key, value = next(view.scan("hub_bundles", b""))
        yield "hub_bundles", b"\x08\0\0\0\0\0\x08\0" + key + value  # with LMDB's header: both are zero
        yield "meta", view.get("meta", b"hub_id") or b""
    index.close()


def occurrences(data: bytes, needle: bytes) -> Iterator[int]:
    at_ = data.find(needle)
    while at_ >= 0:
        yield at_
        at_ = data.find(needle, at_ + 1)


def changed(root: Path, before: object) -> bool:
    try:
        return rows(root) != before
    except (VeenError, KeyError):
        return True
