"""Evidence that a hub signed two histories, in its hub log or of one label (RESOLUTIONS P1).

A consistency proof that fails proves nothing: any party can make one. So the evidence contains the later
tree, cut at the size of the earlier statement. Its hashes lead to the later root, but not to the earlier root
that the hub signed. A third party verifies it offline, with the hub's identity and nothing else. Without a
pinned hub_id, the evidence convicts the hub that it names.

The maker of the evidence chooses the identity inside it: endorsements cover the keys, but not their ends
(core §8.4). A verifier that has a record of the hub's keys therefore uses its own, and refuses receipts by a
key that had ended. A hub checkpoint has no time, so the holder of a retired key can make evidence of two hub
logs against its hub.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

from veen_core import hub_identity, hub_log, mmr
from veen_core.errors import EvidenceError, VeenError
from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import LabelHead
from veen_core.ids import HubId, NodeHash
from veen_core.mmr import Mmr
from veen_core.receipt import Receipt
from veen_core.tlog import tree
from veen_core.tlog.tree import Tree
from veen_core.tlog.tree_head import TreeHead, parse_signed_head
from veen_core.wire import Wire, int_map


@int_map("cut tree", section="RESOLUTIONS P1")
@dataclass(frozen=True, slots=True, kw_only=True)
class CutTree(Wire):
    """A tree cut in two: the complete subtrees before the cut, and those that cover the leaves after it.

    ``before`` has the largest subtree first, ``after`` goes from left to right.
    """

    before: tuple[NodeHash, ...]
    after: tuple[NodeHash, ...]


def cut(lookup: tree.NodeLookup, at: int, size: int) -> CutTree:
    """Cut the tree of ``size`` leaves after ``at`` of them; it works for hub logs and for labels."""
    before = reversed(mmr.peak_positions(at))
    return CutTree(
        before=tuple(NodeHash(lookup(height, index)) for height, index in before),
        after=tuple(NodeHash(lookup(height, index)) for height, index in mmr.subtrees(at, size)),
    )


@int_map("hub log fork", section="RESOLUTIONS P1")
@dataclass(frozen=True, slots=True, kw_only=True)
class HubLogFork(Wire):
    """Two hub checkpoints of which the earlier is not the start of the later."""

    kind: Literal["veen-hub-log-fork"] = "veen-hub-log-fork"
    ver: Literal[1] = 1
    identity: HubIdentity
    origin: str
    earlier: bytes
    later: bytes
    cut: CutTree | None = None
    """The later tree, cut at the earlier size; absent if both have the same size."""


@int_map("label statement", section="RESOLUTIONS P1")
@dataclass(frozen=True, slots=True, kw_only=True)
class LabelStatement(Wire):
    """A hub's signed statement about a label: a RECEIPT, or a head in its hub log below a hub checkpoint.

    A statement has either ``receipt`` or all other fields.
    """

    receipt: Receipt | None = None
    head: LabelHead | None = None
    index: int | None = None
    proof: tuple[NodeHash, ...] | None = None
    checkpoint: bytes | None = None


@int_map("label fork", section="RESOLUTIONS P1")
@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFork(Wire):
    """Two statements about one label of which the earlier is not the start of the later."""

    kind: Literal["veen-label-fork"] = "veen-label-fork"
    ver: Literal[1] = 1
    identity: HubIdentity
    origin: str
    earlier: LabelStatement
    later: LabelStatement
    cut: CutTree | None = None
    """The later tree of the label, cut at the earlier size; absent if both have the same size, or if the
    hub log has the smaller size after the larger."""


def verify_hub_log_fork(
    evidence: HubLogFork, *, pinned: HubId | None = None, known: HubIdentity | None = None
) -> None:
    """Raise ``EvidenceError`` unless the hub signed both checkpoints and they contradict each other.

    ``known`` replaces the evidence's own record of the hub's keys.
    """
    with _as_evidence_error():
        identity = _identity_of(evidence, pinned, known)
        earlier = _signed_head(identity, evidence.origin, evidence.earlier)
        later = _signed_head(identity, evidence.origin, evidence.later)
    if earlier.size > later.size:
        raise EvidenceError("the earlier hub checkpoint is larger than the later one (RESOLUTIONS P1)")
    prefix_root = later.root
    if earlier.size < later.size:
        prefix, whole = _trees(evidence.cut, Tree(), earlier.size, later.size)
        if whole.root != later.root:
            raise EvidenceError("the cut tree does not lead to the later hub checkpoint (RESOLUTIONS P1)")
        prefix_root = prefix.root
    if prefix_root == earlier.root:
        raise EvidenceError("the two hub checkpoints do not contradict each other (RESOLUTIONS P1)")


def verify_label_fork(
    evidence: LabelFork, *, pinned: HubId | None = None, known: HubIdentity | None = None
) -> None:
    """Raise ``EvidenceError`` unless the hub signed both statements and they contradict each other.

    ``known`` replaces the evidence's own record of the hub's keys.
    """
    with _as_evidence_error():
        identity = _identity_of(evidence, pinned, known)
        earlier = _stated(identity, evidence.origin, evidence.earlier)
        later = _stated(identity, evidence.origin, evidence.later)
    if earlier.label != later.label:
        raise EvidenceError("the statements are about two labels (RESOLUTIONS P1)")
    if earlier.upto_seq > later.upto_seq:
        raise EvidenceError("the earlier statement covers more entries than the later one (RESOLUTIONS P1)")
    if _is_rollback(evidence.earlier, evidence.later):
        return
    prefix_root = bytes(later.mmr_root)
    if earlier.upto_seq < later.upto_seq:
        prefix, whole = _trees(evidence.cut, Mmr(), earlier.upto_seq, later.upto_seq)
        if whole.root != later.mmr_root:
            raise EvidenceError("the cut tree does not lead to the later statement (RESOLUTIONS P1)")
        prefix_root = prefix.root
    if prefix_root == earlier.mmr_root:
        raise EvidenceError("the two statements do not contradict each other (RESOLUTIONS P1)")


@contextlib.contextmanager
def _as_evidence_error() -> Iterator[None]:
    """Turn any error of a part into an error of the evidence."""
    try:
        yield
    except EvidenceError:
        raise
    except VeenError as exc:
        raise EvidenceError(str(exc)) from None


def _identity_of(
    evidence: HubLogFork | LabelFork, pinned: HubId | None, known: HubIdentity | None
) -> HubIdentity:
    """Return the record of the hub's keys to verify with: the verifier's own, if there is one."""
    hub_identity.verify_identity(evidence.identity, pinned=pinned)
    if known is None:
        return evidence.identity
    hub_identity.verify_identity(known, pinned=evidence.identity.hub_id)
    return known


def _signed_head(identity: HubIdentity, origin: str, note: bytes) -> TreeHead:
    """Return a tree head that a key of the hub signed."""
    signed = parse_signed_head(note)
    hub_log.verify_hub_checkpoint(identity, signed, origin=origin)
    return signed.head


def _stated(identity: HubIdentity, origin: str, statement: LabelStatement) -> LabelHead:
    """Return the head of the label that a statement proves to be signed."""
    receipt, head, checkpoint = statement.receipt, statement.head, statement.checkpoint
    if receipt is not None:
        if (head, statement.index, statement.proof, checkpoint) != (None, None, None, None):
            raise EvidenceError("a statement is both a receipt and a head (RESOLUTIONS P1)")
        hub_identity.verify_receipt(identity, receipt)
        return LabelHead(
            label=receipt.label,
            upto_seq=receipt.stream_seq,
            mmr_root=receipt.mmr_root,
            hub_ts=receipt.hub_ts,
        )
    if head is None or statement.index is None or statement.proof is None or checkpoint is None:
        raise EvidenceError("a statement is neither a receipt nor a head with its proof (RESOLUTIONS P1)")
    signed = _signed_head(identity, origin, checkpoint)
    leaf = tree.leaf_hash(head.encode())
    tree.verify_inclusion(leaf, statement.index, signed.size, statement.proof, signed.root)
    return head


def _is_rollback(smaller: LabelStatement, larger: LabelStatement) -> bool:
    """Return whether both heads are in one hub log, and ``smaller`` comes after ``larger``.

    Both statements are verified, so only a statement with a head has a hub checkpoint.
    """
    if smaller.checkpoint is None or smaller.checkpoint != larger.checkpoint:
        return False
    return smaller.index is not None and larger.index is not None and smaller.index > larger.index


AnyTree = TypeVar("AnyTree", Mmr, Tree)


def _trees(cut_tree: CutTree | None, empty: AnyTree, at: int, size: int) -> tuple[AnyTree, AnyTree]:
    """Return the tree before the cut and the whole tree; raise unless the counts fit the two sizes."""
    if cut_tree is None:
        raise EvidenceError("the later tree is missing (RESOLUTIONS P1)")
    before, after = list(reversed(mmr.peak_positions(at))), mmr.subtrees(at, size)
    if (len(before), len(after)) != (len(cut_tree.before), len(cut_tree.after)):
        raise EvidenceError("the cut tree does not fit the two sizes (RESOLUTIONS P1)")
    for (height, _index), subtree in zip(before, cut_tree.before, strict=True):
        empty.append_subtree(height, subtree)
    prefix = empty.copy()
    for (height, _index), subtree in zip(after, cut_tree.after, strict=True):
        empty.append_subtree(height, subtree)
    return prefix, empty
