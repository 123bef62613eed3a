"""Evidence of a fork: a hub that signed two histories is convicted, an honest one never is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from veen_core import hub_fork, hub_identity, hub_log
from veen_core.errors import EvidenceError
from veen_core.hub_fork import CutTree, HubLogFork, LabelFork, LabelStatement
from veen_core.hub_log import LabelHead
from veen_core.ids import Label, LeafHash, MmrRoot, NodeHash, StreamSeq, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.mmr import Mmr
from veen_core.receipt import Receipt, sign_receipt
from veen_core.tlog import tree
from veen_core.tlog.note import Note, sign_note
from veen_core.tlog.tree import Tree
from veen_core.tlog.tree_head import TreeHead

KEY = SigningKey(SigningSeed(b"\x07" * 32))
OTHER = SigningKey(SigningSeed(b"\x08" * 32))
IDENTITY = hub_identity.new_identity(KEY, UnixTime(0))
ORIGIN = hub_log.origin_of(IDENTITY.hub_id)
LABEL = Label(b"\x11" * 32)
NOW = UnixTime(1_000)


@dataclass
class Nodes:
    """The nodes of a growing tree, and its root at every size."""

    tree: Tree | Mmr
    nodes: dict[tuple[int, int], bytes] = field(default_factory=dict)
    roots: list[bytes] = field(default_factory=lambda: [b""])

    def append(self, leaf: bytes) -> None:
        for node in self.tree.append(leaf):
            self.nodes[node.height, node.index] = node.hash
        self.roots.append(self.tree.root)

    def look_up(self, height: int, index: int) -> bytes:
        return self.nodes[height, index]


def hub_log_of(entries: Sequence[bytes]) -> Nodes:
    made = Nodes(Tree())
    for entry in entries:
        made.append(tree.leaf_hash(entry))
    return made


def label_of(leaves: Sequence[bytes]) -> Nodes:
    made = Nodes(Mmr())
    for leaf in leaves:
        made.append(leaf)
    return made


def checkpoint(log: Nodes, size: int, key: SigningKey = KEY) -> bytes:
    text = TreeHead(ORIGIN, size, log.roots[size]).text
    return Note(text, (sign_note(key, ORIGIN, text),)).encode()


def leaf(name: str) -> LeafHash:
    return LeafHash(tree.leaf_hash(name.encode()))


def receipt(label: Nodes, seq: int, key: SigningKey = KEY) -> Receipt:
    return sign_receipt(
        key,
        Receipt(
            label=LABEL,
            stream_seq=StreamSeq(seq),
            leaf_hash=LeafHash(label.nodes[0, seq - 1]),
            mmr_root=MmrRoot(label.roots[seq]),
            hub_ts=NOW,
        ),
    )


HONEST = [b"entry %d" % n for n in range(20)]
FORKED = [*HONEST[:6], b"another entry", *HONEST[7:]]


def fork_at(earlier: int, later: int, *, earlier_log: Nodes, later_log: Nodes) -> HubLogFork:
    cut = hub_fork.cut(later_log.look_up, earlier, later) if earlier < later else None
    return HubLogFork(
        identity=IDENTITY,
        origin=ORIGIN,
        earlier=checkpoint(earlier_log, earlier),
        later=checkpoint(later_log, later),
        cut=cut,
    )


@pytest.mark.parametrize(("earlier", "later"), [(7, 7), (7, 8), (8, 16), (9, 20), (16, 17)])
def test_two_hub_checkpoints_that_do_not_continue_each_other_are_a_fork(earlier: int, later: int) -> None:
    evidence = fork_at(earlier, later, earlier_log=hub_log_of(HONEST), later_log=hub_log_of(FORKED))
    hub_fork.verify_hub_log_fork(evidence, pinned=IDENTITY.hub_id)
    assert HubLogFork.decode(evidence.encode()) == evidence


@pytest.mark.parametrize("later", range(1, 21))
def test_no_evidence_can_be_made_from_an_honest_hub_log(later: int) -> None:
    log = hub_log_of(HONEST)
    for earlier in range(1, later + 1):
        with pytest.raises(EvidenceError, match="do not contradict"):
            hub_fork.verify_hub_log_fork(fork_at(earlier, later, earlier_log=log, later_log=log))


def test_a_wrong_tree_is_no_evidence_against_an_honest_hub() -> None:
    honest, forked = hub_log_of(HONEST), hub_log_of(FORKED)
    evidence = fork_at(7, 20, earlier_log=honest, later_log=honest)
    framed = dataclasses.replace(evidence, cut=hub_fork.cut(forked.look_up, 7, 20))
    with pytest.raises(EvidenceError, match="does not lead to the later"):
        hub_fork.verify_hub_log_fork(framed)


def test_a_checkpoint_that_another_key_signed_is_no_evidence() -> None:
    evidence = fork_at(7, 7, earlier_log=hub_log_of(HONEST), later_log=hub_log_of(FORKED))
    forged = dataclasses.replace(evidence, later=checkpoint(hub_log_of(FORKED), 7, OTHER))
    with pytest.raises(EvidenceError, match="no key of the hub signed it"):
        hub_fork.verify_hub_log_fork(forged)


def test_evidence_about_another_hub_than_the_pinned_one_is_refused() -> None:
    evidence = fork_at(7, 7, earlier_log=hub_log_of(HONEST), later_log=hub_log_of(FORKED))
    other = hub_identity.new_identity(OTHER, UnixTime(0)).hub_id
    with pytest.raises(EvidenceError, match="pinned hub"):
        hub_fork.verify_hub_log_fork(evidence, pinned=other)


def test_the_sizes_must_be_in_order_and_the_tree_must_fit_them() -> None:
    honest, forked = hub_log_of(HONEST), hub_log_of(FORKED)
    evidence = fork_at(7, 20, earlier_log=honest, later_log=forked)
    swapped = dataclasses.replace(evidence, earlier=evidence.later, later=evidence.earlier)
    with pytest.raises(EvidenceError, match="larger than the later"):
        hub_fork.verify_hub_log_fork(swapped)
    with pytest.raises(EvidenceError, match="missing"):
        hub_fork.verify_hub_log_fork(dataclasses.replace(evidence, cut=None))
    assert evidence.cut is not None
    longer = CutTree(before=evidence.cut.before, after=(*evidence.cut.after, NodeHash(bytes(32))))
    with pytest.raises(EvidenceError, match="does not fit"):
        hub_fork.verify_hub_log_fork(dataclasses.replace(evidence, cut=longer))


# --- labels

MESSAGES = [leaf(f"message {n}") for n in range(20)]
REPLACED = [*MESSAGES[:6], leaf("another message"), *MESSAGES[7:]]


def head_of(label: Nodes, upto: int) -> LabelHead:
    return LabelHead(label=LABEL, upto_seq=StreamSeq(upto), mmr_root=MmrRoot(label.roots[upto]), hub_ts=NOW)


def stated(heads: Sequence[LabelHead], index: int) -> LabelStatement:
    """The head at a place of a hub log that consists of these heads."""
    log = hub_log_of([head.encode() for head in heads])
    proof = tree.prove_inclusion(log.look_up, index, len(heads))
    return LabelStatement(
        head=heads[index], index=index, proof=hub_log.hashes(proof), checkpoint=checkpoint(log, len(heads))
    )


def label_fork(earlier: LabelStatement, later: LabelStatement, cut: CutTree | None = None) -> LabelFork:
    return LabelFork(identity=IDENTITY, origin=ORIGIN, earlier=earlier, later=later, cut=cut)


def test_a_receipt_that_is_not_below_a_later_head_of_its_label_is_a_fork() -> None:
    honest, forked = label_of(MESSAGES), label_of(REPLACED)
    seen = LabelStatement(receipt=receipt(honest, 9))
    evidence = label_fork(seen, stated([head_of(forked, 15)], 0), hub_fork.cut(forked.look_up, 9, 15))
    hub_fork.verify_label_fork(evidence, pinned=IDENTITY.hub_id)
    assert LabelFork.decode(evidence.encode()) == evidence


def test_a_receipt_and_a_head_of_the_same_size_with_two_roots_are_a_fork() -> None:
    seen = LabelStatement(receipt=receipt(label_of(MESSAGES), 9))
    hub_fork.verify_label_fork(label_fork(seen, stated([head_of(label_of(REPLACED), 9)], 0)))


def test_a_hub_log_in_which_a_label_goes_back_is_a_fork() -> None:
    label = label_of(MESSAGES)
    heads = [head_of(label, 9), head_of(label, 5)]
    hub_fork.verify_label_fork(label_fork(stated(heads, 1), stated(heads, 0)))


def test_no_evidence_can_be_made_from_an_honest_label() -> None:
    label = label_of(MESSAGES)
    heads = [head_of(label, 5), head_of(label, 9), head_of(label, 20)]
    cut = hub_fork.cut(label.look_up, 5, 20)
    for earlier in (stated(heads, 0), LabelStatement(receipt=receipt(label, 5))):
        with pytest.raises(EvidenceError, match="do not contradict"):
            hub_fork.verify_label_fork(label_fork(earlier, stated(heads, 2), cut))
    wrong = hub_fork.cut(label_of(REPLACED).look_up, 5, 20)
    with pytest.raises(EvidenceError, match="does not lead to the later"):
        hub_fork.verify_label_fork(label_fork(stated(heads, 0), stated(heads, 2), wrong))


def test_a_statement_needs_a_signature() -> None:
    label, forked = label_of(MESSAGES), label_of(REPLACED)
    later = stated([head_of(forked, 9)], 0)
    with pytest.raises(EvidenceError, match="verifies it"):
        hub_fork.verify_label_fork(label_fork(LabelStatement(receipt=receipt(label, 9, OTHER)), later))
    with pytest.raises(EvidenceError, match="neither a receipt nor a head"):
        hub_fork.verify_label_fork(label_fork(LabelStatement(head=head_of(label, 9)), later))
    misplaced = dataclasses.replace(later, head=head_of(label, 9))
    with pytest.raises(EvidenceError, match="does not lead to the root"):
        hub_fork.verify_label_fork(label_fork(misplaced, later))


def test_statements_about_two_labels_are_no_fork() -> None:
    other = dataclasses.replace(head_of(label_of(REPLACED), 9), label=Label(b"\x22" * 32))
    seen = LabelStatement(receipt=receipt(label_of(MESSAGES), 9))
    with pytest.raises(EvidenceError, match="two labels"):
        hub_fork.verify_label_fork(label_fork(seen, stated([other], 0)))


def test_the_earlier_statement_covers_no_more_entries_than_the_later() -> None:
    seen = LabelStatement(receipt=receipt(label_of(MESSAGES), 9))
    with pytest.raises(EvidenceError, match="more entries"):
        hub_fork.verify_label_fork(label_fork(seen, stated([head_of(label_of(REPLACED), 5)], 0)))
