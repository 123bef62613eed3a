"""The journal: the one commit point (H2, §3.4.1).

A segment is ``journal-<first batch>.wal``: batches, one after another, each a header

    magic (4) | batch number (u64be) | payload length (u32be) | holes (u32be)
    | SHA-256 of the payload (32) | CRC-32 of the header so far (4)

and its payload, a run of items: ``kind (u8) | length (u32be) | bytes``, and one byte ``ff``, so that a
batch that was written never ends in zeros. Batch numbers rise by one.

Commit order of one batch:

1. one write of header and payload at the segment's end;
2. one ``fdatasync``: **the commit point**. Only after it returns may memory change and a receipt leave;
3. if 1 or 2 fails, the journal is poisoned: nothing is written until the directory is opened again.

Reading back, a last batch that is cut short, or of which whole sectors or the end never reached the
disk, was never acknowledged and is dropped. Any other batch that does not match its checksums is damage:
it is reported, never skipped. (``holes`` counts the sectors that are zeros by right, where the batch was
written: only if there are more of them now did some not arrive.)
"""

from __future__ import annotations

import os
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from veen_storage.commit.journal_floor import Floor, write_floor
from veen_storage.disk.files import Files
from veen_storage.errors import DamageError, PoisonedError, unreadable

MAGIC: Final = b"VJ1\n"
"""Of each batch, hence of each segment too."""
_HEADER: Final = struct.Struct(">4sQII32s")
_CRC: Final = struct.Struct(">I")
HEADER_SIZE: Final = _HEADER.size + _CRC.size
_END: Final = b"\xff"
_ITEM: Final = struct.Struct(">BI")
SECTOR: Final = 512
SEGMENT_BYTES: Final = 32 * 1_048_576
"""A segment past this size is followed by a new one, so that applied ones can be removed."""

ENTRY: Final = 1
"""Item: a framed log entry (§4.8.1)."""
CHECKPOINT: Final = 2
"""Item: an encoded CHECKPOINT, to follow the entries before it."""
ANCHOR: Final = 3
"""Item: where a checkpoint was anchored (ANCHOR0.2)."""
PRUNE: Final = 4
"""Item: a retention decision."""


class Item(NamedTuple):
    """One thing that a batch made durable."""

    kind: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """One group commit."""

    number: int
    items: tuple[Item, ...]

    @property
    def size(self) -> int:
        """In a segment."""
        return HEADER_SIZE + sum(_ITEM.size + len(item.data) for item in self.items) + len(_END)


def encode_batch(number: int, items: list[Item], offset: int = 0) -> bytes:
    """The batch as it is written at ``offset`` of a segment; its length does not depend on that."""
    payload = b"".join(part for item in items for part in (_ITEM.pack(item.kind, len(item.data)), item.data))
    holes = 0
    if bytes(SECTOR) in payload:  # rarely
        holes = len(_holes(b"\x01" * HEADER_SIZE + payload + _END, offset))
    header = _HEADER.pack(MAGIC, number, len(payload), holes, sha256(payload).digest())
    return b"".join((header, _CRC.pack(crc32(header)), payload, _END))


def _decode_items(name: str, at: int, payload: bytes) -> Iterator[Item]:
    """Of the batch at byte ``at``; its checksum holds, so whoever wrote it wrote it so."""
    offset = 0
    while offset < len(payload):
        start = offset + _ITEM.size
        kind, length = _ITEM.unpack_from(payload, offset) if start <= len(payload) else (0, 0)
        offset = start + length
        if offset > len(payload):
            raise DamageError(name, at, "an item of a batch ends after the batch")
        yield Item(kind, payload[start:offset])


