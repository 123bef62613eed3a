"""A reader of C2SP logs: tiles and entries, each checked against one checkpoint (C2SP tlog-tiles).

The caller verifies the checkpoint's signatures. From its size and root the reader authenticates everything
that it fetches:

1. the partial tiles at the right edge of the tree hold all of its peaks, and the peaks give the root;
2. a full tile has its own hash in the tile above it, which was authenticated before;
3. a full entry bundle is hashed to a tile of level 0, whose hash is in the tile of level 1; the last, partial
   bundle is compared with the partial tile of level 0.

At most ``requests`` fetches are under way and at most ``cached_tiles`` tiles are held, for logs of any size.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final

from veen_core.errors import ProofError
from veen_core.lru import Lru
from veen_core.mmr import peak_positions
from veen_core.tlog.tiles import (
    ENTRIES,
    TILE_HEIGHT,
    TILE_WIDTH,
    Tile,
    check_bundle,
    decode_bundle,
    tile_hashes,
    tile_of_node,
)
from veen_core.tlog.tree import Tree, leaf_hash, node_hash, root_of
from veen_core.tlog.tree_head import TreeHead
from veen_hub.client.errors import NotFound

Fetch = Callable[[str], Awaitable[bytes]]
"""Fetches a path below the log's prefix, such as ``tile/0/x001/234``; ``NotFound`` if the log has no such."""
MAX_REQUESTS: Final = 8
"""Fetches under way at once."""
MAX_CACHED_TILES: Final = 1_024
"""Tiles held in memory, about 8 KiB each."""
EDGE: Final = -2
"""Key of the lock for the partial tiles."""


