"""What stays of a chunk when retention took its payloads: ``chunk-….pruned`` (COMP0.1, §3.4.1).

A CBOR sequence: a head, one ``PrunedEntry`` for each entry, and a byte string of where each of these begins
and the last one ends, as u32be. Whoever knows how many entries there are finds any of them with two reads.
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

_PLACE: Final = struct.Struct(">I")


def encode_places(places: Iterable[int]) -> bytes:
    """The last item of the file."""
    return cbor.encode(b"".join(map(_PLACE.pack, places)))


def join_pruned(head: bytes, items: list[bytes]) -> bytes:
    """The file, from the items it consists of."""
    places = accumulate(map(len, items), initial=len(head))
    return b"".join((head, *items, encode_places(places)))


def encode_pruned(head: PrunedHead, kept: Iterable[PrunedEntry]) -> bytes:
    return join_pruned(head.encode(), [entry.encode() for entry in kept])


class PrunedChunk(NamedTuple):
    """All of a file, each entry with where it begins."""

    head: PrunedHead
    kept: list[tuple[int, PrunedEntry]]


def read_pruned_head(path: Path) -> PrunedHead:
    """The head alone."""
    with reading(path.name):
        data = path.read_bytes()
    try:
        return PrunedHead.decode(next(cbor.split_sequence(data), b""))
    except (DecodeError, EncodeError) as exc:
        raise DamageError(path.name, 0, str(exc)) from exc


def read_pruned_chunk(path: Path) -> PrunedChunk:
    """All of it: each entry checked against its receipt, and every place."""
    with reading(path.name):
        data = path.read_bytes()
    return decode_pruned_chunk(path.name, data)


def decode_pruned_chunk(name: str, data: bytes) -> PrunedChunk:
    """The same of a file's bytes."""
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
    if data[at:] != encode_places([*(place for place, _entry in kept), at]):
        raise DamageError(name, at, "does not end in the places of its entries")
    for place, entry in kept:
        _check_leaf(name, place, entry)
    return PrunedChunk(head, kept)


def read_pruned(
    path: Path, chunk: tuple[StreamSeq, StreamSeq], first: StreamSeq, last: StreamSeq, room: int
) -> tuple[list[PrunedEntry], int]:
    """Entries ``first … last``, as many as there is room for but at least one, and their size."""
    with reading(path.name), path.open("rb", buffering=0) as file:
        places = _places(file.fileno(), path, chunk, first, last)
        taken = 1 + sum(place - places[0] <= room for place in places[2:])
        data = read_exactly(file.fileno(), places[taken] - places[0], places[0])
    kept = [_decode(path, a, data[a - places[0] : b - places[0]]) for a, b in pairwise(places[: taken + 1])]
    for seq, entry in enumerate(kept, first):
        if entry.receipt.stream_seq != seq:
            raise DamageError(
                path.name, places[seq - first], f"is entry {entry.receipt.stream_seq}, not {seq}"
            )
        _check_leaf(path.name, places[seq - first], entry)
    return kept, len(data)


def _places(
    fd: int, path: Path, chunk: tuple[StreamSeq, StreamSeq], first: StreamSeq, last: StreamSeq
) -> list[int]:
    """Where the entries begin, and where the last of them ends."""
    start, end = chunk
    size = _PLACE.size * (end - start + 2)
    table = os.fstat(fd).st_size - size
    packed = read_exactly(fd, _PLACE.size * (last - first + 2), max(0, table) + _PLACE.size * (first - start))
    places = [place for (place,) in _PLACE.iter_unpack(packed)] if len(packed) % _PLACE.size == 0 else []
    rising = all(a < b for a, b in pairwise(places))
    if table < 0 or len(places) != last - first + 2 or not rising or places[-1] > table:
        raise DamageError(path.name, max(0, table), "does not hold the places of its entries")
    return places


def _decode(path: Path, place: int, item: bytes) -> PrunedEntry:
    try:
        return PrunedEntry.decode(item)
    except DecodeError as exc:
        raise DamageError(path.name, place, str(exc)) from exc


def _check_leaf(name: str, place: int, entry: PrunedEntry) -> None:
    if entry.leaf_hash != entry.receipt.leaf_hash:
        raise DamageError(name, place, f"entry {entry.receipt.stream_seq} does not match its leaf hash")