class Journal:
    """The writing side. One writer, one open segment."""

    def __init__(self, directory: Path, files: Files, next_batch: int) -> None:
        """Start a fresh segment: whatever older segments hold was read back before."""
        self._directory = directory
        self._files = files
        self._next = next_batch
        self._fd = -1
        self._size = 0
        self._segments: deque[Path] = deque()  # the writer appends, the applier takes away from the left
        self._applied = next_batch - 1
        self._turn = threading.Lock()  # of the two, when names in the folder change
        self._poison: str | None = None

    @property
    def poisoned(self) -> str | None:
        """Why nothing can be written any more, if so."""
        return self._poison

    def append(self, items: list[Item]) -> int:
        """Make one batch durable; returns its number. See the module for the order."""
        if self._poison is not None:
            raise PoisonedError(
                f"nothing is written after a failure ({self._poison}): free space or fix the disk, "
                "then reopen the data directory"
            )
        number = self._next
        try:
            if self._fd < 0 or self._size >= SEGMENT_BYTES:
                self._start_segment()
            data = encode_batch(number, items, self._size)
            self._files.write(self._fd, data, self._size)
            self._files.sync(self._fd)  # the commit point
        except BaseException as exc:
            self._poison = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
            if not isinstance(exc, OSError):
                raise  # an interrupt may leave half a batch behind: nothing may be written after it
            raise PoisonedError(
                f"journal write failed ({self._poison}): nothing of this batch is acknowledged; "
                "free space or fix the disk, then reopen the data directory"
            ) from exc
        self._size += len(data)
        self._next = number + 1
        return number

    def _start_segment(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        path = segment_path(self._directory, self._next)
        with self._turn:
            self._fd = self._files.open_append(path)
            self._files.truncate(self._fd, 0)  # a torn batch may have had this number
            self._files.sync_directory(self._directory)
            write_floor(self._files, self._directory, Floor(self._applied, self._next))
            self._segments.append(path)
        self._size = 0

    def trim(self, applied: int) -> None:
        """Remove segments in which every batch is applied; never the one being written."""
        with self._turn:
            if len(self._segments) < 2 or first_batch(self._segments[1]) > applied + 1:
                return
            self._applied = applied
            write_floor(self._files, self._directory, Floor(applied, first_batch(self._segments[-1])))
            while len(self._segments) > 1 and first_batch(self._segments[1]) <= applied + 1:
                self._files.remove(self._segments[0])
                self._segments.popleft()

    def poison(self, why: str) -> None:
        """Stop acknowledging: something else than the journal failed."""
        self._poison = why

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def segment_path(directory: Path, batch: int) -> Path:
    return directory / f"journal-{batch:020d}.wal"


def first_batch(path: Path) -> int:
    return int(path.stem.removeprefix("journal-"))


def list_segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("journal-*.wal"))


def check_newest(directory: Path, floor: Floor) -> None:
    """Raise if the newest segment is gone: it may have held batches that were acknowledged."""
    if floor.segment and not (path := segment_path(directory, floor.segment)).exists():
        raise DamageError(
            path.name,
            None,
            f"is missing, and batches from {floor.segment} on may have been acknowledged in it",
            "put it back; without it, `veen hub repair` goes on with what the log holds",
        )


NO_FLOOR: Final = Floor()


def read_batches(
    directory: Path,
    applied: int,
    floor: Floor = NO_FLOOR,
    torn: Callable[[str], None] = lambda _what: None,
) -> Iterator[Batch]:
    """Every durable batch after ``applied``, in order; raises ``DamageError`` rather than skip one.

    ``torn`` hears of a last batch that never fully reached the disk.
    """
    segments = list_segments(directory)
    expected: int | None = None
    for path in segments:
        for offset, batch in read_segment(path, last=path == segments[-1], torn=torn):
            if expected is None and batch.number > applied + 1:
                raise DamageError(
                    path.name, offset, f"batches {applied + 1} to {batch.number - 1} are missing before it"
                )
            # (a gap among applied ones is harmless: removals reach the disk in any order)
            if expected is not None and not expected <= batch.number <= max(expected, applied + 1):
                raise DamageError(path.name, offset, f"batch {batch.number} follows batch {expected - 1}")
            expected = batch.number + 1
            if batch.number > applied:
                yield batch
        if first_batch(path) == floor.segment:
            check_end(path, (expected or floor.segment) - 1, applied)


def check_end(newest: Path, last: int, applied: int) -> None:
    """Raise if the newest segment ends before what is applied: that was durable, and so was what followed it.

    What looks torn there is no write that was cut off.
    """
    if first_batch(newest) <= applied and last < applied:
        raise DamageError(
            newest.name,
            None,
            f"ends after batch {last}, and {applied} was applied: it was cut short, and later batches may "
            "have been acknowledged in it",
            "put it back; without it, `veen hub repair` goes on with what the log holds",
        )


