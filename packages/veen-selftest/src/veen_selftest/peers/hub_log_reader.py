"""The hub log as one client sees it: a hub checkpoint, and tiles that must lead to its root (P1, P2).

Both readers judge a hub checkpoint: the independent one of ``note_verifier`` and ``veen_core.tlog``.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Final

from veen_core.hub_log import origin_of, verify_hub_checkpoint
from veen_core.tlog.tree_head import parse_signed_head
from veen_selftest.hubs.http_hub import HttpHub, HttpResponse
from veen_selftest.peers.note_verifier import HubCheckpoint, is_signed, parse_hub_checkpoint
from veen_selftest.peers.tree_verifier import (
    EMPTY_ROOT,
    TILE_WIDTH,
    HeadEntry,
    leaf_hash,
    node_hash,
    parse_head,
    split,
    split_bundle,
    split_tile,
    tile_path,
    tree_hash,
)
from veen_selftest.runner.check import ClauseViolation, require, require_equal

CHECKPOINT_PATH: Final = "/log/checkpoint"
TILE_HEIGHT: Final = 8
ENTRIES: Final = "entries"
"""Level of an entry bundle in its path."""


def origin_at(hub: HttpHub) -> str:
    """Return the name of the hub's log."""
    return hub.known.hub_log_origin or origin_of(hub.known.identity.hub_id)


def verify_checkpoint(hub: HttpHub, body: bytes) -> HubCheckpoint:
    """Parse a hub checkpoint and require the hub's signature, by both readers."""
    found, signed = parse_hub_checkpoint(body), parse_signed_head(body)
    read = (signed.head.origin, signed.head.size, signed.head.root)
    require_equal(read, (found.origin, found.size, found.root), "the hub checkpoint, by two readers")
    origin, keys = origin_at(hub), hub.known.identity.hub_keys
    require_equal(found.origin, origin, "origin of the hub checkpoint (P1)")
    require(
        [key for key in keys if is_signed(found, origin, bytes(key.hub_pk))],
        f"no key of the hub signed its hub checkpoint at size {found.size} (P1)",
    )
    verify_hub_checkpoint(hub.known.identity, signed, origin=origin)
    return found


def try_checkpoint(hub: HttpHub) -> HubCheckpoint | None:
    """Return the hub checkpoint that the hub serves now, verified; None if it has none yet."""
    answer = hub.get(CHECKPOINT_PATH)
    if answer.status == 404:
        return None
    require(answer.status == 200, f"{CHECKPOINT_PATH}: status {answer.status}: {answer.reason}")
    return verify_checkpoint(hub, answer.body)


def fetch_checkpoint(hub: HttpHub) -> HubCheckpoint:
    """Return the hub checkpoint that the hub serves now, verified."""
    found = try_checkpoint(hub)
    if found is None:
        raise ClauseViolation("the hub serves no hub checkpoint (C2SP tlog-tiles)")
    return found


class PeerHubLogView:
    """The tree of one hub checkpoint, read by one client as tiles; each tile is fetched once."""

    def __init__(self, hub: HttpHub, checkpoint: HubCheckpoint) -> None:
        self.hub = hub
        self.checkpoint = checkpoint
        self.size = checkpoint.size
        self._tiles: dict[tuple[int, int], list[bytes]] = {}

    def check_root(self) -> None:
        """Require that the tiles lead to the root of the hub checkpoint."""
        require_equal(
            self.root_at(self.size), self.checkpoint.root, f"root of the tiles at size {self.size} (P1)"
        )

    def require_start(self, size: int, root: bytes) -> None:
        """Require that a tree of this size and root is the start of this one."""
        require(
            self.root_at(size) == root,
            f"the hub log of {self.size} entries does not continue the hub checkpoint at size {size}: "
            "two histories (P1)",
        )

    def root_at(self, size: int) -> bytes:
        """Return the root of the first ``size`` entries, from the tiles of this tree."""
        require(size <= self.size, f"the hub log has {self.size} entries, not {size}")
        return self._range(0, size) if size else EMPTY_ROOT

    def _range(self, start: int, end: int) -> bytes:
        length = end - start
        if length & (length - 1) == 0:
            height = length.bit_length() - 1
            return self._node(height, start >> height)
        middle = start + split(length)
        return node_hash(self._range(start, middle), self._range(middle, end))

    def _node(self, height: int, index: int) -> bytes:
        level, above = divmod(height, TILE_HEIGHT)
        tile, first = divmod(index << above, TILE_WIDTH)
        return tree_hash(self.hashes(level, tile)[first : first + (1 << above)])

    def hashes(self, level: int, index: int) -> list[bytes]:
        """Return the hashes of a tile, as wide as this tree has it."""
        if (level, index) not in self._tiles:
            width = self._width(level, index)
            data, served = self._fetch(level, index, width)
            self._tiles[level, index] = split_tile(data, served)[:width]
        return self._tiles[level, index]

    def _width(self, level: int, index: int) -> int:
        width = min(TILE_WIDTH, (self.size >> TILE_HEIGHT * level) - index * TILE_WIDTH)
        require(width > 0, f"a tree of {self.size} has no tile {index} at level {level}")
        return width

    def _fetch(self, level: int | str, index: int, width: int) -> tuple[bytes, int]:
        """Fetch a tile and its width; if a partial one is gone, fetch the full one (C2SP tlog-tiles)."""
        path = tile_path(level, index, width)
        answer = self.hub.get(path, Accept_Encoding="gzip, identity")
        if answer.status == 404 and width < TILE_WIDTH:
            full = self.hub.get(tile_path(level, index), Accept_Encoding="gzip, identity")
            if full.status == 200:
                return content_of(full), TILE_WIDTH
        require(
            answer.status == 200,
            f"{path}: status {answer.status}: {answer.reason}; the hub log has {self.size} entries",
        )
        return content_of(answer), width

    def entries(self, index: int) -> list[bytes]:
        """Return the entries of a bundle, each with the hash that leads to the tree's root."""
        width = self._width(0, index)
        data, served = self._fetch(ENTRIES, index, width)
        entries = split_bundle(data, served)[:width]
        hashes = self.hashes(0, index)
        require_equal(
            [leaf_hash(entry) for entry in entries],
            hashes,
            f"hashes of bundle {index} (C2SP tlog-tiles)",
        )
        self._check_above(index, hashes)
        return entries

    def _check_above(self, index: int, hashes: list[bytes]) -> None:
        """Require that a full tile has its hash in the tile above it, and so on."""
        level = 0
        while len(hashes) == TILE_WIDTH:
            above, place = divmod(index, TILE_WIDTH)
            level, index, found = level + 1, above, tree_hash(hashes)
            hashes = self.hashes(level, index)
            require_equal(hashes[place], found, f"hash {place} of tile {index} at level {level} (C2SP)")

    def heads(self, start: int = 0) -> Iterator[HeadEntry]:
        """Yield the label heads from entry ``start`` on, each verified against its tile."""
        for index in range(start // TILE_WIDTH, -(-self.size // TILE_WIDTH)):
            for place, entry in enumerate(self.entries(index), index * TILE_WIDTH):
                if place >= start:
                    yield parse_head(entry)


def content_of(answer: HttpResponse) -> bytes:
    """Return the content of a tile, which the hub may have compressed (C2SP tlog-tiles)."""
    if answer.headers.get("content-encoding") != "gzip":
        return answer.body
    try:
        return gzip.decompress(answer.body)
    except (OSError, EOFError) as exc:
        raise ClauseViolation(f"a tile is not gzip, although its Content-Encoding says so: {exc}") from None
