"""The entries of one part of a hub log, in one task (RESOLUTIONS P1, C2SP tlog-tiles)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from veen_core.errors import VeenError, VerificationError
from veen_core.hub_log import LabelHead
from veen_core.tlog.tree import leaf_hash, node_hash
from veen_spark.errors import DamagedLog
from veen_spark.read import field_layout
from veen_spark.read.field_layout import PAD_BYTES, Ints
from veen_spark.verify.subtrees import Tile, Tiles
from veen_spark.verify.tasks import Records

LENGTH_BYTES: Final = 2
"""Bytes of an entry's length in an entry bundle (C2SP tlog-tiles)."""
HEAD: Final[np.dtype[Any]] = np.dtype(
    [
        ("hub_log", "<u4"),
        ("part", "<u4"),
        ("label", "S32"),
        ("seq", "<i8"),
        ("root", "S32"),
        ("hub_ts", "<i8"),
        ("index", "<i8"),
        ("offset", "<i8"),
    ]
)
"""A head as it moves between tasks: the number of its hub log, the part of a label that holds its entry (set
by ``placement``), its fields, its index in the hub log, and where it begins in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntriesPart:
    """Consecutive entries of a hub log."""

    path: str
    hub_log: int
    """The number of the hub log."""
    index: int
    """The index of the first entry, counted from 0."""
    count: int
    begin: int
    """The byte at which the first entry begins, and the one after the last entry."""
    end: int


@dataclass(slots=True)
class EntriesVerdict:
    """The result of one part: O(log n) hashes."""

    subtrees: list[Tile] = field(default_factory=list)
    newest_ts: int = 0
    fault: DamagedLog | None = None


class _Entries(NamedTuple):
    """The bytes of a part, and where each entry begins and how long it is without its length prefix."""

    data: bytes
    at: Ints
    size: Ints


def reduce_entries(parts: list[EntriesPart]) -> list[EntriesVerdict]:
    """Reduce the parts of one task to the subtrees over their entries (RFC 6962 §2.1)."""
    return [_reduce(part) for part in parts]


def _reduce(part: EntriesPart) -> EntriesVerdict:
    tiles = Tiles(part.index, node_hash)
    try:
        entries = _read(part)
        heads = _decode(part, entries)
    except DamagedLog as exc:
        return EntriesVerdict(fault=exc)
    for at, size in zip(entries.at.tolist(), entries.size.tolist(), strict=True):
        tiles.add(leaf_hash(entries.data[at : at + size]))
    return EntriesVerdict(tiles.tiles, int(heads["hub_ts"].max()))


def read_heads(part: EntriesPart) -> Records:
    """Return the heads of a part; raise ``DamagedLog`` at an entry that is not one."""
    return _decode(part, _read(part))


def _read(part: EntriesPart) -> _Entries:
    """Read a part, and follow the lengths of its entries."""
    try:
        with open(part.path, "rb") as file:
            file.seek(part.begin)
            data = file.read(part.end - part.begin)
    except OSError as exc:
        raise DamagedLog(part.path, part.begin, exc.strerror or str(exc)) from exc
    at, starts = 0, list[int]()
    while at < len(data) and len(starts) < part.count:
        starts.append(at + LENGTH_BYTES)
        at += LENGTH_BYTES + int.from_bytes(data[at : at + LENGTH_BYTES], "big")
    if at != part.end - part.begin or at != len(data) or len(starts) != part.count:
        raise DamagedLog(part.path, part.begin, "the file has changed since its entries were counted")
    begin = np.array(starts, dtype=np.int64)
    end = np.append(begin[1:] - LENGTH_BYTES, len(data))
    return _Entries(data + bytes(PAD_BYTES), begin, end - begin)


def _decode(part: EntriesPart, entries: _Entries) -> Records:
    """Return the entries as heads; veen_core decodes an entry that numpy does not recognize."""
    data = np.frombuffer(entries.data, dtype=np.uint8)
    found = field_layout.label_heads(data, entries.at, entries.size)
    wrong = np.flatnonzero(~found.ok | (found.upto_seq < 1))
    if wrong.size:
        number = int(wrong[0])
        at = int(entries.at[number])
        reason = _refusal(entries.data[at : at + int(entries.size[number])])
        offset = part.begin + at - LENGTH_BYTES
        raise DamagedLog(part.path, offset, f"entry {part.index + number}: {reason}")
    heads = np.zeros(part.count, dtype=HEAD)
    heads["hub_log"] = part.hub_log
    heads["label"] = field_layout.fixed(data, found.label_at).view("S32").ravel()
    heads["seq"] = found.upto_seq
    heads["root"] = field_layout.fixed(data, found.root_at).view("S32").ravel()
    heads["hub_ts"] = found.hub_ts
    heads["index"] = part.index + np.arange(part.count)
    heads["offset"] = part.begin + entries.at - LENGTH_BYTES
    return heads


def _refusal(entry: bytes) -> str:
    try:
        head = LabelHead.decode(entry)
        raise VerificationError(
            f"label head (RESOLUTIONS P1): upto_seq {head.upto_seq} or hub_ts {head.hub_ts} is out of range"
        )
    except VeenError as exc:
        return str(exc)
