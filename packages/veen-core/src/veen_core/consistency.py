"""Consistency proofs: an earlier tree is a prefix of a later one (B11)."""

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
    """``peaks_from`` in increasing height; ``path`` tiles the new leaves left to right."""

    ver: Literal[1] = 1
    from_seq: StreamSeq
    to_seq: StreamSeq
    peaks_from: tuple[NodeHash, ...]
    path: tuple[NodeHash, ...]


def _check_sizes(from_seq: int, to_seq: int) -> None:
    if not 1 <= from_seq < to_seq:
        raise ProofError(f"mmr_consistency B11: wants 1 <= from_seq < to_seq, found {from_seq} and {to_seq}")


def prove_consistency(lookup: NodeLookup, from_seq: StreamSeq, to_seq: StreamSeq) -> MmrConsistency:
    """O(log n) lookups; deterministic."""
    _check_sizes(from_seq, to_seq)
    return MmrConsistency(
        from_seq=from_seq,
        to_seq=to_seq,
        peaks_from=tuple(NodeHash(lookup(h, i)) for h, i in peak_positions(from_seq)),
        path=tuple(NodeHash(lookup(h, i)) for h, i in subtrees(from_seq, to_seq)),
    )


def verify_consistency(proof: MmrConsistency, from_root: MmrRoot, to_root: MmrRoot) -> Mmr:
    """Raise unless the old tree folds to ``from_root`` and grows into ``to_root``; returns the new tree.

    Heights and counts follow from the two sizes alone; the caller checks that the sizes are those
    of the RECEIPTs or CHECKPOINTs the two roots come from.
    """
    _check_sizes(proof.from_seq, proof.to_seq)
    tiles = subtrees(proof.from_seq, proof.to_seq)
    if len(proof.path) != len(tiles):
        raise ProofError(
            f"mmr_consistency.path B11: {len(proof.path)} subtrees, the sizes dictate {len(tiles)}"
        )
    tree = Mmr(proof.from_seq, proof.peaks_from)
    if tree.root != from_root:
        raise ProofError(f"mmr_consistency B11: peaks_from do not fold to the root at {proof.from_seq}")
    for (height, _index), subtree in zip(tiles, proof.path, strict=True):
        tree.append_subtree(height, subtree)
    if tree.root != to_root:
        raise ProofError(
            f"mmr_consistency B11: the tree of {proof.from_seq} does not grow into the root at {proof.to_seq}"
        )
    return tree
