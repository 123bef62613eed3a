"""The comparisons of a monitor, without IO: two signed statements agree, or they are evidence (P1).

Each function returns None if the statements agree, evidence that has been verified if they contradict each
other, and raises ``ProofError`` if the hashes given do not decide it. An honest hub cannot be accused: the
evidence is what ``veen verify`` accepts, and it is verified here, before it is reported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from veen_core import hub_fork, mmr
from veen_core.consistency import MmrConsistency
from veen_core.errors import EvidenceError, ProofError
from veen_core.hub_fork import CutTree, HubLogFork, LabelFork, LabelStatement
from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import LabelHead
from veen_core.tlog.tree import Tree
from veen_core.tlog.tree_head import SignedHead


@dataclass(frozen=True, slots=True)
class HeadPlace:
    """A label's head and its index in the hub log."""

    index: int
    head: LabelHead


@dataclass(frozen=True, slots=True)
class HeadPair:
    """Two heads of one label that follow each other in the hub log; the later must extend the earlier."""

    earlier: HeadPlace
    later: HeadPlace


def find_fork(
    identity: HubIdentity, earlier: SignedHead, later: SignedHead, cut: CutTree | None
) -> HubLogFork | None:
    """Compare two hub checkpoints that the hub signed, with the later tree cut at the earlier size."""
    if prefix_root(later, earlier.head.size, cut) == earlier.head.root:
        return None
    evidence = HubLogFork(
        identity=identity,
        origin=later.head.origin,
        earlier=earlier.encode(),
        later=later.encode(),
        cut=cut if earlier.head.size < later.head.size else None,
    )
    hub_fork.verify_hub_log_fork(evidence, pinned=identity.hub_id)
    return evidence


def prefix_root(later: SignedHead, at: int, cut: CutTree | None) -> bytes:
    """Return the root of the first ``at`` entries under a hub checkpoint; the cut must lead to its root."""
    if at == later.head.size:
        return later.head.root
    if cut is None:
        raise ProofError(f"the tree of {later.head.size} entries is not known at {at} entries")
    grown = Tree(at, cut.before)
    prefix = grown.root
    for (height, _index), subtree in zip(mmr.subtrees(at, later.head.size), cut.after, strict=True):
        grown.append_subtree(height, subtree)
    if grown.root != later.head.root:
        raise ProofError(f"the tree cut at {at} entries does not lead to the root of {later.head.size}")
    return prefix


def cut_of(proof: MmrConsistency) -> CutTree:
    """Return the tree of a label that a consistency proof describes, cut at its smaller size (B11)."""
    return CutTree(before=tuple(reversed(proof.peaks_from)), after=proof.path)


def size_of(statement: LabelStatement) -> int:
    """Return how many entries of its label a statement covers."""
    if statement.receipt is not None:
        return statement.receipt.stream_seq
    assert statement.head is not None
    return statement.head.upto_seq


def first_that_convicts(
    identity: HubIdentity,
    origin: str,
    pairs: Iterable[tuple[LabelStatement, LabelStatement]],
    cuts: Iterable[CutTree],
) -> LabelFork | None:
    """Return evidence from the first pair of statements that contradict each other; None if none do.

    The hub may contradict itself in several ways, and which of them can be proved depends on what it still
    serves. Each pair is tried with each cut that the hub gave.
    """
    shapes = [None, *cuts]
    for first, second in pairs:
        earlier, later = sorted((first, second), key=size_of)
        made = LabelFork(identity=identity, origin=origin, earlier=earlier, later=later)
        for cut in shapes:
            evidence = dataclasses.replace(made, cut=cut)
            try:
                hub_fork.verify_label_fork(evidence, pinned=identity.hub_id)
            except EvidenceError:
                continue
            return evidence
    return None
