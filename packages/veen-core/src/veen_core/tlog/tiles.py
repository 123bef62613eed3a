"""Tiles and entry bundles: paths and contents (C2SP tlog-tiles).

A tile holds up to 256 hashes of one level, and covers eight levels of the tree. An entry bundle holds the
entries below a tile of level 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from veen_core.errors import DecodeError, EncodeError, ProofError
from veen_core.hashing import HASH_SIZE
from veen_core.tlog.tree import NodeLookup, leaf_hash, node_hash

TILE_HEIGHT: Final = 8
TILE_WIDTH: Final = 1 << TILE_HEIGHT
MAX_ENTRY_BYTES: Final = 0xFFFF
ENTRIES: Final = -1
"""``Tile.level`` of an entry bundle."""
_PATH: Final = re.compile(
    r"(?P<level>entries|0|[1-9][0-9]?)/(?P<index>(?:x[0-9]{3}/){0,5}[0-9]{3})(?:\.p/(?P<width>[1-9][0-9]{0,2}))?"
)
_MAX_LEVEL: Final = 63


@dataclass(frozen=True, slots=True)
class Tile:
    """The address of a tile, or of an entry bundle (level ``ENTRIES``); partial if the width is below 256."""

    level: int
    index: int
    width: int = TILE_WIDTH

    @property
    def path(self) -> str:
        """The path below ``tile/``, such as ``0/x001/234.p/5``."""
        level = "entries" if self.level == ENTRIES else str(self.level)
        digits = f"{self.index:d}"
        digits = digits.zfill(-(-len(digits) // 3) * 3)
        parts = [digits[at : at + 3] for at in range(0, len(digits), 3)]
        index = "/".join([*(f"x{part}" for part in parts[:-1]), parts[-1]])
        return f"{level}/{index}" + (f".p/{self.width}" if self.width < TILE_WIDTH else "")

    @property
    def start(self) -> int:
        """Index of the first hash or entry, counted within its level."""
        return self.index * TILE_WIDTH

    @property
    def height(self) -> int:
        """Height in the tree of the hashes that the tile holds."""
        return max(self.level, 0) * TILE_HEIGHT

    def exists_at(self, size: int) -> bool:
        """Return whether a tree of ``size`` leaves has all hashes of this tile."""
        return self.start + self.width <= size >> self.height


def parse_path(path: str) -> Tile:
    """Parse a path below ``tile/``; raise ``DecodeError`` unless it is the one spelling of its tile."""
    match = _PATH.fullmatch(path)
    if match is None:
        raise DecodeError(f"{path[:80]!r} is not the path of a tile", where="tile path (C2SP tlog-tiles)")
    level = ENTRIES if match["level"] == "entries" else int(match["level"])
    width = int(match["width"]) if match["width"] else TILE_WIDTH
    tile = Tile(level, int(match["index"].replace("x", "").replace("/", "")), width)
    if tile.path != path or level > _MAX_LEVEL:
        raise DecodeError(f"{path[:80]!r} is not the path of a tile", where="tile path (C2SP tlog-tiles)")
    return tile


def tiles_of(size: int) -> Iterator[Tile]:
    """Yield every tile of a tree of ``size`` leaves, entry bundles not included."""
    level, count = 0, size
    while count:
        for index in range(-(-count // TILE_WIDTH)):
            yield Tile(level, index, min(TILE_WIDTH, count - index * TILE_WIDTH))
        level, count = level + 1, count // TILE_WIDTH


def tile_of_node(height: int, index: int, size: int) -> tuple[Tile, int, int]:
    """Return the tile that holds a node of a tree of ``size`` leaves, and the node's range in the tile.

    Raise ``ProofError`` if the tree has no such node, or not all leaves below it.
    """
    if height < 0 or index < 0 or (index + 1) << height > size:
        raise ProofError(f"node {index} at height {height} is not complete in a tree of {size} leaves")
    level, above = divmod(height, TILE_HEIGHT)
    first = index << above
    start = first // TILE_WIDTH * TILE_WIDTH
    width = min(TILE_WIDTH, (size >> level * TILE_HEIGHT) - start)
    return Tile(level, start // TILE_WIDTH, width), first - start, first - start + (1 << above)


def node_lookup(size: int, fetched: Callable[[Tile], bytes]) -> NodeLookup:
    """Return a lookup of the nodes of a tree of ``size`` leaves, from tiles that ``fetched`` returns."""

    def lookup(height: int, index: int) -> bytes:
        tile, start, end = tile_of_node(height, index, size)
        level = tile_hashes(tile, fetched(tile))[start:end]
        while len(level) > 1:
            level = [node_hash(level[at], level[at + 1]) for at in range(0, len(level), 2)]
        return level[0]

    return lookup


def tile_hashes(tile: Tile, data: bytes) -> list[bytes]:
    """Split the content of a tile into its hashes."""
    if len(data) != tile.width * HASH_SIZE:
        raise DecodeError(
            f"want {tile.width} hashes, found {len(data)} bytes", where=f"tile {tile.path} (C2SP tlog-tiles)"
        )
    return [data[at : at + HASH_SIZE] for at in range(0, len(data), HASH_SIZE)]


def encode_bundle(entries: Iterable[bytes]) -> bytes:
    """Concatenate entries, each with its length in two bytes."""
    parts: list[bytes] = []
    for entry in entries:
        if len(entry) > MAX_ENTRY_BYTES:
            raise EncodeError(f"a log entry has at most {MAX_ENTRY_BYTES} bytes, found {len(entry)}")
        parts += (len(entry).to_bytes(2, "big"), entry)
    return b"".join(parts)


def decode_bundle(data: bytes) -> list[bytes]:
    """Split an entry bundle, or any sequence of length-prefixed entries."""
    entries: list[bytes] = []
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 2], "big")
        entry = data[at + 2 : at + 2 + length]
        if at + 2 > len(data) or len(entry) != length:
            raise DecodeError(f"ends within entry {len(entries)}", where="entry bundle (C2SP tlog-tiles)")
        entries.append(entry)
        at += 2 + length
    return entries


def check_bundle(entries: Sequence[bytes], hashes: Sequence[bytes]) -> None:
    """Raise ``ProofError`` unless the entries are those of a tile of level 0, with these leaf hashes."""
    if len(entries) != len(hashes):
        raise ProofError(f"the bundle has {len(entries)} entries, its tile has {len(hashes)} hashes")
    for position, (entry, expected) in enumerate(zip(entries, hashes, strict=True)):
        if leaf_hash(entry) != expected:
            raise ProofError(f"entry {position} of the bundle does not have its hash in the tile")
