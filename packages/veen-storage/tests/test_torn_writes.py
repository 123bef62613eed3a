"""A power loss tears the last unsynced write at any byte; the directory opens and keeps every promise.

Of a torn write each byte arrived or is still zero. Sectors are no unit: file systems such as LazyFS or FUSE
split a write anywhere.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from veen_core.ids import StreamSeq
from veen_storage.commit import journal
from veen_storage.commit.journal import HEADER_SIZE
from veen_storage.disk.files import Files
from veen_storage.errors import DamageError
from veen_storage.store import Store

from .oracle import Promises, check_directory, drop
from .sample import BORN, ORDERS, at, send
from .scripted_run import Run, memory_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as path:
        yield path


def torn_at(whole: bytes, start: int, low: int, high: int) -> bytes:
    """The file ``whole`` with bytes ``low`` to ``high`` of the write at ``start`` never arrived."""
    return whole[: start + low] + bytes(high - low) + whole[start + high :]


def tears(size: int) -> dict[str, tuple[int, int]]:
    """Every byte of a header alone, everything up to it, and everything from it on."""
    found = {}
    for at_byte in range(HEADER_SIZE):
        found[f"byte {at_byte} is missing"] = at_byte, at_byte + 1
        found[f"bytes up to {at_byte} are missing"] = 0, at_byte + 1
        found[f"bytes from {at_byte} on are missing"] = at_byte, size
    found["seven bytes of the payload are missing"] = HEADER_SIZE + 101, HEADER_SIZE + 108
    return found


def two_batches(folder: Path) -> tuple[Run, Path, int]:
    """A directory whose journal holds an acknowledged batch, and where the second, unsynced one begins."""
    run = Run(folder / "hub", Files())
    run.create()
    run.open()
    run.send(1, (ORDERS, 2))
    start = run.opened._journal._size
    send(run.opened, ORDERS, 2, now=at(2))
    drop(run.opened)
    return run, journal.list_segments(run.root / "journal")[-1], start


def test_a_journal_write_torn_at_any_byte_of_its_header_is_dropped(folder: Path) -> None:
    run, segment, start = two_batches(folder)
    whole = segment.read_bytes()
    for name, (low, high) in tears(len(whole) - start).items():
        torn = torn_at(whole, start, low, high)
        if torn == whole:
            continue
        root = Path(shutil.copytree(run.root, folder / "copy"))
        (root / "journal" / segment.name).write_bytes(torn)
        with Store(root, background=False) as store:
            head = store.read.head(ORDERS)
            assert head is not None, name
            assert head.stream_seq == 2, name
            assert any("never fully reached the disk" in notice for notice in store.notices), name
        shutil.rmtree(root)


def test_fsck_accepts_a_journal_write_that_was_torn(folder: Path) -> None:
    run, segment, start = two_batches(folder)
    whole = segment.read_bytes()
    for low, high in list(tears(len(whole) - start).values())[::13]:
        root = Path(shutil.copytree(run.root, folder / "copy"))
        (root / "journal" / segment.name).write_bytes(torn_at(whole, start, low, high))
        check_directory(root, run.promises.first(len(run.promises.told)))
        shutil.rmtree(root)


def test_a_batch_that_another_batch_follows_was_synced_and_is_never_dropped(folder: Path) -> None:
    """A receipt may exist for it: a missing byte is damage, in the header and in the payload."""
    run, segment, start = two_batches(folder)
    whole = segment.read_bytes()
    for at_byte in (*range(HEADER_SIZE), HEADER_SIZE + 101, start - 1):
        if not whole[at_byte]:
            continue
        root = Path(shutil.copytree(run.root, folder / "copy"))
        (root / "journal" / segment.name).write_bytes(torn_at(whole, 0, at_byte, at_byte + 1))
        with pytest.raises(DamageError, match=segment.name):
            Store(root, background=False)
        shutil.rmtree(root)


def test_the_limits_in_adr_0008_lose_an_acknowledged_batch_with_a_notice(folder: Path) -> None:
    run, segment, start = two_batches(folder)
    whole = segment.read_bytes()
    flipped = bytearray(whole)
    flipped[HEADER_SIZE - 1] ^= 1
    flipped_twice = bytearray(flipped)
    flipped_twice[HEADER_SIZE + 50] ^= 1
    for name, content in {
        "a flipped header bit before a torn batch": bytes(flipped[:start]) + bytes(len(whole) - start),
        "a flipped bit in header and payload of the last batch": bytes(flipped_twice[:start]),
        "a segment that ends inside the first of two batches": whole[: start - 20],
    }.items():
        root = Path(shutil.copytree(run.root, folder / "copy"))
        (root / "journal" / segment.name).write_bytes(content)
        with Store(root, background=False) as store:
            assert store.read.head(ORDERS) is None, name
            assert len(store.notices) == 1, name
        shutil.rmtree(root)


def test_a_segment_that_lost_its_last_batch_whole_opens_without_a_notice(folder: Path) -> None:
    """The limit in ADR 0008: nothing on the disk shows that the second batch existed."""
    run, segment, start = two_batches(folder)
    segment.write_bytes(segment.read_bytes()[:start])
    with Store(run.root, background=False) as store:
        head = store.read.head(ORDERS)
        assert head is not None
        assert head.stream_seq == 2
        assert store.notices == []


def test_a_chunk_write_torn_at_any_byte_is_written_again(folder: Path) -> None:
    """The journal still holds the entries: what arrived of them is replaced, whichever bytes these are."""
    run = Run(folder / "hub", Files())
    run.create()
    run.open()
    run.send(1, (ORDERS, 1))
    run.apply()
    chunk = run.root / "log" / next(p.name for p in (run.root / "log").glob("chunk-*.open"))
    applied = chunk.stat().st_size
    run.send(2, (ORDERS, 2))
    frames = b"".join(step.frame for step in run.opened._tail.all_of(ORDERS))
    drop(run.opened)
    size = len(frames)
    for number, (low, high) in enumerate(
        ((0, 1), (3, 9), (0, size), (40, size), (size - 1, size), (513, 700))
    ):
        root = Path(shutil.copytree(run.root, folder / "copy"))
        torn = root / "log" / chunk.name
        torn.write_bytes(torn_at(torn.read_bytes() + frames, applied, low, high))
        check_directory(root, run.promises.first(len(run.promises.told)), as_it_is=number % 2 == 0)
        shutil.rmtree(root)


def test_bytes_in_a_chunk_that_the_hub_never_wrote_are_still_damage(folder: Path) -> None:
    run = Run(folder / "hub", Files())
    run.create()
    run.open()
    run.send(1, (ORDERS, 1))
    frames = b"".join(step.frame for step in run.opened._tail.all_of(ORDERS))
    drop(run.opened)
    chunk = run.root / "log" / f"chunk-{ORDERS.hex()}-{1:020d}.open"
    chunk.write_bytes(frames[:100] + bytes([frames[100] ^ 0xFF or 1]) + frames[101:])
    with pytest.raises(DamageError, match="neither"):
        Store(run.root, background=False)


def test_a_torn_batch_is_reported_by_one_opening_only(folder: Path) -> None:
    """The segment is replaced: a second opening neither meets the torn bytes nor reports them."""
    run, segment, start = two_batches(folder)
    whole = segment.read_bytes()
    segment.write_bytes(torn_at(whole, start, 20, 30))
    with Store(run.root, background=False) as store:
        receipts = send(store, ORDERS, 1, now=at(3))
        assert receipts[0].stream_seq == StreamSeq(3)
    with Store(run.root, background=False) as store:
        assert store.notices == []
        assert store.read.receipt(ORDERS, StreamSeq(3)) == receipts[0]
    assert at(3) > BORN
    check_directory(run.root, Promises())
