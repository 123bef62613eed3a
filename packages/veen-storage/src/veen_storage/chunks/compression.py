"""The final form of a chunk that ended: its name and, if the registry says so, zstd (core §4.8.4).

A compressed chunk is a run of independent zstd frames of ``BLOCK_BYTES`` uncompressed bytes each, followed
by the seek table of zstd's seekable format in a skippable frame. Any zstd decoder returns the concatenated
entries byte for byte; the table lets a reader decompress only the blocks it needs.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import zstandard

from veen_core.ids import Label, StreamSeq
from veen_storage.disk.files import Files, read_exactly
from veen_storage.disk.layout import Layout
from veen_storage.errors import DamageError

BLOCK_BYTES: Final = 256 * 1_024
_SKIPPABLE: Final = 0x184D2A5E
_SEEKABLE: Final = 0x8F92EAB1
_FRAME_HEAD: Final = struct.Struct("<II")
_ROW: Final = struct.Struct("<II")
_FOOTER: Final = struct.Struct("<IBI")


def finalize_chunk(
    files: Files, layout: Layout, label: Label, start: StreamSeq, end: StreamSeq, *, zstd_level: int | None
) -> None:
    """Give a sealed chunk its final name; do nothing if it has that name already."""
    growing, final = layout.chunk(label, start, None), layout.chunk(label, start, end)
    if not growing.exists():
        return
    if zstd_level is None:
        files.rename(growing, final)
        return
    temporary = final.with_name(final.name + ".tmp")
    files.remove(temporary)
    fd = files.open_append(temporary)
    try:
        offset = 0
        for part in compress(growing, zstd_level):
            files.write(fd, part, offset)
            offset += len(part)
        files.sync(fd)
    finally:
        os.close(fd)
    files.rename(temporary, final)
    files.sync_directory(layout.log)
    files.remove(growing)


def compress(path: Path, level: int) -> Iterator[bytes]:
    """Yield compressed frames, then the seek table; deterministic for a level and a zstd version."""
    compressor = zstandard.ZstdCompressor(level=level, write_checksum=True, write_content_size=True)
    rows = []
    with path.open("rb") as raw:
        while block := raw.read(BLOCK_BYTES):
            frame = compressor.compress(block)
            rows.append(_ROW.pack(len(frame), len(block)))
            yield frame
    table = b"".join(rows) + _FOOTER.pack(len(rows), 0, _SEEKABLE)
    yield _FRAME_HEAD.pack(_SKIPPABLE, len(table)) + table


def read_range(fd: int, name: str, offset: int, length: int) -> bytes:
    """Read ``length`` uncompressed bytes at ``offset``; a decoding error is a ``DamageError``."""
    decompressor = zstandard.ZstdDecompressor()
    parts = []
    position = at = 0
    for packed, raw in _seek_table(fd, name):
        if position + raw > offset and position < offset + length:
            frame = read_exactly(fd, packed, at)
            try:
                head = zstandard.get_frame_parameters(frame)
                if head.content_size != raw or not head.has_checksum:  # before memory is allocated
                    raise DamageError(name, at, f"does not contain a block of {raw} bytes with a checksum")
                block = decompressor.decompress(frame, max_output_size=raw)
            except zstandard.ZstdError as exc:
                raise DamageError(name, at, f"does not decompress: {exc}") from exc
            if len(block) != raw:
                what = f"contains a block of {len(block)} bytes, but the seek table says {raw}"
                raise DamageError(name, at, what)
            parts.append(block[max(0, offset - position) : offset + length - position])
        position, at = position + raw, at + packed
    return b"".join(parts)


def _seek_table(fd: int, name: str) -> list[tuple[int, int]]:
    size = os.fstat(fd).st_size
    footer = read_exactly(fd, _FOOTER.size, max(0, size - _FOOTER.size))
    if len(footer) != _FOOTER.size:
        raise DamageError(name, 0, "is too short for a compressed chunk")
    count, descriptor, magic = _FOOTER.unpack(footer)
    start = size - _FOOTER.size - count * _ROW.size - _FRAME_HEAD.size
    if magic != _SEEKABLE or descriptor != 0 or start < 0:
        raise DamageError(name, size - _FOOTER.size, "does not end in a seek table")
    head = read_exactly(fd, _FRAME_HEAD.size, start)
    if _FRAME_HEAD.unpack(head) != (_SKIPPABLE, count * _ROW.size + _FOOTER.size):
        raise DamageError(name, start, "contains no seek table")
    rows = list(_ROW.iter_unpack(read_exactly(fd, count * _ROW.size, start + _FRAME_HEAD.size)))
    if sum(packed for packed, _raw in rows) != start:
        raise DamageError(name, start, "the frame sizes in the seek table do not add up to the file's size")
    return rows


def raw_size(fd: int, name: str) -> int:
    """Return the uncompressed size of a compressed chunk."""
    return sum(raw for _packed, raw in _seek_table(fd, name))
