"""Inclusion proofs: a leaf is at a given position of a tree of a given size (§5.2 to §5.4, B9, B10)."""

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
    """One step up: ``dir`` 0 means the node so far is the left child and ``sib`` the right one (B9)."""

    dir: Literal[0, 1]
    sib: NodeHash


@int_map("mmr_proof", section="5.2")
@dataclass(frozen=True, slots=True, kw_only=True)
class MmrProof(Wire):
    """An inclusion proof. ``peaks_after``: all peaks but the leaf's own, in increasing height (B10)."""

    ver: Literal[1] = 1
    leaf_hash: LeafHash
    path: tuple[PathStep, ...]
    peaks_after: tuple[NodeHash, ...]


def own_peak(position: int, size: int) -> tuple[int, int]:
    """Return the height of the peak above leaf ``position`` (from 0), and its index in increasing height."""
    for rank, (height, index) in enumerate(peak_positions(size)):
        if position >> height == index:
            return height, rank
    raise ProofError(f"leaf {position + 1} is not in a tree of {size} leaves")


def prove_inclusion(lookup: NodeLookup, stream_seq: StreamSeq, tree_size: int | None = None) -> MmrProof:
    """Build the proof of one leaf in a tree of ``tree_size``; by default, the tree that ends with it (B10).

    It takes O(log n) lookups. The proof is minimal, and the same log gives the same bytes (§5.3, §10.2).
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
        raise ProofError("stream_seq 0 names no leaf (core §5.4)")
    if stream_seq > size:
        raise ProofError(f"stream_seq {stream_seq} is beyond a tree of {size} leaves (core §5.4)")


def verify_inclusion(
    proof: MmrProof,
    expected_root: MmrRoot,
    stream_seq: StreamSeq,
    leaf_hash: LeafHash,
    tree_size: int | None = None,
) -> None:
    """Verify an inclusion proof; any mismatch raises ``ProofError`` (§5.4).

    ``expected_root`` is the ``mmr_root`` of the entry's own RECEIPT, or of a later RECEIPT or CHECKPOINT.
    For a later one, pass its ``stream_seq`` or ``upto_seq`` as ``tree_size`` (B10).
    """
    peaks_of_proof(proof, expected_root, stream_seq, leaf_hash, tree_size)


def peaks_of_proof(
    proof: MmrProof,
    expected_root: MmrRoot,
    stream_seq: StreamSeq,
    leaf_hash: LeafHash,
    tree_size: int | None = None,
) -> Mmr:
    """Verify an inclusion proof and return the tree, from which a client can continue (§9, RESYNC0.2)."""
    size = stream_seq if tree_size is None else tree_size
    _check_position(stream_seq, size)
    if proof.leaf_hash != leaf_hash:
        raise ProofError("mmr_proof.leaf_hash (core §5.4): is not the leaf hash of the entry to prove")
    position = stream_seq - 1
    height, rank = own_peak(position, size)
    if len(proof.path) > MAX_PROOF_PATH:
        raise ProofError(f"mmr_proof.path (core §14): {len(proof.path)} siblings, at most {MAX_PROOF_PATH}")
    if len(proof.path) != height:
        raise ProofError(
            f"mmr_proof.path (core §5.3): {len(proof.path)} siblings, position and tree size require {height}"
        )
    if len(proof.peaks_after) != len(peak_heights(size)) - 1:
        raise ProofError(
            f"mmr_proof.peaks_after (core §5.4): a tree of {size} leaves does not have "
            f"{len(proof.peaks_after) + 1} peaks"
        )
    peak = _climb(proof, position)
    peaks = [*proof.peaks_after[:rank], peak, *proof.peaks_after[rank:]]
    if len(set(peaks)) != len(peaks):
        raise ProofError("mmr_proof.peaks_after (core §5.4): two peaks are equal")
    if root_of(peaks) != expected_root:
        raise ProofError(
            f"mmr_proof (core §5.4): leaf {stream_seq} of {size} does not lead to the expected mmr_root"
        )
    return Mmr(size, peaks)


def _climb(proof: MmrProof, position: int) -> NodeHash:
    """Hash from the leaf up to its peak; each ``dir`` must agree with the leaf's position."""
    node = NodeHash(proof.leaf_hash)
    for level, step in enumerate(proof.path):
        if step.dir != position >> level & 1:
            raise ProofError(
                f"mmr_proof.path[{level}].dir (core §5.2): {step.dir} contradicts the leaf's position"
            )
        node = node_hash(step.sib, node) if step.dir else node_hash(node, step.sib)
    return node
