"""The journal read back: what tears is dropped, what is damaged is named, nothing is skipped (H2, §3.4.1)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen_storage.commit import journal
from veen_storage.commit.journal import (
    ENTRY,
    HEADER_SIZE,
    PRUNE,
    Item,
    Journal,
    encode_batch,
    read_batches,
)
from veen_storage.disk.files import Files
from veen_storage.errors import DamageError, PoisonedError

SECTOR = 512
ZEROS = bytes(3 * SECTOR)


def noise(seed: int, size: int) -> bytes:
    """Bytes without a zero among them, so that only the journal's own fields hold any."""
    return bytes(byte or 1 for byte in random.Random(seed).randbytes(size))


def items(seed: int, *sizes: int) -> list[Item]:
    return [Item(ENTRY, noise(seed + at, size)) for at, size in enumerate(sizes)]


SMALL = items(1, 40)
LARGE = items(2, 700, 1_900, 60)
HOLEY = [Item(ENTRY, noise(5, 300) + ZEROS + noise(6, 300))]
ENDING_IN_ZEROS = [Item(ENTRY, noise(7, 100) + ZEROS)]


def write(folder: Path, *batches: list[Item], first: int = 1) -> Path:
    """One segment, as the journal itself writes it."""
    writer = Journal(folder, Files(), first)
    for batch in batches:
        writer.append(batch)
    writer.close()
    return journal.segment_path(folder, first)


def put(segment: Path, content: bytes) -> None:
    """A new file, since ext4 syncs one that is truncated and written again: 1 ms instead of 50 µs."""
    segment.unlink(missing_ok=True)
    segment.write_bytes(content)


def numbers(folder: Path, applied: int = 0) -> list[int]:
    return [batch.number for batch in read_batches(folder, applied)]


def start_of_last(*batches: list[Item]) -> int:
    return sum(len(encode_batch(1, batch)) for batch in batches[:-1])


def cut_points(start: int, end: int) -> Iterable[int]:
    """Where sectors end within a range, and every byte of it if it is small."""
    return range(start, end) if end - start < SECTOR else range(-(-start // SECTOR) * SECTOR, end, SECTOR)


# --- round trips


@given(st.integers(1, 2**64 - 2), st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=2_000))))
def test_a_batch_is_read_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, number: int, raw: list
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    batch = [Item(kind, data) for kind, data in raw]
    journal.segment_path(folder, number).write_bytes(encode_batch(number, batch))
    assert list(read_batches(folder, number - 1)) == [journal.JournalBatch(number, tuple(batch))]


def test_only_unapplied_batches_are_read_back_in_order(tmp_path: Path) -> None:
    write(tmp_path, SMALL, LARGE, [Item(PRUNE, b"decision")], HOLEY)
    found = list(read_batches(tmp_path, 0))
    assert [batch.number for batch in found] == [1, 2, 3, 4]
    assert [list(batch.items) for batch in found] == [SMALL, LARGE, [Item(PRUNE, b"decision")], HOLEY]
    assert numbers(tmp_path, applied=2) == [3, 4]
    assert numbers(tmp_path, applied=4) == []


def test_an_empty_journal_and_an_empty_segment_hold_nothing(tmp_path: Path) -> None:
    assert numbers(tmp_path) == []
    journal.segment_path(tmp_path, 1).touch()
    assert numbers(tmp_path) == []


def test_a_torn_batch_is_overwritten_by_the_next_batch_with_its_number(tmp_path: Path) -> None:
    segment = write(tmp_path, LARGE, first=7)
    segment.write_bytes(segment.read_bytes()[: 2 * SECTOR])
    assert numbers(tmp_path, applied=6) == []
    write(tmp_path, SMALL, first=7)
    assert [list(batch.items) for batch in read_batches(tmp_path, 6)] == [SMALL]


# --- torn

