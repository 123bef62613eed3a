"""The Merkle tree of RFC 6962 §2.1: hashes, inclusion proofs and consistency proofs.

A node has the address ``(height, index)`` and covers the leaves from ``index·2^height`` to
``(index+1)·2^height - 1``, counted from 0. Only complete nodes are stored. They never change, so proofs for
all tree sizes come from the same nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Final

from veen_core.errors import ProofError
from veen_core.hashing import HASH_SIZE
from veen_core.mmr import Node, peak_positions

NodeLookup = Callable[[int, int], bytes]
"""``lookup(height, index)`` returns the hash of a complete node."""

EMPTY_ROOT: Final = sha256().digest()
"""Root of a tree without leaves."""
MAX_PROOF_HASHES: Final = 63
"""Most hashes in a proof (C2SP tlog-witness)."""
_INCLUSION: Final = "inclusion proof (RFC 6962 §2.1.1)"
_CONSISTENCY: Final = "consistency proof (RFC 6962 §2.1.2)"


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of a log entry: ``SHA-256(0x00 || entry)``."""
    return sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node: ``SHA-256(0x01 || left || right)``."""
    return sha256(b"\x01" + left + right).digest()


def root_of(subtrees: Sequence[bytes]) -> bytes:
    """Return the root over complete subtrees, given from left to right."""
    if not subtrees:
        return EMPTY_ROOT
    root = subtrees[-1]
    for subtree in reversed(subtrees[:-1]):
        root = node_hash(subtree, root)
    return root


class Tree:
    """A tree as its size and complete subtrees, which is all that appending needs."""

    __slots__ = ("_subtrees", "size")

    def __init__(self, size: int = 0, subtrees: Iterable[bytes] = ()) -> None:
        """Resume from ``size`` leaves and their complete subtrees, the largest first."""
        self.size = size
        self._subtrees = list(subtrees)
        if len(self._subtrees) != size.bit_count():
            raise ProofError(
                f"a tree of {size} leaves has {size.bit_count()} complete subtrees, not {len(self._subtrees)}"
            )
        if any(len(subtree) != HASH_SIZE for subtree in self._subtrees):
            raise ProofError("the hash of a subtree must have 32 bytes")

    def append(self, leaf: bytes) -> list[Node]:
        """Add a leaf hash and return the nodes that it completed, leaf first, to be stored."""
        position = self.size
        node, height = leaf, 0
        completed = [Node(0, position, leaf)]
        while position >> height & 1:
            node = node_hash(self._subtrees.pop(), node)
            height += 1
            completed.append(Node(height, position >> height, node))
        self._subtrees.append(node)
        self.size = position + 1
        return completed

    def append_subtree(self, height: int, root: bytes) -> None:
        """Add 2^height leaves by the hash of their subtree; ``size`` must be a multiple of 2^height."""
        if self.size % (1 << height):
            raise ProofError(f"a subtree of {1 << height} leaves is not aligned after {self.size} leaves")
        carry = self.size >> height
        while carry & 1:
            root = node_hash(self._subtrees.pop(), root)
            carry >>= 1
        self._subtrees.append(root)
        self.size += 1 << height

    @property
    def subtrees(self) -> tuple[bytes, ...]:
        """The complete subtrees, the largest first."""
        return tuple(self._subtrees)

    @property
    def root(self) -> bytes:
        return root_of(self._subtrees)

    def copy(self) -> Tree:
        return Tree(self.size, self._subtrees)


def tree_at(size: int, lookup: NodeLookup) -> Tree:
    """Return the tree as it was at an earlier size, with O(log n) lookups."""
    return Tree(size, [lookup(height, index) for height, index in reversed(peak_positions(size))])


# --- proofs


def prove_inclusion(lookup: NodeLookup, index: int, size: int) -> list[bytes]:
    """Return the proof that leaf ``index`` is in the tree of ``size`` leaves (RFC 6962 §2.1.1)."""
    if not 0 <= index < size:
        raise ProofError(f"leaf {index} is not in a tree of {size} leaves")
    proof: list[bytes] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            proof.append(_hash_of(lookup, middle, end))
            end = middle
        else:
            proof.append(_hash_of(lookup, start, middle))
            start = middle
    return proof[::-1]


def prove_consistency(lookup: NodeLookup, old: int, new: int) -> list[bytes]:
    """Return the proof that the first ``old`` leaves of a tree of ``new`` are unchanged (RFC 6962 §2.1.2)."""
    if not 0 <= old <= new:
        raise ProofError(f"a tree of {old} leaves is not the start of one of {new}")
    if old in (0, new):
        return []
    proof: list[bytes] = []
    start, end = 0, new
    whole = True  # the rest is the old tree itself: the verifier knows its root
    while end != old:
        middle = start + _split(end - start)
        if old <= middle:
            proof.append(_hash_of(lookup, middle, end))
            end = middle
        else:
            proof.append(_hash_of(lookup, start, middle))
            start = middle
            whole = False
    if not whole:
        proof.append(_hash_of(lookup, start, end))
    return proof[::-1]


def _split(count: int) -> int:
    """Return the largest power of two below ``count`` (RFC 6962 §2.1)."""
    return 1 << ((count - 1).bit_length() - 1)


def _hash_of(lookup: NodeLookup, start: int, end: int) -> bytes:
    """Return the hash over leaves ``start … end-1``, a right or left part of a split tree."""
    subtrees: list[bytes] = []
    while start < end:
        height = (end - start).bit_length() - 1
        subtrees.append(lookup(height, start >> height))
        start += 1 << height
    return root_of(subtrees)


# --- verification


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> None:
    """Raise ``ProofError`` unless the leaf hash is at ``index`` of the tree (RFC 9162 §2.1.3.2).

    ``size`` and ``root`` are those of a signed tree head: a proof alone does not fix the size.
    """
    if not 0 <= index < size:
        raise ProofError(f"{_INCLUSION}: leaf {index} is not in a tree of {size} leaves")
    _check_hashes(_INCLUSION, leaf, root, *proof)
    node, last = index, size - 1
    found = leaf
    for sibling in proof:
        if last == 0:
            raise ProofError(f"{_INCLUSION}: too long for a tree of {size} leaves")
        if node & 1 or node == last:
            found = node_hash(sibling, found)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            found = node_hash(found, sibling)
        node, last = node >> 1, last >> 1
    if last != 0:
        raise ProofError(f"{_INCLUSION}: too short for a tree of {size} leaves")
    if found != root:
        raise ProofError(f"{_INCLUSION}: leaf {index} of {size} does not lead to the root")


def verify_consistency(old: int, new: int, proof: Sequence[bytes], old_root: bytes, new_root: bytes) -> None:
    """Raise ``ProofError`` unless the old tree is the start of the new one (RFC 9162 §2.1.4.2).

    An empty tree is the start of every tree, and its root is ``EMPTY_ROOT``.
    """
    if not 0 <= old <= new:
        raise ProofError(f"{_CONSISTENCY}: a tree of {old} leaves is not the start of one of {new}")
    _check_hashes(_CONSISTENCY, old_root, new_root, *proof)
    if old in (0, new):
        if proof:
            raise ProofError(f"{_CONSISTENCY}: must be empty from size {old} to {new}")
        found_old = new_root if old == new else EMPTY_ROOT
        found_new = new_root if new else EMPTY_ROOT
    else:
        found_old, found_new = roots_of_proof(old, new, proof, old_root)
    if found_old != old_root:
        raise ProofError(f"{_CONSISTENCY}: does not lead to the root at size {old}")
    if found_new != new_root:
        raise ProofError(f"{_CONSISTENCY}: does not lead to the root at size {new}")


def _check_hashes(what: str, *hashes: bytes) -> None:
    if any(len(digest) != HASH_SIZE for digest in hashes):
        raise ProofError(f"{what}: a hash does not have {HASH_SIZE} bytes")


def roots_of_proof(old: int, new: int, proof: Sequence[bytes], old_root: bytes) -> tuple[bytes, bytes]:
    """Return the old and the new root that a consistency proof leads to, for ``0 < old < new``.

    If ``old`` is a power of two, the proof does not contain the old root, and ``old_root`` is returned.
    """
    if not 0 < old < new:
        raise ProofError(f"{_CONSISTENCY}: want 0 < old < new, found {old} and {new}")
    _check_hashes(_CONSISTENCY, old_root, *proof)
    if not proof:
        raise ProofError(f"{_CONSISTENCY}: is empty")
    path = [old_root, *proof] if old & (old - 1) == 0 else list(proof)
    node, last = old - 1, new - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    found_old = found_new = path[0]
    for sibling in path[1:]:
        if last == 0:
            raise ProofError(f"{_CONSISTENCY}: too long from size {old} to {new}")
        if node & 1 or node == last:
            found_old, found_new = node_hash(sibling, found_old), node_hash(sibling, found_new)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            found_new = node_hash(found_new, sibling)
        node, last = node >> 1, last >> 1
    if last != 0:
        raise ProofError(f"{_CONSISTENCY}: too short from size {old} to {new}")
    return found_old, found_new
