"""The reader of C2SP logs: every tile and entry that it returns is under the checkpoint's root."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from veen_core.errors import DecodeError, ProofError
from veen_core.rejection import Code
from veen_core.tlog.tiles import (
    ENTRIES,
    TILE_WIDTH,
    Tile,
    encode_bundle,
    parse_path,
)
from veen_core.tlog.tree import Tree, leaf_hash, node_hash
from veen_core.tlog.tree_head import TreeHead
from veen_hub.client import NotFound, TileReader

from .client_fixtures import run

SIZES = [0, 1, 2, 3, 255, 256, 257, 511, 512, 1_000, 65_536, 65_537, 70_000]


class StaticLog:
    """A log in memory that serves the tiles of one size, as a web server serves files."""

    def __init__(self, size: int) -> None:
        self.entries = [f"entry {n}".encode() for n in range(size)]
        self.nodes: dict[int, list[bytes]] = {}
        tree = Tree()
        for entry in self.entries:
            for node in tree.append(leaf_hash(entry)):
                self.nodes.setdefault(node.height, []).append(node.hash)
        self.head = TreeHead("log.example", size, tree.root)
        self.asked: list[str] = []
        self.under_way = self.most_under_way = 0
        self.lie: Callable[[Tile, bytes], bytes] = lambda _tile, content: content

    async def fetch(self, path: str) -> bytes:
        self.asked.append(path)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        tile = parse_path(path.removeprefix("tile/"))
        if not tile.exists_at(self.head.size):
            raise NotFound(Code.NOT_FOUND, f"there is no {path}")
        first, last = tile.start, tile.start + tile.width
        if tile.level == ENTRIES:
            return self.lie(tile, encode_bundle(self.entries[first:last]))
        return self.lie(tile, b"".join(self.nodes[tile.height][first:last]))

    def reader(self, **options: int) -> TileReader:
        return TileReader(self.fetch, self.head, **options)


async def read_all(reader: TileReader, start: int = 0) -> list[tuple[int, bytes]]:
    return [found async for found in reader.entries(start)]


@pytest.mark.parametrize("size", SIZES)
def test_all_entries_of_a_log_are_read_in_order(size: int) -> None:
    log = StaticLog(size)
    assert run(read_all(log.reader())) == list(enumerate(log.entries))


@pytest.mark.parametrize("start", [0, 1, 255, 256, 300, 999, 1_000])
def test_reading_may_start_at_any_entry(start: int) -> None:
    log = StaticLog(1_000)
    assert run(read_all(log.reader(), start)) == list(enumerate(log.entries))[start:]


def test_a_full_scan_fetches_each_bundle_once_and_no_tile_of_level_zero_but_the_partial_one() -> None:
    log = StaticLog(70_000)
    run(read_all(log.reader()))
    assert len(log.asked) == len(set(log.asked))
    tiles = [path for path in log.asked if "/entries/" not in path]
    assert sorted(tiles) == ["tile/0/273.p/112", "tile/1/000", "tile/1/001.p/17", "tile/2/000.p/1"]


def test_requests_under_way_and_cached_tiles_are_bounded() -> None:
    log = StaticLog(70_000)
    reader = log.reader(requests=3, cached_tiles=2)

    async def story() -> None:
        await read_all(reader)
        for index in range(20):
            await reader.hashes(Tile(0, index))

    run(story())
    assert log.most_under_way == 3
    assert len(reader._tiles) == 2


@pytest.mark.parametrize("size", [1, 256, 1_000, 65_537])
def test_the_tree_at_an_earlier_size_has_the_root_of_that_size(size: int) -> None:
    log = StaticLog(65_537)
    assert run(log.reader().tree_at(size)).root == StaticLog(size).head.root


def test_a_tree_larger_than_the_checkpoint_is_refused() -> None:
    with pytest.raises(ProofError, match="not the start"):
        run(StaticLog(5).reader().tree_at(6))


def flipped(content: bytes, at: int = -1) -> bytes:
    changed = bytearray(content)
    changed[at] ^= 1
    return bytes(changed)


LIES: dict[str, Callable[[Tile, bytes], bytes]] = {
    "an entry": lambda tile, content: flipped(content) if tile.level == ENTRIES else content,
    "an early entry": lambda tile, content: flipped(content, 2) if tile == Tile(ENTRIES, 0) else content,
    "a hash of the partial tile": lambda tile, content: flipped(content) if tile.level == 0 else content,
    "a hash of level 1": lambda tile, content: flipped(content) if tile.level == 1 else content,
    "a short bundle": lambda tile, content: b"" if tile.level == ENTRIES else content,
    "a cut bundle": lambda tile, content: content[:-1] if tile.level == ENTRIES else content,
    "a short tile": lambda tile, content: content[:-32] if tile.level == 0 else content,
}


@pytest.mark.parametrize("lie", LIES)
def test_a_changed_byte_anywhere_is_found_before_the_entry_is_returned(lie: str) -> None:
    log = StaticLog(1_000)
    log.lie = LIES[lie]
    reader = log.reader()
    found: list[bytes] = []

    async def story() -> None:
        async for _index, entry in reader.entries():
            found.append(entry)

    with pytest.raises((ProofError, DecodeError)):
        run(story())
    assert found == log.entries[: len(found)]


def test_a_full_tile_is_checked_against_the_tile_above_it() -> None:
    log = StaticLog(1_000)
    log.lie = lambda tile, content: flipped(content) if tile == Tile(0, 1) else content

    async def story() -> None:
        reader = log.reader()
        assert await reader.hashes(Tile(0, 0)) == log.nodes[0][:TILE_WIDTH]
        with pytest.raises(ProofError, match="tile above it"):
            await reader.hashes(Tile(0, 1))

    run(story())


def test_another_root_is_refused_even_if_the_log_is_empty() -> None:
    head = TreeHead("log.example", 0, node_hash(bytes(32), bytes(32)))
    with pytest.raises(ProofError, match="do not lead to the root"):
        run(read_all(TileReader(StaticLog(0).fetch, head)))


def test_a_partial_tile_that_the_log_has_replaced_is_cut_from_the_full_one() -> None:
    grown, log = StaticLog(512), StaticLog(300)

    async def fetch(path: str) -> bytes:
        if ".p/" in path and "tile/1" not in path:
            raise NotFound(Code.NOT_FOUND, "only full tiles are kept")
        return await (log if "tile/1" in path else grown).fetch(path)

    assert run(read_all(TileReader(fetch, log.head))) == list(enumerate(log.entries))


def test_a_missing_full_bundle_is_an_error() -> None:
    log = StaticLog(1_000)

    async def fetch(path: str) -> bytes:
        if path == "tile/entries/001":
            raise NotFound(Code.NOT_FOUND, "pruned")
        return await log.fetch(path)

    with pytest.raises(NotFound):
        run(read_all(TileReader(fetch, log.head)))