class TileReader:
    """Reads the log under one checkpoint; everything that it returns is covered by the checkpoint's root."""

    def __init__(
        self,
        fetch: Fetch,
        head: TreeHead,
        *,
        requests: int = MAX_REQUESTS,
        cached_tiles: int = MAX_CACHED_TILES,
    ) -> None:
        self.head = head
        self._fetch = fetch
        self._slots = asyncio.Semaphore(requests)
        self._requests = requests
        self._tiles: Lru[Tile, list[bytes]] = Lru(cached_tiles)
        self._edge: dict[int, list[bytes]] | None = None
        """The hashes of the partial tiles by level, once they are authenticated."""
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        """One lock per level, taken upwards only: a tile that several bundles need is fetched once."""

    # --- hashes

    async def hashes(self, tile: Tile) -> list[bytes]:
        """Return the hashes of a tile; raise ``ProofError`` if the checkpoint does not cover them."""
        if tile.level < 0 or tile != self._tile(tile.level, tile.index):
            raise ProofError(f"tile {tile.path} is not one of a tree of {self.head.size} leaves")
        if tile.width < TILE_WIDTH:
            return (await self._edge_tiles())[tile.level]
        async with self._locks[tile.level]:
            if (known := self._tiles.get(tile)) is None:
                known = tile_hashes(tile, await self._bytes(tile))
                await self._check_above(tile.level, tile.index, known)
            self._tiles.put(tile, known)
        return known

    async def node(self, height: int, index: int) -> bytes:
        """Return the hash of a complete node."""
        tile, start, end = tile_of_node(height, index, self.head.size)
        hashes = await self.hashes(tile)
        if end > len(hashes):
            raise ProofError(
                f"node {index} at height {height} is not complete in a tree of {self.head.size} leaves"
            )
        return _subtree_root(hashes[start:end])

    async def tree_at(self, size: int) -> Tree:
        """Return the tree as it was at an earlier size: its root is consistent with the checkpoint's."""
        if not 0 <= size <= self.head.size:
            raise ProofError(f"a tree of {size} leaves is not the start of one of {self.head.size}")
        peaks = reversed(peak_positions(size))
        return Tree(size, await asyncio.gather(*(self.node(height, index) for height, index in peaks)))

    def _tile(self, level: int, index: int) -> Tile:
        """Return the tile at this place as the checkpoint's tree has it, full or partial."""
        width = (self.head.size >> level * TILE_HEIGHT) - index * TILE_WIDTH
        if width <= 0:
            raise ProofError(f"level {level} of a tree of {self.head.size} leaves has no tile {index}")
        return Tile(level, index, min(TILE_WIDTH, width))

    async def _check_above(self, level: int, index: int, hashes: Sequence[bytes]) -> None:
        """Check the hashes of a full tile against the tile above it."""
        above, position = divmod(index, TILE_WIDTH)
        expected = (await self.hashes(self._tile(level + 1, above)))[position]
        if _subtree_root(hashes) != expected:
            raise ProofError(f"tile {Tile(level, index).path} does not have its hash in the tile above it")

    async def _edge_tiles(self) -> dict[int, list[bytes]]:
        async with self._locks[EDGE]:
            if self._edge is None:
                self._edge = await self._fetch_edge()
            return self._edge

    async def _fetch_edge(self) -> dict[int, list[bytes]]:
        """Fetch the partial tiles and check that their peaks lead to the checkpoint's root."""
        tiles, count, level = list[Tile](), self.head.size, 0
        while count:
            if width := count % TILE_WIDTH:
                tiles.append(Tile(level, count // TILE_WIDTH, width))
            count, level = count // TILE_WIDTH, level + 1
        contents = await asyncio.gather(*map(self._bytes, tiles))
        edge = {tile.level: tile_hashes(tile, content) for tile, content in zip(tiles, contents, strict=True)}
        peaks: list[bytes] = []
        for level in sorted(edge, reverse=True):
            start = 0
            for height in range(TILE_HEIGHT - 1, -1, -1):
                if len(edge[level]) >> height & 1:
                    peaks.append(_subtree_root(edge[level][start : start + (1 << height)]))
                    start += 1 << height
        if root_of(peaks) != self.head.root:
            raise ProofError(
                f"the tiles of {self.head.origin} do not lead to the root of its checkpoint at size "
                f"{self.head.size} (C2SP tlog-tiles)"
            )
        return edge

    # --- entries

    async def entries(self, start: int = 0) -> AsyncGenerator[tuple[int, bytes], None]:
        """Yield index and content of every entry from ``start`` on, in order."""
        async with aclosing(self._bundles(start // TILE_WIDTH)) as bundles:
            async for first, found in bundles:
                for index, entry in enumerate(found, first):
                    if index >= start:
                        yield index, entry

    async def _bundles(self, first: int) -> AsyncGenerator[tuple[int, list[bytes]], None]:
        """Yield authenticated bundles in order; the next ones are fetched meanwhile."""
        under_way: deque[asyncio.Task[list[bytes]]] = deque()
        end, index = -(-self.head.size // TILE_WIDTH), first
        if self.head.size == 0:
            await self._edge_tiles()  # the root of an empty tree is checked too
        try:
            for position in range(first, end):
                while index < end and len(under_way) < self._requests:
                    under_way.append(asyncio.create_task(self._bundle(index)))
                    index += 1
                yield position * TILE_WIDTH, await under_way[0]
                under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _bundle(self, index: int) -> list[bytes]:
        tile = self._tile(0, index)
        entries = decode_bundle(await self._bytes(Tile(ENTRIES, index, tile.width)))[: tile.width]
        if len(entries) != tile.width:
            raise ProofError(f"entry bundle {index} has {len(entries)} entries, its tile has {tile.width}")
        if tile.width < TILE_WIDTH:
            check_bundle(entries, await self.hashes(tile))
        else:
            await self._check_above(0, index, [leaf_hash(entry) for entry in entries])
        return entries

    async def _bytes(self, tile: Tile) -> bytes:
        """Fetch a tile or bundle. A log may have replaced a partial one by the full one: cut that."""
        async with self._slots:
            try:
                return await self._fetch(f"tile/{tile.path}")
            except NotFound:
                if tile.width == TILE_WIDTH:
                    raise
                whole = await self._fetch(f"tile/{Tile(tile.level, tile.index).path}")
        return whole if tile.level == ENTRIES else whole[: tile.width * len(self.head.root)]


def _subtree_root(hashes: Sequence[bytes]) -> bytes:
    """Return the root over 1, 2, 4, … or 256 hashes."""
    level = list(hashes)
    while len(level) > 1:
        level = [node_hash(level[at], level[at + 1]) for at in range(0, len(level), 2)]
    return level[0]
