"""Reading chunk files: growing, sealed or compressed (core §4.8). ``pruned_chunk`` reads pruned ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from veen_core.entry import FRAME_SIZE, Content, Entry, contents_of_frames, frame_size, unframe
from veen_core.errors import DecodeError
from veen_core.ids import Label, StreamSeq
from veen_storage.chunks import compression
from veen_storage.disk.files import read_exactly
from veen_storage.disk.layout import Layout
from veen_storage.errors import DamageError, reading

WALK_BYTES: Final = 1_048_576
"""Bytes that ``ChunkFile.walk`` reads at once."""

ENTRIES_AT_ONCE: Final = 16
"""Entries that are checked, in some 50 µs, before a reader gives way to other threads."""


class ChunkFile:
    """One chunk, open for reading, as a context manager; ``FileNotFoundError`` if it does not exist."""

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
        """Size of the framed entries in bytes, uncompressed."""
        with reading(self.name):
            if self._compressed:
                return compression.raw_size(self._fd, self.name)
            return os.fstat(self._fd).st_size

    def read(self, offset: int, length: int) -> bytes:
        """Read ``length`` uncompressed bytes at ``offset``; ``DamageError`` if there are fewer."""
        with reading(self.name, offset):
            if self._compressed:
                data = compression.read_range(self._fd, self.name, offset, length)
            else:
                data = read_exactly(self._fd, length, offset)
        if len(data) != length:
            raise DamageError(self.name, offset, f"the file ends after {len(data)} of {length} bytes")
        return data

    def entries(self, offset: int, length: int) -> list[Entry]:
        """Read the entries that fill a range, each checked against its entry hash (core §4.8.1)."""
        return self._decode(self.read(offset, length), offset)

    def contents(
        self, offset: int, length: int, label: Label, start: StreamSeq, give_way: Callable[[], None]
    ) -> list[Content]:
        """Read the entries that fill a range, checked as ``entries`` does, but without decoding them.

        ``DamageError`` unless they are the entries of this label from ``start`` on. ``give_way`` is called
        after every ``ENTRIES_AT_ONCE`` entries.
        """
        data = self.read(offset, length)
        found: list[Content] = []
        at = 0
        while (
            some := contents_of_frames(data, label, StreamSeq(start + len(found)), at, ENTRIES_AT_ONCE)
        ) is not None:
            contents, at = some
            found += contents
            if at == len(data):
                return found
            give_way()
        entries = self._decode(data, offset)  # raises unless each frame by itself is correct
        if any((e.label, e.stream_seq) != (label, start + at) for at, e in enumerate(entries)):
            raise DamageError(self.name, offset, f"does not contain entry {start} and those after it")
        return [entry.content for entry in entries]

    def _decode(self, data: bytes, offset: int) -> list[Entry]:
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
        """Yield offset and bytes of every frame in order; only frame headers are decoded.

        ``limit``: treat the chunk as if it ended there.
        """
        offset, size = 0, self.size if limit is None else min(limit, self.size)
        window, window_at = b"", 0
        while offset < size:
            if offset + FRAME_SIZE > window_at + len(window):
                window, window_at = self.read(offset, min(WALK_BYTES, size - offset)), offset
            try:
                length = frame_size(window, offset - window_at)
            except DecodeError as exc:
                raise DamageError(self.name, offset, str(exc)) from exc
            if offset + length > size:
                raise DamageError(self.name, offset, f"an entry of {length} bytes is cut short")
            if offset + length > window_at + len(window):
                window, window_at = self.read(offset, min(max(WALK_BYTES, length), size - offset)), offset
            at = offset - window_at
            yield offset, window[at : at + length]
            offset += length


def is_whole(path: Path, *, compressed: bool) -> bool:
    """Return whether a chunk is a run of valid entries to its end (core §4.8.1)."""
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
    """Open a chunk by its final name or by the name it grew under; the applier may be renaming it."""
    if end is None:
        return ChunkFile(layout.chunk(label, start, None), compressed=False)
    for name, compressed in ((end, zstd), (None, False)):
        try:
            return ChunkFile(layout.chunk(label, start, name), compressed=compressed)
        except FileNotFoundError:
            pass
    return ChunkFile(layout.chunk(label, start, end), compressed=zstd)