def read_segment(
    path: Path, *, last: bool, torn: Callable[[str], None] = lambda _what: None
) -> Iterator[tuple[int, Batch]]:
    """Offset and content of each batch."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise  # it was applied and removed since it was listed
    except OSError as exc:
        raise unreadable(path.name, exc) from exc
    yield from split_segment(path.name, data, last=last, torn=torn)


def split_segment(
    name: str, data: bytes, *, last: bool, torn: Callable[[str], None] = lambda _what: None
) -> Iterator[tuple[int, Batch]]:
    """The same of a segment's bytes."""
    offset = 0
    while offset < len(data):
        fault = check_batch(data, offset)
        if fault is not None:
            if last and is_torn(data, offset):
                torn(
                    f"{name}: its last batch, from byte {offset} on, never fully reached the disk and "
                    "is dropped; nobody has a receipt for it, unless the disk lost what it said was durable"
                )
                return
            raise DamageError(name, offset, fault)
        _magic, number, length, _holes_by_right, _digest = _HEADER.unpack_from(data, offset)
        start = offset + HEADER_SIZE
        yield offset, Batch(number, tuple(_decode_items(name, offset, data[start : start + length])))
        offset = start + length + len(_END)


def _header_holds(data: bytes, offset: int) -> bool:
    header = data[offset : offset + _HEADER.size]
    return (
        len(data) - offset >= HEADER_SIZE
        and header.startswith(MAGIC)
        and _CRC.unpack_from(data, offset + _HEADER.size) == (crc32(header),)
    )


def check_batch(data: bytes, offset: int) -> str | None:
    """What is wrong with the batch at ``offset``, if anything."""
    if not _header_holds(data, offset):
        return "a batch header is cut short or does not match its checksum"
    _magic, _number, length, _holes_by_right, digest = _HEADER.unpack_from(data, offset)
    start = offset + HEADER_SIZE
    end = start + length + len(_END)
    if end > len(data):
        return f"a batch of {length} bytes is cut short"
    whole = data[start + length : end] == _END and sha256(data[start : start + length]).digest() == digest
    return None if whole else "a batch does not match its checksum"


def is_torn(data: bytes, offset: int) -> bool:
    """Whether the damaged rest of the last segment is one batch that never fully reached the disk."""
    if not _header_holds(data, offset):
        return _header_is_torn(data, offset)
    _magic, _number, length, holes, _digest = _HEADER.unpack_from(data, offset)
    end = offset + HEADER_SIZE + length + len(_END)
    if end != len(data):
        return bool(end > len(data))
    return not data[-1] or len(_holes(data[offset:], offset)) > holes


def _header_is_torn(data: bytes, offset: int) -> bool:
    """Without a length, only zeros in the header's own place count: payloads may hold zeros by right."""
    rest = data[offset:]
    if not any(rest[HEADER_SIZE:]):  # also when there is nothing: no payload begins with a zero
        return True
    return min(_holes(rest, offset), default=HEADER_SIZE) < HEADER_SIZE and not _header_follows(rest)


def _header_follows(rest: bytes) -> bool:
    """Whether a later batch begins in the rest: then the one it starts with was not the last write."""
    at = rest.find(MAGIC, 1)
    while at >= 0 and not _header_holds(rest, at):
        at = rest.find(MAGIC, at + 1)
    return at >= 0


def foreign_at(there: bytes, written: bytes, offset: int) -> int | None:
    """Where ``there``, found at ``offset`` of a file, is not a part of what is to be ``written`` there.

    A write that was cut off leaves each sector as it was written, or never reached the disk.
    """
    edges: list[int] = [0, *range(SECTOR - offset % SECTOR, len(there), SECTOR), len(there)]
    for low, high in pairwise(edges):
        if there[low:high] != written[low:high] and any(there[low:high]):
            return offset + low
    return None


def _holes(batch: bytes, offset: int) -> list[int]:
    """Where ``batch``, lying at ``offset`` of its file, has nothing but zeros between sector boundaries.

    What was written there holds a zero everywhere by right, or was allocated and never written.
    """
    edges = [0, *range(SECTOR - offset % SECTOR, len(batch), SECTOR), len(batch)]
    return [a for a, b in pairwise(edges) if batch.count(0, a, b) == b - a]