BATCHES = {"small": SMALL, "large": LARGE, "holey": HOLEY, "ending in zeros": ENDING_IN_ZEROS}
BEFORE = {"alone": [], "after one": [SMALL], "after several": [LARGE, HOLEY, SMALL]}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
@pytest.mark.parametrize("last", BATCHES.values(), ids=BATCHES)
def test_a_last_batch_cut_short_anywhere_is_dropped_and_all_before_it_kept(
    tmp_path: Path, before: list[list[Item]], last: list[Item]
) -> None:
    segment = write(tmp_path, *before, last)
    whole, start = segment.read_bytes(), start_of_last(*before, last)
    for cut in range(start, len(whole)):
        put(segment, whole[:cut])
        assert len(numbers(tmp_path)) == len(before), f"cut at {cut}"


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
@pytest.mark.parametrize("last", BATCHES.values(), ids=BATCHES)
def test_a_last_batch_of_zeros_from_anywhere_on_is_dropped_and_all_before_it_kept(
    tmp_path: Path, before: list[list[Item]], last: list[Item]
) -> None:
    segment = write(tmp_path, *before, last)
    whole, start = segment.read_bytes(), start_of_last(*before, last)
    for cut in range(start, len(whole)):
        put(segment, whole[:cut].ljust(len(whole), b"\x00"))
        assert len(numbers(tmp_path)) == len(before), f"zeros from {cut} on"


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_a_last_batch_of_which_any_sector_is_missing_is_dropped(
    tmp_path: Path, before: list[list[Item]]
) -> None:
    """Sectors reach the disk in any order: each may be the one that did not."""
    segment = write(tmp_path, *before, LARGE)
    whole, start = segment.read_bytes(), start_of_last(*before, LARGE)
    edges = [start, *cut_points(start + 1, len(whole)), len(whole)]
    for low, high in pairwise(edges):
        put(segment, whole[:low] + bytes(high - low) + whole[high:])
        assert len(numbers(tmp_path)) == len(before), f"bytes {low} to {high} missing"


def test_a_batch_that_ends_a_few_bytes_into_a_sector_is_no_exception(tmp_path: Path) -> None:
    """One missing byte is enough: no batch ends in a zero byte."""
    for size in range(2 * SECTOR - 8, 2 * SECTOR + 8):
        batch = [Item(ENTRY, noise(9, size - HEADER_SIZE - 7) + b"\x00")]
        segment = write(tmp_path, batch)
        whole = segment.read_bytes()
        assert len(whole) == size
        edge = size // SECTOR * SECTOR
        put(segment, whole[:edge].ljust(len(whole), b"\x00") if edge < size else whole[:SECTOR])
        assert numbers(tmp_path) == []
        put(segment, flip(whole, HEADER_SIZE + 20))
        with pytest.raises(DamageError):
            numbers(tmp_path)


# --- damaged


def flip(data: bytes, at: int, bit: int = 0) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def refuses(folder: Path, segment: Path, offset: int | None) -> list[int]:
    """Damage there is named by file and offset; returns what was readable before it."""
    found: list[int] = []
    with pytest.raises(DamageError) as caught:
        found.extend(batch.number for batch in read_batches(folder, 0))
    assert caught.value.file == segment.name
    assert caught.value.offset == offset
    assert f"{segment.name} at byte {offset}" in str(caught.value)
    return found


@pytest.mark.parametrize("name", ["small", "holey", "ending in zeros"])
def test_a_flipped_bit_of_the_last_batch_is_damage_and_never_a_torn_tail(tmp_path: Path, name: str) -> None:
    """In header and payload, unless the flip leaves a zero byte, as a write that did not arrive does."""
    segment = write(tmp_path, SMALL, BATCHES[name])
    whole, start = segment.read_bytes(), len(encode_batch(1, SMALL))
    for at in range(start, len(whole)):
        for bit in range(8) if at < start + HEADER_SIZE else (at % 8,):
            flipped = flip(whole, at, bit)
            put(segment, flipped)
            if flipped[at]:
                refuses(tmp_path, segment, start)
            else:
                assert numbers(tmp_path) == [1]


def test_a_flipped_bit_of_any_batch_is_damage(tmp_path: Path) -> None:
    batches = [LARGE, HOLEY, SMALL, LARGE]
    segment = write(tmp_path, *batches)
    whole = segment.read_bytes()
    starts = [start_of_last(*batches[: n + 1]) for n in range(len(batches))]
    for at in range(0, len(whole), 3):
        put(segment, flipped := flip(whole, at, at % 8))
        if at >= starts[-1] and not flipped[at]:
            continue  # as if the byte had not arrived
        refuses(tmp_path, segment, max(start for start in starts if start <= at))


@pytest.mark.parametrize("length", [0, 1, 39, 46, 512, 10**6, 2**32 - 1])
def test_a_wrong_length_in_a_header_that_a_batch_follows_is_damage(tmp_path: Path, length: int) -> None:
    for batches in ([SMALL, LARGE], [HOLEY, SMALL]):
        segment = write(tmp_path, *batches)
        whole = segment.read_bytes()
        put(segment, whole[:12] + length.to_bytes(4, "big") + whole[16:])
        refuses(tmp_path, segment, 0)


