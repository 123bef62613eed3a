"""Reading chunk files: growing, sealed or compressed (§4.8). What stays of pruned ones: ``pruned_chunk``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from veen_core.entry import FRAME_SIZE, Entry, frame_size, unframe
from veen_core.errors import DecodeError
from veen_core.ids import Label, StreamSeq
from veen_storage.chunks import compression
from veen_storage.disk.files import read_exactly
from veen_storage.disk.layout import Layout
from veen_storage.errors import DamageError, reading

WINDOW = 1_048_576
"""How much of a chunk is read at once when it is walked."""


class ChunkFile:
    """One chunk, open for reading; a context manager. Raises ``FileNotFoundError`` if it is not there."""

    def __init__(self, path: Path, *, compressed: bool) -> None:
        self.name = path.name
        self._compressed = compressed
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> ChunkFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    @property
    def size(self) -> int:
        """Of the framed entries, uncompressed."""
        with reading(self.name):
            if self._compressed:
                return compression.raw_size(self._fd, self.name)
            return os.fstat(self._fd).st_size

    def read(self, offset: int, length: int) -> bytes:
        """Exactly that range, or ``DamageError``."""
        with reading(self.name, offset):
            if self._compressed:
                data = compression.read_range(self._fd, self.name, offset, length)
            else:
                data = read_exactly(self._fd, length, offset)
        if len(data) != length:
            raise DamageError(self.name, offset, f"holds {len(data)} of {length} bytes")
        return data

    def entries(self, offset: int, length: int) -> list[Entry]:
        """The entries that fill a range, each checked against its entry hash (§4.8.1)."""
        data = self.read(offset, length)
        found: list[Entry] = []
        at = 0
        while at < len(data):
            try:
                size = frame_size(data, at)
                found.append(unframe(data[at : at + size]))
            except DecodeError as exc:
                raise DamageError(self.name, offset + at, str(exc)) from exc
            at += size
        return found

    def walk(self, limit: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Offset and bytes of every frame, in order; nothing decoded beyond the frame header.

        ``limit`` says where the chunk is to be taken to end.
        """
        offset, size = 0, self.size if limit is None else min(limit, self.size)
        window, window_at = b"", 0
        while offset < size:
            if offset + FRAME_SIZE > window_at + len(window):
                window, window_at = self.read(offset, min(WINDOW, size - offset)), offset
            try:
                length = frame_size(window, offset - window_at)
            except DecodeError as exc:
                raise DamageError(self.name, offset, str(exc)) from exc
            if offset + length > size:
                raise DamageError(self.name, offset, f"an entry of {length} bytes is cut short")
            if offset + length > window_at + len(window):
                window, window_at = self.read(offset, min(max(WINDOW, length), size - offset)), offset
            at = offset - window_at
            yield offset, window[at : at + length]
            offset += length


def is_whole(path: Path, *, compressed: bool) -> bool:
    """Whether all of a chunk reads as entries (§4.8.1)."""
    try:
        with ChunkFile(path, compressed=compressed) as chunk:
            for _offset, frame in chunk.walk():
                unframe(frame)
    except (DamageError, DecodeError):
        return False
    return True


def open_chunk(
    layout: Layout, label: Label, start: StreamSeq, end: StreamSeq | None, *, zstd: bool
) -> ChunkFile:
    """By its final name if it has an end and got it already, else as it grew; it may be renamed right now."""
    if end is None:
        return ChunkFile(layout.chunk(label, start, None), compressed=False)
    for name, compressed in ((end, zstd), (None, False)):
        try:
            return ChunkFile(layout.chunk(label, start, name), compressed=compressed)
        except FileNotFoundError:
            pass
    return ChunkFile(layout.chunk(label, start, end), compressed=zstd)
