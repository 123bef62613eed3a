"""Inclusion proofs: a leaf at a position of a tree of a given size (§5.2-§5.4, B9, B10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from veen_core.errors import ProofError
from veen_core.ids import LeafHash, MmrRoot, NodeHash, StreamSeq
from veen_core.limits import MAX_PROOF_PATH
from veen_core.mmr import Mmr, NodeLookup, node_hash, peak_heights, peak_positions, root_of
from veen_core.wire import Wire, int_map


@int_map("mmr_proof.path", section="5.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep(Wire):
    """``dir`` 0: the running node is the left child, ``sib`` the right one; 1: the other way (B9)."""

    dir: Literal[0, 1]
    sib: NodeHash


@int_map("mmr_proof", section="5.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class MmrProof(Wire):
    """``peaks_after`` are the peaks of the tree except the leaf's own, in increasing height (B10)."""

    ver: Literal[1] = 1
    leaf_hash: LeafHash
    path: tuple[PathStep, ...]
    peaks_after: tuple[NodeHash, ...]


def own_peak(position: int, size: int) -> tuple[int, int]:
    """Height of the peak above the leaf at ``position``, and its rank among peaks by height."""
    for rank, (height, index) in enumerate(peak_positions(size)):
        if position >> height == index:
            return height, rank
    raise ProofError(f"leaf {position + 1} is not in a tree of {size} leaves")


def prove_inclusion(lookup: NodeLookup, stream_seq: StreamSeq, tree_size: int | None = None) -> MmrProof:
    """The proof of one leaf against any tree that holds it; by default the one it completed (B10).

    O(log n) lookups; deterministic and minimal (§5.3, §10.2).
    """
    size = stream_seq if tree_size is None else tree_size
    position = stream_seq - 1
    _check_position(stream_seq, size)
    height, rank = own_peak(position, size)
    path = tuple(
        PathStep(dir=_side(position >> level), sib=NodeHash(lookup(level, position >> level ^ 1)))
        for level in range(height)
    )
    others = [NodeHash(lookup(h, i)) for n, (h, i) in enumerate(peak_positions(size)) if n != rank]
    return MmrProof(leaf_hash=LeafHash(lookup(0, position)), path=path, peaks_after=tuple(others))


def _side(index: int) -> Literal[0, 1]:
    return 1 if index & 1 else 0


def _check_position(stream_seq: int, size: int) -> None:
    if stream_seq < 1:
        raise ProofError("stream_seq 0 names no leaf (§5.4)")
    if stream_seq > size:
        raise ProofError(f"stream_seq {stream_seq} is beyond a tree of {size} leaves (§5.4)")


def verify_inclusion(
    proof: MmrProof,
    expected_root: MmrRoot,
    stream_seq: StreamSeq,
    leaf_hash: LeafHash,
    tree_size: int | None = None,
) -> None:
    """§5.4: every mismatch raises.

    ``expected_root`` is the RECEIPT's own root, or that of any later RECEIPT or CHECKPOINT whose
    ``stream_seq`` or ``upto_seq`` is then the ``tree_size`` (B10).
    """
    peaks_of_proof(proof, expected_root, stream_seq, leaf_hash, tree_size)


def peaks_of_proof(
    proof: MmrProof,
    expected_root: MmrRoot,
    stream_seq: StreamSeq,
    leaf_hash: LeafHash,
    tree_size: int | None = None,
) -> Mmr:
    """Verify, and return the tree's peaks: what a client resumes from (§9 Resync, RESYNC0.2)."""
    size = stream_seq if tree_size is None else tree_size
    _check_position(stream_seq, size)
    if proof.leaf_hash != leaf_hash:
        raise ProofError("mmr_proof.leaf_hash §5.4: is not the leaf hash of the entry being proved")
    position = stream_seq - 1
    height, rank = own_peak(position, size)
    if len(proof.path) > MAX_PROOF_PATH:
        raise ProofError(f"mmr_proof.path §14: {len(proof.path)} siblings, at most {MAX_PROOF_PATH}")
    if len(proof.path) != height:
        raise ProofError(
            f"mmr_proof.path §5.3: {len(proof.path)} siblings, position and size dictate {height}"
        )
    if len(proof.peaks_after) != len(peak_heights(size)) - 1:
        raise ProofError(
            f"mmr_proof.peaks_after §5.4: {len(proof.peaks_after)} peaks do not fit a tree of {size} leaves"
        )
    peak = _climb(proof, position)
    peaks = [*proof.peaks_after[:rank], peak, *proof.peaks_after[rank:]]
    if len(set(peaks)) != len(peaks):
        raise ProofError("mmr_proof.peaks_after §5.4: duplicate peaks")
    if root_of(peaks) != expected_root:
        raise ProofError(
            f"mmr_proof §5.4: stream_seq {stream_seq} of {size} does not lead to the expected mmr_root"
        )
    return Mmr(size, peaks)


def _climb(proof: MmrProof, position: int) -> NodeHash:
    """From the leaf to its peak; each ``dir`` must be the one the position dictates."""
    node = NodeHash(proof.leaf_hash)
    for level, step in enumerate(proof.path):
        if step.dir != position >> level & 1:
            raise ProofError(f"mmr_proof.path[{level}].dir §5.2: {step.dir} contradicts the leaf's position")
        node = node_hash(step.sib, node) if step.dir else node_hash(node, step.sib)
    return node
