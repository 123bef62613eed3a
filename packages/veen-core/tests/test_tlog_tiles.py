"""Tiles and entry bundles: every node of a tree from its tiles alone (C2SP tlog-tiles)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen_core.errors import DecodeError, EncodeError, ProofError
from veen_core.tlog import tiles, tree
from veen_core.tlog.tiles import ENTRIES, TILE_WIDTH, Tile

from .strategies import steady

SIZE = 66_000
"""More than 256 * 256, so that there are three levels of tiles."""


class Log:
    """A tree whose nodes a test may only reach through tiles, as a reader over HTTP does."""

    def __init__(self, size: int) -> None:
        self.nodes: dict[tuple[int, int], bytes] = {}
        self.tree = tree.Tree()
        for number in range(size):
            for node in self.tree.append(tree.leaf_hash(b"%d" % number)):
                self.nodes[node.height, node.index] = node.hash
        self.fetched: set[Tile] = set()

    def tile(self, tile: Tile) -> bytes:
        assert tile.exists_at(self.tree.size)
        self.fetched.add(tile)
        return b"".join(self.nodes[tile.height, tile.start + at] for at in range(tile.width))


@pytest.fixture(scope="module")
def log() -> Log:
    return Log(SIZE)


def test_every_node_of_a_tree_comes_from_its_tiles() -> None:
    log = Log(700)
    lookup = tiles.node_lookup(700, log.tile)
    for (height, index), expected in log.nodes.items():
        assert lookup(height, index) == expected
    assert log.fetched <= set(tiles.tiles_of(700))


@pytest.mark.parametrize("size", [1, 255, 256, 257, 65_535, 65_536, 65_537, SIZE])
def test_root_and_proofs_come_from_the_tiles_of_the_tree_and_no_others(log: Log, size: int) -> None:
    log.fetched.clear()
    lookup = tiles.node_lookup(size, log.tile)
    root = tree.tree_at(size, lookup).root
    assert root == tree.tree_at(size, lambda height, index: log.nodes[height, index]).root
    for index in {0, size // 3, size - 1}:
        proof = tree.prove_inclusion(lookup, index, size)
        tree.verify_inclusion(tree.leaf_hash(b"%d" % index), index, size, proof, root)
    for old in {1, size // 2 or 1, size}:
        old_root = tree.tree_at(old, lookup).root
        tree.verify_consistency(old, size, tree.prove_consistency(lookup, old, size), old_root, root)
    assert log.fetched <= set(tiles.tiles_of(size))
    assert len(log.fetched) < 20


@pytest.mark.parametrize(("height", "index"), [(0, 300), (8, 1), (9, 0), (16, 0), (0, -1), (-1, 0)])
def test_a_node_that_is_not_complete_is_not_looked_for(height: int, index: int) -> None:
    fetched: list[Tile] = []
    lookup = tiles.node_lookup(300, lambda tile: fetched.append(tile) or b"")  # type: ignore[func-returns-value]
    with pytest.raises(ProofError, match=f"node {index} at height {height} is not complete in a tree of 300"):
        lookup(height, index)
    assert fetched == []


def test_a_tile_of_another_length_is_refused() -> None:
    lookup = tiles.node_lookup(300, lambda tile: bytes(32 * tile.width - 1))
    with pytest.raises(DecodeError, match=r"tile 0/001.p/44 .*want 44 hashes, found 1407 bytes"):
        lookup(0, 299)


def test_a_changed_tile_leads_to_another_root(log: Log) -> None:
    def changed(tile: Tile) -> bytes:
        data = log.tile(tile)
        return data if tile.level != 1 else bytes([data[0] ^ 1]) + data[1:]

    size, index = 65_536 + 300, 300
    proof = tree.prove_inclusion(tiles.node_lookup(size, changed), index, size)
    root = tree.tree_at(size, lambda height, at: log.nodes[height, at]).root
    with pytest.raises(ProofError, match="does not lead to the root"):
        tree.verify_inclusion(tree.leaf_hash(b"%d" % index), index, size, proof, root)


# --- paths

tile_addresses = st.builds(
    Tile, st.sampled_from([ENTRIES, *range(64)]), st.integers(0, 10**18 - 1), st.integers(1, TILE_WIDTH)
)


@steady(150)
@given(tile_addresses)
def test_every_address_has_one_path_that_leads_back_to_it(tile: Tile) -> None:
    assert tiles.parse_path(tile.path) == tile


@steady(250)
@given(st.text(alphabet="0123456789x/.pentris", max_size=24))
def test_any_text_that_is_accepted_as_a_path_is_the_path_of_its_tile(text: str) -> None:
    try:
        tile = tiles.parse_path(text)
    except DecodeError:
        return
    assert tile.path == text


@pytest.mark.parametrize(
    "path",
    [
        "",
        "0",
        "0/",
        "0/0",
        "0/0000",
        "0/1000",
        "0/x000/001",
        "0/x001",
        "0/001/002",
        "00/000",
        "64/000",
        "99/000",
        "-1/000",
        "0/000.p/0",
        "0/000.p/256",
        "0/000.p/300",
        "0/000.p/01",
        "0/000.p/1/",
        "0/000.p",
        "0/000/",
        "/0/000",
        "0/000\n",
        "entry/000",
        "data/000",
        "0/\u0660\u0660\u0660",
        "0/" + "x999/" * 6 + "999",
    ],
)
def test_a_text_that_is_not_the_one_path_of_a_tile_is_refused(path: str) -> None:
    with pytest.raises(DecodeError, match="is not the path of a tile"):
        tiles.parse_path(path)


def test_a_tile_exists_as_soon_as_the_tree_has_all_of_its_hashes() -> None:
    assert Tile(0, 1, 44).exists_at(300)
    assert not Tile(0, 1, 45).exists_at(300)
    assert not Tile(0, 1).exists_at(300)
    assert Tile(1, 0, 1).exists_at(256)
    assert not Tile(1, 0, 1).exists_at(255)
    assert Tile(ENTRIES, 1, 44).exists_at(300)
    assert not Tile(ENTRIES, 1, 45).exists_at(300)
    assert not Tile(63, 0, 1).exists_at(2**63 - 1)


def test_an_empty_tree_has_no_tiles() -> None:
    assert list(tiles.tiles_of(0)) == []


@pytest.mark.parametrize("size", [1, 255, 256, 257, 1_000, 65_536, 70_000])
def test_the_tiles_of_a_tree_hold_each_complete_node_of_their_heights_once(size: int) -> None:
    held: dict[int, int] = {}
    for tile in tiles.tiles_of(size):
        assert tile.exists_at(size)
        assert tile.start == held.get(tile.level, 0)
        held[tile.level] = tile.start + tile.width
    assert held == {level: size >> 8 * level for level in range(3) if size >> 8 * level}


# --- entry bundles


@steady(100)
@given(st.lists(st.binary(max_size=300), max_size=8))
def test_a_bundle_gives_its_entries_back(entries: list[bytes]) -> None:
    assert tiles.decode_bundle(tiles.encode_bundle(entries)) == entries


def test_a_bundle_is_entries_with_their_lengths_in_two_bytes() -> None:
    assert tiles.encode_bundle([b"", b"ab"]) == b"\x00\x00\x00\x02ab"


def test_an_entry_longer_than_two_bytes_can_say_is_refused() -> None:
    assert tiles.decode_bundle(tiles.encode_bundle([bytes(65_535)])) == [bytes(65_535)]
    with pytest.raises(EncodeError, match="at most 65535 bytes, found 65536"):
        tiles.encode_bundle([bytes(65_536)])


@pytest.mark.parametrize("data", [b"\x00", b"\x00\x02a", b"\x00\x01a\x00", b"\xff\xff"])
def test_a_bundle_that_ends_within_an_entry_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="ends within entry"):
        tiles.decode_bundle(data)


def test_a_bundle_is_checked_against_the_tile_above_it() -> None:
    entries = [b"a", b"b"]
    hashes = [tree.leaf_hash(entry) for entry in entries]
    tiles.check_bundle(entries, hashes)
    with pytest.raises(ProofError, match="entry 1 of the bundle does not have its hash"):
        tiles.check_bundle([b"a", b"c"], hashes)
    for fewer in ((entries[:1], hashes), (entries, hashes[:1])):
        with pytest.raises(ProofError, match="entries, its tile has"):
            tiles.check_bundle(*fewer)
