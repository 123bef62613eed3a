"""Merkle Mountain Range (MMR): the hash tree over one label's log (§5.1).

A node has the address ``(height, index)`` and covers the leaves from ``index·2^height`` to
``(index+1)·2^height - 1``, counted from 0. An MMR of ``size`` leaves has one peak for each set bit of
``size``. Peaks are listed in increasing height, that is, from right to left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from veen_core.errors import ProofError
from veen_core.hashing import HASH_SIZE
from veen_core.ids import MmrRoot, NodeHash, StreamSeq

NodeLookup = Callable[[int, int], bytes]
"""``lookup(height, index)`` returns the hash of a complete node; storage implements it."""

_NODE_TAG: Final = b"veen/mmr-node\x00"
_ROOT_TAG: Final = b"veen/mmr-root\x00"


def node_hash(left: bytes, right: bytes) -> NodeHash:
    """Return the hash of an inner node: ``Ht("veen/mmr-node", left || right)`` (§5.1)."""
    return NodeHash(_node(left, right))


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(_NODE_TAG + left + right).digest()


def root_of(peaks: Sequence[bytes]) -> MmrRoot:
    """Return the root: a single peak as it is, several hashed together in increasing height (§5.1)."""
    if len(peaks) == 1:
        return MmrRoot(peaks[0])
    return bytes.__new__(MmrRoot, sha256(b"".join((_ROOT_TAG, *peaks))).digest())


def peak_heights(size: int) -> list[int]:
    """Return the heights of the peaks of an MMR of ``size`` leaves, increasing."""
    return [height for height in range(size.bit_length()) if size >> height & 1]


def peak_positions(size: int) -> list[tuple[int, int]]:
    """Return the addresses of the peaks of an MMR of ``size`` leaves, in increasing height."""
    return [(height, (size >> height) - 1) for height in peak_heights(size)]


def subtrees(start: int, end: int) -> list[tuple[int, int]]:
    """Return the fewest aligned perfect subtrees that cover leaves ``start … end-1``, left to right (B11)."""
    tiles: list[tuple[int, int]] = []
    while start < end:
        aligned = (start & -start).bit_length() - 1 if start else end.bit_length()
        height = min(aligned, (end - start).bit_length() - 1)
        tiles.append((height, start >> height))
        start += 1 << height
    return tiles


@dataclass(slots=True)
class Node:
    """A node that an append completed."""

    height: int
    index: int
    hash: bytes


class Mmr:
    """An MMR as its size and peaks, which is all that appending needs: O(1) amortized, O(log n) worst."""

    __slots__ = ("_stack", "size")

    def __init__(self, size: int = 0, peaks: Iterable[bytes] = ()) -> None:
        """Resume from ``size`` leaves and their peaks in increasing height."""
        self.size = size
        self._stack = list(peaks)[::-1]  # highest first, so that the lowest is at the end
        if len(self._stack) != size.bit_count():
            raise ProofError(f"a tree of {size} leaves has {size.bit_count()} peaks, not {len(self._stack)}")
        if any(len(peak) != HASH_SIZE for peak in self._stack):
            raise ProofError("a peak must have 32 bytes")

    def append(self, leaf: bytes) -> list[Node]:
        """Add a leaf and return the nodes that it completed, leaf first, to be stored (§5.1)."""
        position = self.size
        node, height = leaf, 0
        completed = [Node(0, position, leaf)]
        while position >> height & 1:
            node = _node(self._stack.pop(), node)
            height += 1
            completed.append(Node(height, position >> height, node))
        self._stack.append(node)
        self.size = position + 1
        return completed

    def add(self, leaf: bytes) -> None:
        """Add a leaf without returning nodes."""
        self._merge(0, leaf)

    def append_subtree(self, height: int, root: bytes) -> None:
        """Add 2^height leaves by the root of their subtree; ``size`` must be a multiple of 2^height (B11)."""
        if self.size % (1 << height):
            raise ProofError(
                f"a subtree of {1 << height} leaves is not aligned after {self.size} leaves (B11)"
            )
        self._merge(height, root)

    def _merge(self, height: int, node: bytes) -> None:
        carry = self.size >> height
        while carry & 1:
            node = _node(self._stack.pop(), node)
            carry >>= 1
        self._stack.append(node)
        self.size += 1 << height

    @property
    def peaks(self) -> tuple[NodeHash, ...]:
        """The peaks in increasing height (§5.1)."""
        return tuple(NodeHash(peak) for peak in reversed(self._stack))

    @property
    def root(self) -> MmrRoot:
        """``mmr_root`` of the leaves so far."""
        return root_of(self._stack[::-1])

    @property
    def stream_seq(self) -> StreamSeq:
        """stream_seq of the last leaf: it counts from 1, so it equals the size (§2)."""
        return StreamSeq(self.size)

    def copy(self) -> Mmr:
        twin = object.__new__(Mmr)  # skips the checks of __init__, and so takes about a quarter of the time
        twin.size, twin._stack = self.size, self._stack.copy()
        return twin

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mmr) and (self.size, self._stack) == (other.size, other._stack)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"Mmr(size={self.size}, root={self.root.hex()})"


def mmr_at(size: int, lookup: NodeLookup) -> Mmr:
    """Return the MMR as it was at an earlier size, with O(log n) lookups of stored nodes."""
    return Mmr(size, [lookup(height, index) for height, index in peak_positions(size)])
