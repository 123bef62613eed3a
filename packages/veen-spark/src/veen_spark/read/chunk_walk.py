"""Walking a chunk file frame by frame, in windows: never all of it in memory (§4.8.1, §4.8.2).

Every frame's extent, entry hash and label are checked here; what is inside is for whoever takes it. Bytes
that are no frame become one ``Damage``, and the walk goes on at the next frame whose hash holds.
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
from veen_core.limits import DEFAULT_LIMITS, ENTRY_OVERHEAD
from veen_spark.read import field_layout
from veen_spark.read.segment import SAMPLE, Authorize, Damage, Items, Segment, Span

WINDOW: Final = 4 * 1_048_576
PIECE: Final = 16_384
"""Decompressed at once: so much may be lost before the place from which a file cannot be decompressed."""
MOST_ENTRIES: Final = 8_192
"""In one span."""
MAX_FRAME: Final = DEFAULT_LIMITS.max_msg_bytes + ENTRY_OVERHEAD
_LENGTHS: Final = struct.Struct(">II")
_LENGTHS_AT: Final = 42
_NUMBERS: Final = struct.Struct(">QII")
"""stream_seq and both lengths."""
_NUMBERS_AT: Final = 34
_PADDING: Final = bytes(field_layout.PAD)
_DIGEST_AT: Final = 50
_ENTRY: Final = sha256(b"veen/entry")
_MORE: Final = "more bytes are needed"
_CUT: Final = "the file ends inside an entry: it was cut short (§4.8.1)"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"


class Readable(Protocol):
    """A file, or what decompresses one."""

    def read(self, size: int, /) -> bytes: ...


def open_raw(path: str, begin: int) -> tuple[BinaryIO, Readable]:
    """The file, to be closed, and its uncompressed bytes from ``begin`` on (§4.8.4)."""
    file = open(path, "rb")  # noqa: SIM115 - the caller closes it
    if file.read(len(_ZSTD)) != _ZSTD:
        file.seek(begin)
        return file, file
    file.seek(0)
    stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
    while begin > 0:
        begin -= len(stream.read(min(begin, WINDOW))) or begin
    return file, stream


def is_compressed(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(len(_ZSTD)) == _ZSTD


class _Lost:
    """Bytes passed over since the last good frame."""

    __slots__ = ("length", "offset", "reason", "sample")

    def __init__(self, offset: int, reason: str) -> None:
        self.offset = offset
        self.reason = reason
        self.length = 0
        self.sample = b""

    def add(self, data: bytes) -> None:
        self.length += len(data)
        self.sample = (self.sample + data[:SAMPLE])[:SAMPLE]

    def item(self) -> Damage:
        return Damage(self.offset, self.length, self.reason, self.sample)


class ChunkWalk:
    """One pass over a chunk's frames."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._starts = tuple(bytes((ENTRY_VERSION, flags)) + segment.label for flags in (0, FLAG_AUTHORIZE))
        self._data = _PADDING
        """A window, and ``layout.PAD`` bytes behind it."""
        self._size = 0
        """Of the window."""
        self._at = 0
        """Where the next frame begins, in ``_data``."""
        self._base = segment.begin
        """Where ``_data`` begins, in the file."""
        self._end = segment.end
        """The byte after the last one to be walked, if it is known: no large window for a small file."""
        self._piece = PIECE
        self._ended = False
        self._cut = _CUT
        """Why there is no more, if an entry ends too early."""
        self._lost: _Lost | None = None

    def items(self) -> Items:
        file, stream = open_raw(self._segment.path, self._segment.begin)
        with file:
            if stream is file:
                self._piece = WINDOW
                if self._end is None:
                    self._end = os.fstat(file.fileno()).st_size
            while not self._ended or self._at < self._size:
                self._fill(stream)
                yield from self._window()
            if self._cut is not _CUT and self._lost is None:
                self._lost = _Lost(self._base + self._at, self._cut)  # between two entries
            yield from self._found_again()

    def _fill(self, stream: Readable) -> None:
        """Drop what was walked, read another window behind what is left."""
        self._base += self._at
        rest = self._data[self._at : self._size]
        more = list(self._read(stream, len(rest)))
        self._data, self._at, self._ended = b"".join((rest, *more, _PADDING)), 0, not more
        self._size = len(self._data) - len(_PADDING)

    def _read(self, stream: Readable, held: int) -> Iterator[bytes]:
        """Another window, in pieces: what decompresses before damage is not lost with it."""
        wanted = WINDOW
        if self._end is not None:
            wanted = min(WINDOW, self._end - self._base - held)
        try:
            while wanted > 0 and self._cut is _CUT and (piece := stream.read(min(wanted, self._piece))):
                yield piece
                wanted -= len(piece)
        except OSError as exc:
            self._cut = f"does not decompress from here on: {exc}"

    def _window(self) -> Items:
        """Everything up to the first frame that is not whole in memory."""
        while self._at < self._size and (fault := self._fault(self._at)) is not _MORE:
            if fault is None and self._lost is None:
                yield from self._span()
            elif self._resync(fault):
                yield from self._found_again()

    def _found_again(self) -> Items:
        if self._lost is not None:
            yield self._lost.item()
            self._lost = None

    def _fault(self, at: int) -> str | None:
        """None for a whole good frame, ``_MORE`` if more bytes are needed to tell, else what is wrong."""
        data, left = self._data, self._size - at
        if left < FRAME_SIZE:
            return self._cut if self._ended else _MORE
        if not data.startswith(self._starts, at):
            return self._header_fault(at)
        msg_len, receipt_len = _LENGTHS.unpack_from(data, at + _LENGTHS_AT)
        size = FRAME_SIZE + msg_len + receipt_len
        if size > MAX_FRAME or not receipt_len:
            return f"the header announces an entry of {size} bytes with a RECEIPT of {receipt_len} (§4.8.1)"
        if left < size:
            return self._cut if self._ended else _MORE
        digest = _ENTRY.copy()
        digest.update(data[at + FRAME_SIZE : at + size])
        if digest.digest() != data[at + _DIGEST_AT : at + FRAME_SIZE]:
            return "entry.entry_hash §4.8.1: does not match the bytes of the entry"
        return None

    def _header_fault(self, at: int) -> str:
        version, flags = self._data[at], self._data[at + 1]
        if version != ENTRY_VERSION:
            return f"entry.entry_ver §4.8.1: want {ENTRY_VERSION}, found {version}"
        if flags & ~FLAG_AUTHORIZE:
            return f"entry.flags §4.8.1: unused bits are set, found {flags:#04x}"
        return "entry.label §4.8.1: is not the label of the file's name"

    def _resync(self, fault: str | None) -> bool:
        """Pass over bytes up to the next good frame; False if none is in memory yet."""
        if self._lost is None:
            assert fault is not None
            self._lost = _Lost(self._base + self._at, fault)
        at = self._at
        while True:
            if fault is None:
                self._pass(at)
                return True
            if (found := self._next_start(at + 1)) == self._size:
                kept = 0 if self._ended else len(self._starts[0]) - 1  # the next start may be half read
                self._pass(self._size - kept)
                return False
            at = found
            if (fault := self._fault(at)) is _MORE:
                self._pass(at)
                return False

    def _next_start(self, at: int) -> int:
        """Where a frame of this label may begin, the first such place; the end of the window if none is."""
        first = self._size
        for start in self._starts:
            place = self._data.find(start, at, min(self._size, first + len(start) - 1))
            first = place if place >= 0 else first
        return first

    def _pass(self, at: int) -> None:
        assert self._lost is not None
        self._lost.add(self._data[self._at : at])
        self._at = at

    def _span(self) -> Items:
        """The good frames from here on: a span of MSGs, or one control entry."""
        data, at, base = self._data, self._at, self._base
        if data[at + 1]:
            seq, msg_len, receipt_len = _NUMBERS.unpack_from(data, at + _NUMBERS_AT)
            receipt_at = at + FRAME_SIZE + msg_len
            self._at = receipt_at + receipt_len
            yield Authorize(seq, base + at, data[at + FRAME_SIZE : receipt_at], data[receipt_at : self._at])
            return
        places = np.array(self._chain(), dtype=np.int64)
        begin, end = places[:-1], places[1:]
        self._at = int(places[-1])
        every = np.frombuffer(data, dtype=np.uint8)
        msg_at = begin + FRAME_SIZE
        receipt_at = msg_at + field_layout.uint(every, begin + _LENGTHS_AT, 4).view(np.int64)
        seq = field_layout.uint(every, begin + _NUMBERS_AT, 8)
        yield Span(data, seq, base + begin, msg_at, receipt_at, end)

    def _chain(self) -> list[int]:
        """Where the frames from here on begin that have a MSG and hold, and where the last of them ends.

        As ``_fault`` has it, in one tight loop; it ends at the first frame that is in doubt, so that a log in
        which those are many is not hashed again and again.
        """
        data, at, size, start = self._data, self._at, self._size, self._starts[0]
        view, places, last = memoryview(data), [at], size - FRAME_SIZE
        lengths, new, is_start = _LENGTHS.unpack_from, _ENTRY.copy, data.startswith
        while at <= last and len(places) <= MOST_ENTRIES and is_start(start, at):
            msg_len, receipt_len = lengths(data, at + _LENGTHS_AT)
            body = at + FRAME_SIZE
            end = body + msg_len + receipt_len
            if end > size or end - at > MAX_FRAME or not receipt_len:
                break
            digest = new()
            digest.update(view[body:end])
            if digest.digest() != data[at + _DIGEST_AT : body]:
                break
            places.append(end)
            at = end
        return places


def headers(segment: Segment) -> Iterator[tuple[int, int]]:
    """Offset and stream_seq of the frames of an uncompressed chunk, by their headers alone.

    Up to the first header that cannot be right: what it says of the next frame's place is worth nothing.
    """
    starts = tuple(bytes((ENTRY_VERSION, flags)) + segment.label for flags in (0, FLAG_AUTHORIZE))
    with open(segment.path, "rb", buffering=65_536) as file:
        offset, expected = 0, segment.start_seq
        while len(header := file.read(FRAME_SIZE)) == FRAME_SIZE and header.startswith(starts):
            seq, msg_len, receipt_len = _NUMBERS.unpack_from(header, _NUMBERS_AT)
            size = FRAME_SIZE + msg_len + receipt_len
            if seq != expected or size > MAX_FRAME:
                return
            yield offset, seq
            offset, expected = offset + size, seq + 1
            file.seek(offset)
