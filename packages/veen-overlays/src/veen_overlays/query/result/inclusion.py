"""Inclusion of many leaves in one tree, as one proof (core §5.1, RESOLUTIONS B11, P13).

The leaves to prove leave gaps between them. The proof has, from left to right, the hashes of the fewest
aligned perfect subtrees that fill each gap (B11). The verifier appends leaves and subtrees in order and
compares the root. Leaves that are close to each other share most of the proof: k of n leaves need about
k·log2(n/k) hashes, and all leaves need none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from veen_core.errors import ProofError
from veen_core.hashing import HASH_SIZE
from veen_core.ids import MmrRoot
from veen_core.mmr import Mmr, NodeLookup, subtrees


def gap_subtrees(seqs: Sequence[int], size: int) -> Iterator[tuple[int, int]]:
    """Yield the addresses of the subtrees that fill the gaps between ascending ``seqs``, left to right."""
    start = 0
    for seq in seqs:
        yield from subtrees(start, seq - 1)
        start = seq
    yield from subtrees(start, size)


def _check_seqs(seqs: Sequence[int], size: int) -> None:
    before = 0
    for seq in seqs:
        if not before < seq <= size:
            raise ProofError(
                f"leaf {seq} does not follow leaf {before} in a tree of {size} leaves (core §5.4)"
            )
        before = seq


def prove_from_nodes(lookup: NodeLookup, seqs: Sequence[int], size: int) -> bytes:
    """Build the proof from stored nodes."""
    _check_seqs(seqs, size)
    return b"".join(lookup(height, index) for height, index in gap_subtrees(seqs, size))


def prove_from_leaves(leaves: Iterable[bytes], seqs: Sequence[int], size: int) -> bytes:
    """Build the proof from all leaf hashes in order, from the first one; memory does not grow with them."""
    _check_seqs(seqs, size)
    stream, hashes, start = iter(leaves), [], 0
    for end in (*(seq - 1 for seq in seqs), size):
        for height, _index in subtrees(start, end):
            hashes.append(_fold(stream, height))
        if end < size:
            _take(stream, 1)
        start = end + 1
    return b"".join(hashes)


def _fold(leaves: Iterator[bytes], height: int) -> bytes:
    tree = Mmr()
    for leaf in _take(leaves, 1 << height):
        tree.add(leaf)
    return bytes(tree.root)


def _take(leaves: Iterator[bytes], count: int) -> list[bytes]:
    taken = list(islice(leaves, count))
    if len(taken) != count:
        raise ProofError(f"{count - len(taken)} leaf hashes are missing at the end of the log")
    return taken


def verify_leaves(
    proof: bytes, seqs: Sequence[int], leaves: Sequence[bytes], size: int, root: MmrRoot
) -> None:
    """Raise ``ProofError`` unless each leaf is at its index in the tree of ``size`` leaves under ``root``."""
    _check_seqs(seqs, size)
    tree, at, start = Mmr(), 0, 0
    for seq, leaf in zip(seqs, leaves, strict=True):
        at = _append_gap(tree, proof, at, start, seq - 1)
        tree.add(leaf)
        start = seq
    at = _append_gap(tree, proof, at, start, size)
    if at != len(proof):
        raise ProofError(
            f"inclusion proof (B11): has {len(proof)} bytes, but these leaves of this tree require {at} bytes"
        )
    if tree.root != root:
        raise ProofError(f"inclusion proof (core §5.4): the leaves do not lead to the root of {size} entries")


def _append_gap(tree: Mmr, proof: bytes, at: int, start: int, end: int) -> int:
    for height, _index in subtrees(start, end):
        node = proof[at : at + HASH_SIZE]
        at += HASH_SIZE
        if len(node) != HASH_SIZE:
            raise ProofError("inclusion proof (B11): ends before the gaps between these leaves are filled")
        tree.append_subtree(height, node)
    return at
