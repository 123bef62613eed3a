"""The journal feed: durable batches in order, as bytes, for a replica (RESOLUTIONS P9, ADR 0019).

A batch is sent exactly as the journal holds it. The feed reads segments of ``journal/`` and ``journal-kept/``
and never goes beyond the last durable batch. It does not decode batches: the replica checks every byte.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from veen_storage.commit.journal import first_batch, list_segments
from veen_storage.commit.journal_format import HEADER_SIZE, batch_size, read_header
from veen_storage.disk.files import read_exactly
from veen_storage.disk.layout import Layout
from veen_storage.errors import AbsentError, DamageError

READ_BYTES: Final = 1_048_576
"""Bytes of batches that one call returns, unless one batch is larger."""
MAX_MOVES: Final = 16
"""How often a segment may be moved while it is being opened before it counts as missing."""


class BatchesGoneError(AbsentError):
    """The hub has removed the batches that the replica needs next: only a new copy helps."""


class JournalFeed:
    """A position in the journal. Use it from one thread at a time, and ``close`` it."""

    def __init__(self, layout: Layout, last: Callable[[], int], after: int) -> None:
        """``last`` returns the number of the last durable batch; the feed starts with batch ``after`` + 1."""
        self._layout = layout
        self.last = last
        """Returns the number of the last durable batch."""
        self.next = after + 1
        """Number of the batch that ``read`` returns first."""
        self._fd = -1
        self._name = ""
        self._offset = 0

    def read(self, max_bytes: int = READ_BYTES) -> tuple[bytes, int]:
        """Return whole batches, one after the other, and how many; nothing if none is durable yet."""
        parts, size, count = list[bytes](), 0, 0
        last = self.last()
        while self.next <= last and size < max_bytes:
            data = self._read_one()
            if parts and size + len(data) > max_bytes:
                break
            self._offset += len(data)
            self.next += 1
            parts.append(data)
            size, count = size + len(data), count + 1
        return b"".join(parts), count

    def _read_one(self) -> bytes:
        """Read batch ``next``, which is durable, at the current position or in the next segment."""
        if self._fd >= 0 and (data := self._batch_here()) is not None:
            return data
        self._open()
        if (data := self._batch_here()) is None:
            raise DamageError(self._name, self._offset, f"does not contain batch {self.next}")
        return data

    def _batch_here(self) -> bytes | None:
        """Return the batch at the current position; None if the segment ends here, or has a torn batch."""
        header = read_header(read_exactly(self._fd, HEADER_SIZE, self._offset))
        if header is None or header.number != self.next:
            return None
        data = read_exactly(self._fd, batch_size(header), self._offset)
        return data if len(data) == batch_size(header) else None

    def _open(self) -> None:
        """Open the segment that has batch ``next``, at its offset."""
        self.close()
        for _attempt in range(MAX_MOVES):
            path = self._find()
            try:
                self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # the applier has moved it meanwhile
            self._name, self._offset = path.name, 0
            self._skip()
            return
        raise BatchesGoneError(f"batch {self.next} of the journal cannot be found")

    def _find(self) -> Path:
        folders = (self._layout.journal, self._layout.kept_journal)  # a segment moves from one to the other
        segments = sorted((path for folder in folders for path in list_segments(folder)), key=first_batch)
        candidates = [path for path in segments if first_batch(path) <= self.next]
        if not candidates:
            oldest = first_batch(segments[0]) if segments else self.last() + 1
            raise BatchesGoneError(
                f"batch {self.next} of the journal is no longer kept: the oldest one is {oldest}"
            )
        return candidates[-1]

    def _skip(self) -> None:
        """Move to batch ``next`` by the lengths in the headers before it."""
        while True:
            header = read_header(read_exactly(self._fd, HEADER_SIZE, self._offset))
            if header is None or header.number >= self.next:
                return
            self._offset += batch_size(header)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
