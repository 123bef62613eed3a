"""The journal: the one commit point of a data directory (RESOLUTIONS H2, core §3.4.1).

The journal is a folder of segments, ``journal-<first batch>.wal``, in the format of ``journal_format``.
Commit order of a batch:

1. one write of header and payload at the segment's end;
2. one ``fdatasync``: **the commit point**. Only after it returns may memory change and a receipt leave;
3. if step 1 or 2 fails, the journal is poisoned: nothing is written until the directory is opened again.

Reading back drops a last batch that is torn, since no receipt left for it. Any other batch that does not
match its checksums is damage, which is reported and never skipped. ADR 0008 states the limits: losses at the
end of the newest segment that no check on the same disk can find.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from veen_storage.commit.journal_floor import Floor, write_floor
from veen_storage.commit.journal_format import (
    ANCHOR,
    CHECKPOINT,
    ENTRY,
    HEADER_SIZE,
    HUB_CHECKPOINT,
    MAGIC,
    PRUNE,
    Item,
    JournalBatch,
    encode_batch,
    foreign_at,
    split_segment,
)
from veen_storage.commit.kept_segments import KeptSegments
from veen_storage.disk.files import Files
from veen_storage.errors import SEGMENT_BACK, DamageError, PoisonedError, unreadable

__all__ = [
    "ANCHOR",
    "CHECKPOINT",
    "ENTRY",
    "HEADER_SIZE",
    "HUB_CHECKPOINT",
    "MAGIC",
    "PRUNE",
    "Item",
    "Journal",
    "JournalBatch",
    "check_end",
    "check_newest",
    "encode_batch",
    "first_batch",
    "foreign_at",
    "list_segments",
    "read_batches",
    "read_segment",
    "scan",
    "segment_path",
    "split_segment",
]

SEGMENT_BYTES: Final = 32 * 1_048_576
"""A segment of this size is followed by a new one, so that applied segments can be removed."""
NO_FLOOR: Final = Floor()


class Journal:
    """The journal as the hub writes it: one writer thread, one open segment."""

    def __init__(
        self, directory: Path, files: Files, next_batch: int, kept: KeptSegments | None = None
    ) -> None:
        """Prepare to write batch ``next_batch`` into a new segment; recovery has read the older ones.

        Applied segments are handed to ``kept``; without it, they are removed.
        """
        self._directory = directory
        self._kept = kept
        self._files = files
        self._next = next_batch
        self._fd = -1
        self._size = 0
        self._segments: deque[Path] = deque()  # the writer appends, the applier removes from the left
        self._applied = next_batch - 1
        self._names = threading.Lock()  # held by the writer or the applier while it adds or removes segments
        self._poison: str | None = None

    @property
    def poisoned(self) -> str | None:
        """The reason why nothing can be written any more, or None."""
        return self._poison

    @property
    def last(self) -> int:
        """Number of the last durable batch."""
        return self._next - 1

    def append(self, items: list[Item]) -> int:
        """Make one batch durable and return its number."""
        if self._poison is not None:
            raise PoisonedError(
                f"nothing is written after a failure ({self._poison}): free space or fix the disk, "
                "then reopen the data directory"
            )
        number = self._next
        try:
            if self._fd < 0 or self._size >= SEGMENT_BYTES:
                self._start_segment()
            data = encode_batch(number, items)
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
        with self._names:
            self._fd = self._files.open_append(path)
            self._files.truncate(self._fd, 0)  # it may hold a torn batch, which was dropped
            self._files.sync_directory(self._directory)
            write_floor(self._files, self._directory, Floor(self._applied, self._next))
            self._segments.append(path)
        self._size = 0

    def trim(self, applied: int) -> None:
        """Remove the segments in which every batch is applied, except the one being written."""
        with self._names:
            if len(self._segments) < 2 or first_batch(self._segments[1]) > applied + 1:
                return
            self._applied = applied
            write_floor(self._files, self._directory, Floor(applied, first_batch(self._segments[-1])))
            while len(self._segments) > 1 and first_batch(self._segments[1]) <= applied + 1:
                if self._kept is not None:
                    self._kept.retire(self._segments[0])
                else:
                    self._files.remove(self._segments[0])
                self._segments.popleft()
        if self._kept is not None:
            self._kept.trim()

    def poison(self, why: str) -> None:
        """Refuse every further batch, because something other than the journal failed."""
        self._poison = why

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def segment_path(directory: Path, batch: int) -> Path:
    return directory / f"journal-{batch:020d}.wal"


def first_batch(path: Path) -> int:
    """Return the number of a segment's first batch, which is part of its name."""
    return int(path.stem.removeprefix("journal-"))