@pytest.mark.parametrize("length", [0x101, 0x859, 0x10101, 2**32 - 1])
def test_a_wrong_length_in_the_last_header_is_damage_if_no_byte_of_it_is_missing(
    tmp_path: Path, length: int
) -> None:
    for batches in ([SMALL], [HOLEY]):
        segment = write(tmp_path, *batches)
        whole = segment.read_bytes()
        put(segment, whole[:12] + length.to_bytes(4, "big") + whole[16:])
        refuses(tmp_path, segment, 0)


def test_a_missing_sector_of_a_batch_that_others_follow_is_damage(tmp_path: Path) -> None:
    """It was acknowledged, or the others would not be there: header sectors included."""
    segment = write(tmp_path, LARGE, SMALL, LARGE, SMALL)
    whole, last = segment.read_bytes(), start_of_last(LARGE, SMALL, LARGE, SMALL)
    for edge in range(0, last - SECTOR, SECTOR):
        put(segment, whole[:edge] + bytes(SECTOR) + whole[edge + SECTOR :])
        with pytest.raises(DamageError):
            numbers(tmp_path)


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_zeros_that_were_written_do_not_hide_a_missing_sector(
    tmp_path: Path, before: list[list[Item]]
) -> None:
    """Nor a flipped bit: the header counts them."""
    segment = write(tmp_path, *before, HOLEY)
    whole, start = segment.read_bytes(), start_of_last(*before, HOLEY)
    edges = [start, *cut_points(start + 1, len(whole)), len(whole)]
    missing = 0
    for low, high in pairwise(edges):
        put(segment, whole[:low] + bytes(high - low) + whole[high:])
        missing += bool(any(whole[low:high]))
        assert len(numbers(tmp_path)) == len(before) + (not any(whole[low:high])), f"bytes {low} to {high}"
    assert 2 <= missing < len(edges) - 1


@pytest.mark.parametrize("missing", [1, 2, 100])
def test_bytes_missing_inside_a_sector_are_a_torn_batch_and_before_another_batch_damage(
    tmp_path: Path, missing: int
) -> None:
    for batch in (HOLEY, LARGE):
        segment = write(tmp_path, SMALL, batch)
        whole, at = segment.read_bytes(), start_of_last(SMALL, batch) + 100
        torn = whole[:at] + bytes(missing) + whole[at + missing :]
        put(segment, torn)
        assert numbers(tmp_path) == [1]
        put(segment, torn + encode_batch(3, SMALL))
        assert refuses(tmp_path, segment, start_of_last(SMALL, batch)) == [1]


