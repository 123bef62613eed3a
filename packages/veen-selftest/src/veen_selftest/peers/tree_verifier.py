"""An independent reader of hub logs: RFC 6962 trees and proofs, tiles and label heads, by hashlib only.

Each function follows a definition of RFC 6962 §2.1 or of C2SP tlog-tiles word by word, by recursion.
``veen_core.tlog`` uses the iterative algorithms of RFC 9162; both must agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from veen_selftest.runner.check import ClauseViolation, require, require_equal

TILE_WIDTH: Final = 256
HASH_SIZE: Final = 32
EMPTY_ROOT: Final = sha256(b"").digest()


def leaf_hash(entry: bytes) -> bytes:
    return sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def split(size: int) -> int:
    """Return the largest power of two below ``size``."""
    return 1 << (size - 1).bit_length() - 1


def tree_hash(leaves: Sequence[bytes]) -> bytes:
    """Return MTH over leaf hashes (RFC 6962 §2.1)."""
    if not leaves:
        return EMPTY_ROOT
    if len(leaves) == 1:
        return leaves[0]
    k = split(len(leaves))
    return node_hash(tree_hash(leaves[:k]), tree_hash(leaves[k:]))


def root_of_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """Return the root that an inclusion proof leads to: PATH of RFC 6962 §2.1.1, read backwards."""
    require(0 <= index < size, f"entry {index} is not in a tree of {size} (RFC 6962 §2.1.1)")
    if size == 1:
        require(not path, "the inclusion proof is too long (RFC 6962 §2.1.1)")
        return leaf
    require(path, "the inclusion proof is too short (RFC 6962 §2.1.1)")
    k, (*lower, top) = split(size), path
    if index < k:
        return node_hash(root_of_inclusion(leaf, index, k, lower), top)
    return node_hash(top, root_of_inclusion(leaf, index - k, size - k, lower))


def require_consistent(old: int, new: int, path: Sequence[bytes], old_root: bytes, new_root: bytes) -> None:
    """Require that the proof leads to both roots: SUBPROOF of RFC 6962 §2.1.2, read backwards."""
    require(0 <= old <= new, f"a tree of {old} cannot be the start of one of {new} (RFC 6962 §2.1.2)")
    if old == 0:
        require(not path, "the consistency proof from an empty tree is not empty (RFC 6962 §2.1.2)")
        require_equal(old_root, EMPTY_ROOT, "the root of an empty tree (RFC 6962 §2.1)")
        return
    found = _subproof(old, new, path, old_root if old < new else new_root, whole=True)
    for root, expected, size in zip(found, (old_root, new_root), (old, new), strict=True):
        require_equal(root, expected, f"root at {size} by the proof from {old} to {new} (RFC 6962 §2.1.2)")


def _subproof(m: int, n: int, path: Sequence[bytes], known: bytes, *, whole: bool) -> tuple[bytes, bytes]:
    if m == n:
        require(len(path) == (0 if whole else 1), "the consistency proof has a wrong size (RFC 6962 §2.1.2)")
        found = known if whole else path[0]
        return found, found
    require(path, "the consistency proof is too short (RFC 6962 §2.1.2)")
    k, (*lower, top) = split(n), path
    if m <= k:
        old, new = _subproof(m, k, lower, known, whole=whole)
        return old, node_hash(new, top)
    old, new = _subproof(m - k, n - k, lower, known, whole=False)
    return node_hash(top, old), node_hash(top, new)


# --- C2SP tlog-tiles


def tile_path(level: int | str, index: int, width: int = TILE_WIDTH) -> str:
    """Return the path of a tile, or of an entry bundle (level ``entries``), below the log's address."""
    groups = [f"{index % 1_000:03}"]
    while index := index // 1_000:
        groups.insert(0, f"x{index % 1_000:03}")
    partial = f".p/{width}" if width != TILE_WIDTH else ""
    return f"/log/tile/{level}/{'/'.join(groups)}{partial}"


def split_tile(data: bytes, width: int) -> list[bytes]:
    """Split a tile into its hashes."""
    require_equal(len(data), width * HASH_SIZE, f"bytes of a tile of {width} hashes (C2SP tlog-tiles)")
    return [data[at : at + HASH_SIZE] for at in range(0, len(data), HASH_SIZE)]


def split_bundle(data: bytes, width: int) -> list[bytes]:
    """Split an entry bundle into its entries, each after its length in two bytes."""
    entries, rest = [], data
    while rest:
        end = 2 + int.from_bytes(rest[:2], "big")
        require(end <= len(rest), "an entry bundle ends within an entry (C2SP tlog-tiles)")
        entries.append(rest[2:end])
        rest = rest[end:]
    require_equal(len(entries), width, "entries of a bundle (C2SP tlog-tiles)")
    return entries


# --- entries of a hub log


@dataclass(frozen=True, slots=True)
class HeadEntry:
    """An entry of a hub log: a label's newest entry when the hub log grew (P1)."""

    label: bytes
    upto_seq: int
    mmr_root: bytes
    hub_ts: int


def parse_head(entry: bytes) -> HeadEntry:
    """Parse CBOR([1, label, upto_seq, mmr_root, hub_ts]); raise ``ClauseViolation`` for others (P1, B3)."""
    require(entry[:4] == b"\x85\x01\x58\x20", "an entry of the hub log does not begin as a label head (P1)")
    label, rest = entry[4:36], entry[36:]
    upto_seq, rest = _take_uint(rest)
    require(rest[:2] == b"\x58\x20", "an entry of the hub log has no root of 32 bytes (P1)")
    mmr_root, rest = rest[2:34], rest[34:]
    hub_ts, rest = _take_uint(rest)
    require(len(mmr_root) == HASH_SIZE and not rest, "an entry of the hub log has another length (P1)")
    return HeadEntry(label, upto_seq, mmr_root, hub_ts)


def _take_uint(data: bytes) -> tuple[int, bytes]:
    """Take an unsigned integer in its shortest form from the front (RFC 8949 §4.2.1)."""
    first = data[0] if data else 0xFF
    if first < 24:
        return first, data[1:]
    if first > 27:
        raise ClauseViolation("an entry of the hub log has a field that is not an unsigned integer (P1)")
    size = 1 << first - 24
    value = int.from_bytes(data[1 : 1 + size], "big")
    smallest = 24 if size == 1 else 1 << 4 * size
    require(
        len(data) > size and value >= smallest, "an integer in the hub log is not in its shortest form (B3)"
    )
    return value, data[1 + size :]
