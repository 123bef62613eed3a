"""The file ``chunk-….pruned``: a chunk without its payloads, as retention keeps it (COMP0.1, core §3.4.1).

The file is a CBOR sequence: a head, one ``PrunedEntry`` for each entry, and a byte string with the offset of
each entry and the end of the last one, as u32be. A reader that knows the number of entries finds any of them
with two reads.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final, NamedTuple

from veen_core import cbor
from veen_core.chunk import PrunedEntry, PrunedHead
from veen_core.errors import DecodeError, EncodeError
from veen_core.ids import StreamSeq
from veen_storage.disk.files import read_exactly
from veen_storage.errors import DamageError, reading

_OFFSET: Final = struct.Struct(">I")


def encode_offsets(offsets: Iterable[int]) -> bytes:
    """Encode the last item of the file: the offsets of the entries, and the end of the last one."""
    return cbor.encode(b"".join(map(_OFFSET.pack, offsets)))


def join_pruned(head: bytes, items: list[bytes]) -> bytes:
    """Join the encoded head and entries to the content of a ``.pruned`` file."""
    offsets = accumulate(map(len, items), initial=len(head))
    return b"".join((head, *items, encode_offsets(offsets)))


def encode_pruned(head: PrunedHead, kept: Iterable[PrunedEntry]) -> bytes:
    return join_pruned(head.encode(), [entry.encode() for entry in kept])


class PrunedChunk(NamedTuple):
    """The content of a ``.pruned`` file; ``kept`` has each entry with its offset."""

    head: PrunedHead
    kept: list[tuple[int, PrunedEntry]]


def read_pruned_head(path: Path) -> PrunedHead:
    """Read the head of a ``.pruned`` file."""
    with reading(path.name):
        data = path.read_bytes()
    try:
        return PrunedHead.decode(next(cbor.split_sequence(data), b""))
    except (DecodeError, EncodeError) as exc:
        raise DamageError(path.name, 0, str(exc)) from exc


def read_pruned_chunk(path: Path) -> PrunedChunk:
    """Read a whole ``.pruned`` file; check each entry against its receipt, and every offset."""
    with reading(path.name):
        data = path.read_bytes()
    return decode_pruned_chunk(path.name, data)


def decode_pruned_chunk(name: str, data: bytes) -> PrunedChunk:
    """Decode and check the content of a ``.pruned`` file."""
    at, head = 0, None
    kept: list[tuple[int, PrunedEntry]] = []
    try:
        while at < len(data):
            end = cbor.item_end(data, at)
            if head is None:
                head = PrunedHead.decode(data[at:end])
            elif end == len(data):
                break
            else:
                kept.append((at, PrunedEntry.decode(data[at:end])))
            at = end
        if head is None:
            raise DecodeError("is empty")
    except DecodeError as exc:
        raise DamageError(name, at, str(exc)) from exc
    if data[at:] != encode_offsets([*(offset for offset, _entry in kept), at]):
        raise DamageError(name, at, "does not end in the table of its entries' offsets")
    for offset, entry in kept:
        _check_leaf(name, offset, entry)
    return PrunedChunk(head, kept)


def read_pruned(
    path: Path, chunk: tuple[StreamSeq, StreamSeq], first: StreamSeq, last: StreamSeq, room: int
) -> tuple[list[PrunedEntry], int]:
    """Read entries ``first`` to ``last``, up to ``room`` bytes but at least one; also return their size."""
    with reading(path.name), path.open("rb", buffering=0) as file:
        offsets = _read_offsets(file.fileno(), path, chunk, first, last)
        taken = 1 + sum(offset - offsets[0] <= room for offset in offsets[2:])
        data = read_exactly(file.fileno(), offsets[taken] - offsets[0], offsets[0])
    kept = [
        _decode(path, a, data[a - offsets[0] : b - offsets[0]]) for a, b in pairwise(offsets[: taken + 1])
    ]
    for seq, entry in enumerate(kept, first):
        if entry.receipt.stream_seq != seq:
            raise DamageError(
                path.name, offsets[seq - first], f"contains entry {entry.receipt.stream_seq}, not entry {seq}"
            )
        _check_leaf(path.name, offsets[seq - first], entry)
    return kept, len(data)


def _read_offsets(
    fd: int, path: Path, chunk: tuple[StreamSeq, StreamSeq], first: StreamSeq, last: StreamSeq
) -> list[int]:
    """Read the offsets of entries ``first`` to ``last``, and the end of the last one."""
    start, end = chunk
    size = _OFFSET.size * (end - start + 2)
    table = os.fstat(fd).st_size - size
    packed = read_exactly(
        fd, _OFFSET.size * (last - first + 2), max(0, table) + _OFFSET.size * (first - start)
    )
    offsets = [offset for (offset,) in _OFFSET.iter_unpack(packed)] if len(packed) % _OFFSET.size == 0 else []
    rising = all(a < b for a, b in pairwise(offsets))
    if table < 0 or len(offsets) != last - first + 2 or not rising or offsets[-1] > table:
        raise DamageError(path.name, max(0, table), "does not contain the table of its entries' offsets")
    return offsets


def _decode(path: Path, offset: int, item: bytes) -> PrunedEntry:
    try:
        return PrunedEntry.decode(item)
    except DecodeError as exc:
        raise DamageError(path.name, offset, str(exc)) from exc


def _check_leaf(name: str, offset: int, entry: PrunedEntry) -> None:
    if entry.leaf_hash != entry.receipt.leaf_hash:
        raise DamageError(name, offset, f"entry {entry.receipt.stream_seq} does not match its leaf hash")