def list_segments(directory: Path) -> list[Path]:
    """Return the segments in the order of their batches."""
    return sorted(directory.glob("journal-*.wal"))


def check_newest(directory: Path, floor: Floor) -> None:
    """Raise if the newest segment is missing: it may have held acknowledged batches."""
    if floor.segment and not (path := segment_path(directory, floor.segment)).exists():
        what = f"is missing: it may contain acknowledged batches, from batch {floor.segment} on"
        raise DamageError(path.name, None, what, SEGMENT_BACK)


def read_batches(
    directory: Path,
    applied: int,
    floor: Floor = NO_FLOOR,
    torn: Callable[[str], None] = lambda _notice: None,
) -> Iterator[JournalBatch]:
    """Yield every durable batch after ``applied`` in order; raise ``DamageError`` rather than skip one.

    ``torn`` receives a notice of a last batch that is torn and therefore dropped.
    """
    for _path, _offset, batch in scan(directory, applied, floor, torn):
        if batch.number > applied:
            yield batch


def scan(
    directory: Path, applied: int | None, floor: Floor, torn: Callable[[str], None]
) -> Iterator[tuple[Path, int, JournalBatch]]:
    """Yield every durable batch with its segment and offset; raise ``DamageError`` rather than skip one.

    ``applied``: the last batch that the index includes; None if no index says so.
    """
    segments = list_segments(directory)
    included = floor.applied if applied is None else applied
    expected: int | None = None
    for path in segments:
        for offset, batch in read_segment(path, last=path == segments[-1], torn=torn):
            if expected is None and applied is not None and batch.number > applied + 1:
                what = f"batches {applied + 1} to {batch.number - 1} are missing before batch {batch.number}"
                raise DamageError(path.name, offset, what)
            # A gap between applied batches is harmless: removals reach the disk in any order.
            if expected is not None and not expected <= batch.number <= max(expected, included + 1):
                raise DamageError(
                    path.name, offset, f"batch {batch.number} comes directly after batch {expected - 1}"
                )
            expected = batch.number + 1
            yield path, offset, batch
        if applied is not None and first_batch(path) == floor.segment:
            check_end(path, (expected or floor.segment) - 1, applied)


def check_end(newest: Path, last: int, applied: int) -> None:
    """Raise if the newest segment ends before batch ``applied``, which was durable before it was applied.

    The segment was then truncated after its sync: what looks like a torn batch is damage.
    """
    if first_batch(newest) <= applied and last < applied:
        what = (
            f"ends after batch {last}, but batch {applied} was applied: the file was truncated, and "
            "acknowledged batches may be missing"
        )
        raise DamageError(newest.name, None, what, SEGMENT_BACK)


def read_segment(
    path: Path, *, last: bool, torn: Callable[[str], None] = lambda _notice: None
) -> Iterator[tuple[int, JournalBatch]]:
    """Yield the offset and content of each batch; ``FileNotFoundError`` if the segment was removed."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise  # the applier removed it after it was listed
    except OSError as exc:
        raise unreadable(path.name, exc) from exc
    yield from split_segment(path.name, data, last=last, first=first_batch(path), torn=torn)