@given(st.data())
def test_a_last_batch_of_which_any_bytes_are_missing_is_dropped(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any subset of the bytes, header included, and any length of the file."""
    folder = tmp_path_factory.mktemp("journal")
    before, last = encode_batch(1, SMALL), encode_batch(2, [Item(ENTRY, noise(4, 90) + bytes(40))])
    missing = data.draw(st.sets(st.integers(0, len(last) - 1)))
    end = data.draw(st.one_of(st.just(len(last)), st.integers(0, len(last))))
    torn = bytes(0 if at in missing else byte for at, byte in enumerate(last))[:end]
    journal.segment_path(folder, 1).write_bytes(before + torn)
    assert numbers(folder) == ([1, 2] if torn == last else [1])


def test_bytes_after_the_last_batch_are_damage_unless_they_may_be_a_torn_batch(tmp_path: Path) -> None:
    segment = write(tmp_path, SMALL)
    whole = segment.read_bytes()
    for rest in (b"V", b"VJ1\n", bytes(SECTOR), bytes(HEADER_SIZE)):
        put(segment, whole + rest)
        assert numbers(tmp_path) == [1]
    put(segment, whole + noise(3, SECTOR))
    refuses(tmp_path, segment, len(whole))


# --- segments


@pytest.fixture
def segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Batches 1 to 9, three to a segment."""
    monkeypatch.setattr(journal, "SEGMENT_BYTES", 2 * len(encode_batch(1, LARGE)) + 1)
    write(tmp_path, *[LARGE] * 9)
    found = journal.list_segments(tmp_path)
    assert [journal.first_batch(path) for path in found] == [1, 4, 7]
    assert numbers(tmp_path) == list(range(1, 10))
    return found


Harm = Callable[[bytes], bytes]
HARMS: dict[str, Harm] = {
    "cut short": lambda data: data[:-1],
    "cut to nothing but a header": lambda data: data[: 2 * len(data) // 3 + 10],
    "a missing sector": lambda data: data[:-SECTOR] + bytes(SECTOR),
    "a flipped bit": lambda data: flip(data, len(data) - 9),
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
@pytest.mark.parametrize("which", [0, 1])
def test_damage_in_an_earlier_segment_is_never_a_torn_tail(
    tmp_path: Path, segments: list[Path], which: int, harm: Harm
) -> None:
    whole = segments[which].read_bytes()
    put(segments[which], harm(whole))
    assert refuses(tmp_path, segments[which], 2 * len(whole) // 3) == list(range(1, 3 * which + 3))


def test_damage_is_reported_also_in_batches_that_are_applied_already(
    tmp_path: Path, segments: list[Path]
) -> None:
    put(segments[0], flip(segments[0].read_bytes(), 100))
    with pytest.raises(DamageError, match=f"{segments[0].name} at byte 0"):
        numbers(tmp_path, applied=5)


def test_a_missing_segment_is_damage_unless_it_is_applied(tmp_path: Path, segments: list[Path]) -> None:
    first, second, third = (path.read_bytes() for path in segments)
    segments[1].unlink()
    assert refuses(tmp_path, segments[2], 0) == [1, 2, 3]
    put(segments[1], second)
    segments[0].unlink()
    assert refuses(tmp_path, segments[1], 0) == []
    with pytest.raises(DamageError, match="batches 3 to 3 are missing"):
        numbers(tmp_path, applied=2)
    assert numbers(tmp_path, applied=3) == [4, 5, 6, 7, 8, 9]
    assert (first, third) != (second, b"")


def test_a_batch_out_of_order_is_damage(tmp_path: Path) -> None:
    one, two, three = (encode_batch(n, SMALL) for n in (1, 2, 3))
    segment = journal.segment_path(tmp_path, 1)
    for order, offset, found in (
        (one + three, len(one), [1]),
        (one + three + two, len(one), [1]),
        (one + one, len(one), [1]),
        (two + one, 0, []),
        (one + two + two + three, len(one + two), [1, 2]),
    ):
        put(segment, order)
        assert refuses(tmp_path, segment, offset) == found


def test_a_segment_missing_among_applied_ones_is_no_damage(tmp_path: Path, segments: list[Path]) -> None:
    """It was trimmed, and the removal of the one before it did not reach the disk."""
    segments[1].unlink()
    assert numbers(tmp_path, applied=6) == [7, 8, 9]
    assert numbers(tmp_path, applied=8) == [9]
    with pytest.raises(DamageError, match="batch 7 comes directly after batch 3"):
        numbers(tmp_path, applied=5)


def test_a_segment_is_removed_only_when_every_batch_in_it_is_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SEGMENT_BYTES", 2 * len(encode_batch(1, LARGE)) + 1)
    writer = Journal(tmp_path, Files(), 1)
    for _ in range(9):
        writer.append(LARGE)
    segments = journal.list_segments(tmp_path)
    for applied, left in ((0, 3), (2, 3), (3, 2), (5, 2), (6, 1), (8, 1)):
        writer.trim(applied)
        assert journal.list_segments(tmp_path) == segments[-left:]
        assert numbers(tmp_path, applied) == list(range(applied + 1, 10))
    writer.trim(9)
    assert journal.list_segments(tmp_path) == segments[-1:], "never the last: it may be the one being written"
    writer.close()


def test_the_segment_that_grows_is_never_removed(tmp_path: Path) -> None:
    writer = Journal(tmp_path, Files(), 1)
    writer.append(SMALL)
    writer.trim(1)
    writer.append(SMALL)
    writer.close()
    assert numbers(tmp_path, applied=1) == [2]


# --- poisoned


def test_a_journal_that_failed_accepts_no_further_batch(tmp_path: Path) -> None:
    class Full(Files):
        def write(self, fd: int, data: bytes, offset: int) -> None:  # noqa: ARG002
            raise OSError(28, "No space left on device")

    writer = Journal(tmp_path, Full(), 1)
    with pytest.raises(PoisonedError, match="No space left on device"):
        writer.append(SMALL)
    assert writer.poisoned == "No space left on device"
    writer._files = Files()
    with pytest.raises(PoisonedError, match="reopen the data directory"):
        writer.append(SMALL)
    writer.close()
    assert numbers(tmp_path) == []
