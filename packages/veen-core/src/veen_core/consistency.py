"""Consistency proofs: an earlier tree of a label is a prefix of a later one (RESOLUTIONS B11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from veen_core.errors import ProofError
from veen_core.ids import MmrRoot, NodeHash, StreamSeq
from veen_core.mmr import Mmr, NodeLookup, peak_positions, subtrees
from veen_core.wire import Wire, int_map


@int_map("mmr_consistency", section="B11")
@dataclass(frozen=True, slots=True, kw_only=True)
class MmrConsistency(Wire):
    """A consistency proof: the peaks of the smaller tree, and the subtrees that cover the new leaves.

    ``peaks_from`` is in increasing height; ``path`` is in order from left to right.
    """

    ver: Literal[1] = 1
    from_seq: StreamSeq
    to_seq: StreamSeq
    peaks_from: tuple[NodeHash, ...]
    path: tuple[NodeHash, ...]


def _check_sizes(from_seq: int, to_seq: int) -> None:
    if not 1 <= from_seq < to_seq:
        raise ProofError(f"mmr_consistency (B11): want 1 <= from_seq < to_seq, found {from_seq} and {to_seq}")


def prove_consistency(lookup: NodeLookup, from_seq: StreamSeq, to_seq: StreamSeq) -> MmrConsistency:
    """Build the proof from stored nodes, with O(log n) lookups; the same log gives the same bytes."""
    _check_sizes(from_seq, to_seq)
    return MmrConsistency(
        from_seq=from_seq,
        to_seq=to_seq,
        peaks_from=tuple(NodeHash(lookup(h, i)) for h, i in peak_positions(from_seq)),
        path=tuple(NodeHash(lookup(h, i)) for h, i in subtrees(from_seq, to_seq)),
    )


def verify_consistency(proof: MmrConsistency, from_root: MmrRoot, to_root: MmrRoot) -> Mmr:
    """Verify that the tree under ``from_root`` is a prefix of the tree under ``to_root``; return the latter.

    The caller checks that ``from_seq`` and ``to_seq`` are the sizes that the RECEIPTs or CHECKPOINTs
    with these roots state. All heights and counts follow from the two sizes.
    """
    _check_sizes(proof.from_seq, proof.to_seq)
    tiles = subtrees(proof.from_seq, proof.to_seq)
    if len(proof.path) != len(tiles):
        raise ProofError(
            f"mmr_consistency.path (B11): {len(proof.path)} subtrees, the two sizes require {len(tiles)}"
        )
    tree = Mmr(proof.from_seq, proof.peaks_from)
    if tree.root != from_root:
        raise ProofError(f"mmr_consistency (B11): peaks_from do not fold to the root at {proof.from_seq}")
    for (height, _index), subtree in zip(tiles, proof.path, strict=True):
        tree.append_subtree(height, subtree)
    if tree.root != to_root:
        raise ProofError(
            f"mmr_consistency (B11): path does not lead from the root at {proof.from_seq} to the root "
            f"at {proof.to_seq}"
        )
    return tree
