"""Iteration over a chunk file frame by frame, a window of 4 MiB at a time (core §4.8.1, §4.8.2).

The size, the entry hash and the label of every frame are checked here; the caller decodes MSG and RECEIPT.
Bytes that are not a frame become one ``Damage``, and iteration continues at the next frame whose entry
hash matches.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from hashlib import sha256
from typing import BinaryIO, Final, Protocol

import numpy as np
import pyarrow as pa

from veen_core.entry import ENTRY_VERSION, FLAG_AUTHORIZE, FRAME_SIZE
from veen_core.limits import DEFAULT_LIMITS, ENTRY_OVERHEAD_BYTES
from veen_spark.read import field_layout
from veen_spark.read.segment import SAMPLE_BYTES, ControlEntry, Damage, Items, Span, SparkSegment

WINDOW_BYTES: Final = 4 * 1_048_576
PIECE_BYTES: Final = 16_384
"""Bytes decompressed at once; at most this many good bytes are lost before the point where zstd fails."""
MAX_SPAN_ENTRIES: Final = 8_192
MAX_FRAME_BYTES: Final = DEFAULT_LIMITS.max_msg_bytes + ENTRY_OVERHEAD_BYTES
_LENGTHS: Final = struct.Struct(">II")
_LENGTHS_AT: Final = 42
_NUMBERS: Final = struct.Struct(">QII")
"""stream_seq, the length of the MSG and the length of the RECEIPT."""
_NUMBERS_AT: Final = 34
_PADDING: Final = bytes(field_layout.PAD_BYTES)
_DIGEST_AT: Final = 50
_ENTRY: Final = sha256(b"veen/entry")
_NEED_MORE: Final = "more bytes are needed"
_TRUNCATED: Final = "the file ends inside an entry (core §4.8.1)"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"


class Readable(Protocol):
    """A file, or a stream that decompresses one."""

    def read(self, size: int, /) -> bytes: ...


def open_raw(path: str, begin: int) -> tuple[BinaryIO, Readable]:
    """Return the open file and a stream of its uncompressed bytes from ``begin`` on (core §4.8.4)."""
    file = open(path, "rb")  # noqa: SIM115 - the caller closes it
    if file.read(len(_ZSTD)) != _ZSTD:
        file.seek(begin)
        return file, file
    file.seek(0)
    stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
    while begin > 0:
        begin -= len(stream.read(min(begin, WINDOW_BYTES))) or begin
    return file, stream


def is_compressed(path: str) -> bool:
    """Return whether the file is compressed with zstd."""
    with open(path, "rb") as file:
        return file.read(len(_ZSTD)) == _ZSTD


class _SkippedBytes:
    """The bytes skipped since the last valid frame."""

    __slots__ = ("length", "offset", "reason", "sample")

    def __init__(self, offset: int, reason: str) -> None:
        self.offset = offset
        self.reason = reason
        self.length = 0
        self.sample = b""

    def add(self, data: bytes) -> None:
        self.length += len(data)
        self.sample = (self.sample + data[:SAMPLE_BYTES])[:SAMPLE_BYTES]

    def damage(self) -> Damage:
        return Damage(self.offset, self.length, self.reason, self.sample)


class ChunkWalk:
    """One pass over the frames of a chunk."""

    def __init__(self, segment: SparkSegment) -> None:
        self._segment = segment
        self._starts = tuple(bytes((ENTRY_VERSION, flags)) + segment.label for flags in (0, FLAG_AUTHORIZE))
        self._data = _PADDING
        """The current window, followed by ``field_layout.PAD_BYTES`` zero bytes."""
        self._size = 0
        """The size of the window without the padding."""
        self._at = 0
        """The offset of the next frame in the window."""
        self._base = segment.begin
        """The offset of the window in the file."""
        self._end = segment.end
        """The end of the segment in the file, if known, so that a small file gets a small window."""
        self._piece = PIECE_BYTES
        self._ended = False
        self._end_reason = _TRUNCATED
        """The reason to report if the last entry is incomplete."""
        self._skipped: _SkippedBytes | None = None

    def items(self) -> Items:
        """Yield spans of entries, control entries and damage, in the order of the file."""
        file, stream = open_raw(self._segment.path, self._segment.begin)
        with file:
            if stream is file:
                self._piece = WINDOW_BYTES
                if self._end is None:
                    self._end = os.fstat(file.fileno()).st_size
            while not self._ended or self._at < self._size:
                self._fill(stream)
                yield from self._window()
            if (
                self._end_reason is not _TRUNCATED and self._skipped is None
            ):  # zstd failed between two entries
                self._skipped = _SkippedBytes(self._base + self._at, self._end_reason)
            yield from self._report_skipped()

    def _fill(self, stream: Readable) -> None:
        """Drop the frames that were yielded and read another window after the rest."""
        self._base += self._at
        rest = self._data[self._at : self._size]
        more = list(self._read(stream, len(rest)))
        self._data, self._at, self._ended = b"".join((rest, *more, _PADDING)), 0, not more
        self._size = len(self._data) - len(_PADDING)

    def _read(self, stream: Readable, kept_bytes: int) -> Iterator[bytes]:
        """Read another window in pieces, so that bytes before a decompression error are kept."""
        wanted = WINDOW_BYTES
        if self._end is not None:
            wanted = min(WINDOW_BYTES, self._end - self._base - kept_bytes)
        try:
            while (
                wanted > 0
                and self._end_reason is _TRUNCATED
                and (piece := stream.read(min(wanted, self._piece)))
            ):
                yield piece
                wanted -= len(piece)
        except OSError as exc:
            self._end_reason = f"the file cannot be decompressed from here on: {exc}"

    def _window(self) -> Items:
        """Yield everything up to the first frame that is not completely in the window."""
        while self._at < self._size and (fault := self._fault(self._at)) is not _NEED_MORE:
            if fault is None and self._skipped is None:
                yield from self._span()
            elif self._resync(fault):
                yield from self._report_skipped()

    def _report_skipped(self) -> Items:
        if self._skipped is not None:
            yield self._skipped.damage()
            self._skipped = None

    def _fault(self, at: int) -> str | None:
        """Return None for a valid frame, ``_NEED_MORE`` if the window ends too early, else the reason."""
        data, left = self._data, self._size - at
        if left < FRAME_SIZE:
            return self._end_reason if self._ended else _NEED_MORE
        if not data.startswith(self._starts, at):
            return self._header_fault(at)
        msg_len, receipt_len = _LENGTHS.unpack_from(data, at + _LENGTHS_AT)
        size = FRAME_SIZE + msg_len + receipt_len
        if size > MAX_FRAME_BYTES or not receipt_len:
            return (
                f"core §4.8.1: the header states {size} bytes for the entry and {receipt_len} for its RECEIPT"
            )
        if left < size:
            return self._end_reason if self._ended else _NEED_MORE
        digest = _ENTRY.copy()
        digest.update(data[at + FRAME_SIZE : at + size])
        if digest.digest() != data[at + _DIGEST_AT : at + FRAME_SIZE]:
            return "entry.entry_hash (core §4.8.1): differs from the hash of the entry's bytes"
        return None

    def _header_fault(self, at: int) -> str:
        version, flags = self._data[at], self._data[at + 1]
        if version != ENTRY_VERSION:
            return f"entry.entry_ver (core §4.8.1): found {version}, expected {ENTRY_VERSION}"
        if flags & ~FLAG_AUTHORIZE:
            return f"entry.flags (core §4.8.1): unused bits are set in {flags:#04x}"
        return "entry.label (core §4.8.1): differs from the label in the file name"

    def _resync(self, fault: str | None) -> bool:
        """Skip bytes up to the next valid frame; return False if the window does not hold one."""
        if self._skipped is None:
            assert fault is not None
            self._skipped = _SkippedBytes(self._base + self._at, fault)
        at = self._at
        while True:
            if fault is None:
                self._skip_to(at)
                return True
            if (found := self._next_start(at + 1)) == self._size:
                kept = 0 if self._ended else len(self._starts[0]) - 1  # a frame start may be incomplete
                self._skip_to(self._size - kept)
                return False
            at = found
            if (fault := self._fault(at)) is _NEED_MORE:
                self._skip_to(at)
                return False

    def _next_start(self, at: int) -> int:
        """Return the first offset at which a frame of this label may begin, or the end of the window."""
        first = self._size
        for start in self._starts:
            found = self._data.find(start, at, min(self._size, first + len(start) - 1))
            first = found if found >= 0 else first
        return first

    def _skip_to(self, at: int) -> None:
        assert self._skipped is not None
        self._skipped.add(self._data[self._at : at])
        self._at = at

    def _span(self) -> Items:
        """Yield the valid frames from here on: a span of entries with a MSG, or one control entry."""
        data, at, base = self._data, self._at, self._base
        if data[at + 1]:
            seq, msg_len, receipt_len = _NUMBERS.unpack_from(data, at + _NUMBERS_AT)
            receipt_at = at + FRAME_SIZE + msg_len
            self._at = receipt_at + receipt_len
            yield ControlEntry(
                seq, base + at, data[at + FRAME_SIZE : receipt_at], data[receipt_at : self._at]
            )
            return
        bounds = np.array(self._frame_bounds(), dtype=np.int64)
        begin, end = bounds[:-1], bounds[1:]
        self._at = int(bounds[-1])
        every = np.frombuffer(data, dtype=np.uint8)
        msg_at = begin + FRAME_SIZE
        receipt_at = msg_at + field_layout.uint(every, begin + _LENGTHS_AT, 4).view(np.int64)
        seq = field_layout.uint(every, begin + _NUMBERS_AT, 8)
        yield Span(data, seq, base + begin, msg_at, receipt_at, end)

    def _frame_bounds(self) -> list[int]:
        """Return the offsets of the valid frames with a MSG from here on, and the end of the last one.

        The checks are those of ``_fault`` in one tight loop. The loop ends at the first frame that fails, so
        that a log with many damaged frames is not hashed repeatedly.
        """
        data, at, size, start = self._data, self._at, self._size, self._starts[0]
        view, bounds, last = memoryview(data), [at], size - FRAME_SIZE
        lengths, new, is_start = _LENGTHS.unpack_from, _ENTRY.copy, data.startswith
        while at <= last and len(bounds) <= MAX_SPAN_ENTRIES and is_start(start, at):
            msg_len, receipt_len = lengths(data, at + _LENGTHS_AT)
            body = at + FRAME_SIZE
            end = body + msg_len + receipt_len
            if end > size or end - at > MAX_FRAME_BYTES or not receipt_len:
                break
            digest = new()
            digest.update(view[body:end])
            if digest.digest() != data[at + _DIGEST_AT : body]:
                break
            bounds.append(end)
            at = end
        return bounds


def headers(segment: SparkSegment) -> Iterator[tuple[int, int]]:
    """Yield offset and stream_seq of the frames of an uncompressed chunk, from the headers alone.

    Ends at the first implausible header, because the size in it cannot be trusted.
    """
    starts = tuple(bytes((ENTRY_VERSION, flags)) + segment.label for flags in (0, FLAG_AUTHORIZE))
    with open(segment.path, "rb", buffering=65_536) as file:
        offset, expected = 0, segment.start_seq
        while len(header := file.read(FRAME_SIZE)) == FRAME_SIZE and header.startswith(starts):
            seq, msg_len, receipt_len = _NUMBERS.unpack_from(header, _NUMBERS_AT)
            size = FRAME_SIZE + msg_len + receipt_len
            if seq != expected or size > MAX_FRAME_BYTES:
                return
            yield offset, seq
            offset, expected = offset + size, seq + 1
            file.seek(offset)
