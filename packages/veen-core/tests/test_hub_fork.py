"""Evidence of a fork: it convicts a hub that signed two histories, and no honest hub (P1)."""

from __future__ import annotations

import dataclasses
from itertools import combinations, combinations_with_replacement
from typing import Any

import pytest

from veen_core import StreamSeq, hub_identity
from veen_core import receipt as receipts
from veen_core.errors import EvidenceError, ProofError
from veen_core.hashing import H
from veen_core.hub_fork import (
    CutTree,
    HubLogFork,
    LabelFork,
    LabelStatement,
    cut,
    verify_hub_log_fork,
    verify_label_fork,
)
from veen_core.hub_log import LabelHead, hashes, origin_of
from veen_core.ids import HubId, HubPk, Label, LeafHash, MmrRoot, NodeHash, Signature, UnixTime
from veen_core.keys import SigningKey
from veen_core.receipt import Receipt
from veen_core.tlog import tree
from veen_core.tlog.tree_head import SignedHead

from .simulator import Hub, HubLog, flip, head_of, signing_key

SIZE = 9


@pytest.fixture
def log(hub: Hub) -> HubLog:
    """A hub with six messages; the log has heads of its label at two, four and six of them."""
    made = HubLog(hub)
    for number in range(6):
        hub.write("writer", b"message %d" % number)
        if number % 2:
            made.add_own()
            made.add_others(2)
    assert len(made.heads) == SIZE
    return made


def second(log: HubLog, differs_at: int) -> HubLog:
    """Return a second log of the same hub, with another entry at one place."""
    other = HubLog(log.hub)
    for index, head in enumerate(log.heads):
        entry = dataclasses.replace(head, label=Label(H(b"hidden"))) if index == differs_at else head
        other.add(entry)
    return other


def log_fork(hub: Hub, earlier: SignedHead, later: SignedHead, tree_cut: CutTree | None) -> HubLogFork:
    return HubLogFork(
        identity=hub.identity,
        origin=earlier.head.origin,
        earlier=earlier.encode(),
        later=later.encode(),
        cut=tree_cut,
    )


def cut_for(log: HubLog, at: int, size: int) -> CutTree | None:
    return cut(log.lookup, at, size) if at < size else None


# --- two hub checkpoints


def test_two_hub_checkpoints_of_different_histories_convict_at_every_pair_of_sizes(log: HubLog) -> None:
    for differs_at in (0, 3, SIZE - 1):
        other = second(log, differs_at)
        for small, large in combinations_with_replacement(range(1, SIZE + 1), 2):
            fork = log_fork(
                log.hub,
                log.checkpoint(size=small),
                other.checkpoint(size=large),
                cut_for(other, small, large),
            )
            if small > differs_at:
                verify_hub_log_fork(HubLogFork.decode(fork.encode()), pinned=log.hub.identity.hub_id)
            else:  # the second history begins later
                with pytest.raises(EvidenceError, match="do not contradict each other"):
                    verify_hub_log_fork(fork)


def test_hub_checkpoints_of_an_honest_hub_never_convict_it(log: HubLog) -> None:
    for small, large in combinations_with_replacement(range(SIZE + 1), 2):
        fork = log_fork(
            log.hub, log.checkpoint(size=small), log.checkpoint(size=large), cut_for(log, small, large)
        )
        with pytest.raises(EvidenceError, match="do not contradict each other"):
            verify_hub_log_fork(fork)


def test_no_changed_hash_of_the_cut_convicts_an_honest_hub(log: HubLog) -> None:
    good = cut(log.lookup, 5, SIZE)
    for name in ("before", "after"):
        nodes = getattr(good, name)
        for at, node in enumerate(nodes):
            changed = (*nodes[:at], NodeHash(flip(node)), *nodes[at + 1 :])
            bent = dataclasses.replace(good, **{name: changed})
            fork = log_fork(log.hub, log.checkpoint(size=5), log.checkpoint(), bent)
            with pytest.raises(EvidenceError, match="does not lead to the later hub checkpoint"):
                verify_hub_log_fork(fork)


def test_evidence_against_a_log_with_a_name_of_its_own_verifies(log: HubLog) -> None:
    other = second(log, 2)
    fork = log_fork(
        log.hub,
        log.checkpoint(size=4, origin="logs.example/hub"),
        other.checkpoint(origin="logs.example/hub"),
        cut(other.lookup, 4, SIZE),
    )
    verify_hub_log_fork(fork, pinned=log.hub.identity.hub_id)


def test_hub_checkpoints_of_two_keys_of_one_hub_convict(log: HubLog) -> None:
    old, hub = log.hub.key, log.hub
    hub.now += 100
    hub.rotate_key()
    fork = log_fork(hub, log.checkpoint(keys=(old,)), second(log, 2).checkpoint(), None)
    verify_hub_log_fork(fork, pinned=hub.identity.hub_id)


@pytest.fixture
def fork(log: HubLog) -> HubLogFork:
    other = second(log, 2)
    return log_fork(log.hub, log.checkpoint(size=4), other.checkpoint(), cut(other.lookup, 4, SIZE))


BROKEN: dict[str, tuple[Any, str]] = {
    "larger first": (
        lambda f, _log: {"earlier": f.later, "later": f.earlier},
        "is larger than the later",
    ),
    "cut missing": (lambda _f, _log: {"cut": None}, "the later tree is missing"),
    "cut elsewhere": (lambda _f, log: {"cut": cut(log.lookup, 3, SIZE)}, "does not fit the two sizes"),
    "cut of the other log": (
        lambda _f, log: {"cut": cut(log.lookup, 4, SIZE)},
        "does not lead to the later",
    ),
    "cut too long": (
        lambda f, _log: {"cut": dataclasses.replace(f.cut, after=(*f.cut.after, f.cut.after[0]))},
        "does not fit the two sizes",
    ),
    "another key": (
        lambda _f, log: {"earlier": log.checkpoint(size=4, keys=(signing_key("other"),)).encode()},
        "no key of the hub signed it",
    ),
    "another origin": (
        lambda _f, log: {"earlier": log.checkpoint(size=4, origin="logs.example").encode()},
        "its origin is 'logs.example'",
    ),
    "not a note": (lambda _f, _log: {"later": b"note"}, r"note \(C2SP signed-note\)"),
    "identity of another hub": (
        lambda _f, _log: {"identity": Hub(name="other").identity},
        "the pinned hub is",
    ),
}
"""What is changed in evidence, and the error that names it."""


@pytest.mark.parametrize(("change", "match"), [pytest.param(*row, id=name) for name, row in BROKEN.items()])
def test_broken_evidence_of_two_hub_checkpoints_is_refused(
    log: HubLog, fork: HubLogFork, change: Any, match: str
) -> None:
    verify_hub_log_fork(fork, pinned=log.hub.identity.hub_id)
    with pytest.raises(EvidenceError, match=match):
        verify_hub_log_fork(dataclasses.replace(fork, **change(fork, log)), pinned=log.hub.identity.hub_id)


def test_a_pinned_hub_is_not_convicted_by_evidence_against_another(fork: HubLogFork) -> None:
    with pytest.raises(EvidenceError, match="the pinned hub is 0000"):
        verify_hub_log_fork(fork, pinned=HubId(bytes(32)))


# --- two statements about a label


def by_receipt(hub: Hub, stream_seq: int) -> LabelStatement:
    return LabelStatement(receipt=hub.receipt(stream_seq))


def by_head(log: HubLog, index: int, size: int = SIZE) -> LabelStatement:
    return LabelStatement(
        head=log.heads[index],
        index=index,
        proof=hashes(tree.prove_inclusion(log.lookup, index, size)),
        checkpoint=log.checkpoint(size=size).encode(),
    )


def label_fork(
    hub: Hub, earlier: LabelStatement, later: LabelStatement, tree_cut: CutTree | None = None
) -> LabelFork:
    return LabelFork(
        identity=hub.identity,
        origin=origin_of(hub.identity.hub_id),
        earlier=earlier,
        later=later,
        cut=tree_cut,
    )


def statements(log: HubLog) -> list[tuple[int, LabelStatement]]:
    """Return every statement of the hub about its label, with the entries that it covers."""
    own = [at for at, head in enumerate(log.heads) if head.label == log.hub.label]
    receipts = [(seq, by_receipt(log.hub, seq)) for seq in range(1, len(log.hub.entries) + 1)]
    return receipts + [(log.heads[at].upto_seq, by_head(log, at)) for at in own]


def test_statements_of_an_honest_hub_never_convict_it(log: HubLog) -> None:
    for (at, one), (size, other) in combinations(statements(log), 2):
        low, high = sorted([(at, 0, one), (size, 1, other)], key=lambda item: item[:2])
        tree_cut = cut(log.hub.lookup, low[0], high[0]) if low[0] < high[0] else None
        with pytest.raises(EvidenceError, match="do not contradict each other"):
            verify_label_fork(label_fork(log.hub, low[2], high[2], tree_cut))
        if low[0] < high[0]:
            with pytest.raises(EvidenceError, match="the later tree is missing"):
                verify_label_fork(label_fork(log.hub, low[2], high[2]))


def test_two_histories_of_a_label_convict_by_receipts_and_by_heads(log: HubLog) -> None:
    hub, liar = log.hub, log.hub.fork(at=3)
    liar.write("writer", b"another", b"and more", b"and more")
    pinned = hub.identity.hub_id
    for at in range(4, 7):
        told = by_receipt(liar, at)
        for size, said in statements(log):
            if size < at:
                continue
            tree_cut = cut(hub.lookup, at, size) if at < size else None
            evidence = label_fork(hub, told, said, tree_cut)
            verify_label_fork(LabelFork.decode(evidence.encode()), pinned=pinned)


def test_a_prefix_that_both_histories_share_does_not_convict(log: HubLog) -> None:
    liar = log.hub.fork(at=3)
    liar.write("writer", b"another")
    with pytest.raises(EvidenceError, match="do not contradict each other"):
        verify_label_fork(
            label_fork(log.hub, by_receipt(liar, 3), by_receipt(log.hub, 6), cut(log.hub.lookup, 3, 6))
        )


def test_a_label_that_shrinks_within_one_hub_log_convicts(log: HubLog) -> None:
    again = log.add(head_of(log.hub.receipt(3)))
    before = next(at for at, head in enumerate(log.heads) if head.upto_seq == 4)
    shrunk = label_fork(log.hub, by_head(log, again, SIZE + 1), by_head(log, before, SIZE + 1))
    verify_label_fork(shrunk, pinned=log.hub.identity.hub_id)


def test_a_head_that_is_in_the_hub_log_twice_convicts(log: HubLog) -> None:
    again = log.add(log.heads[0])
    twice = label_fork(log.hub, by_head(log, again, SIZE + 1), by_head(log, 0, SIZE + 1))
    verify_label_fork(twice, pinned=log.hub.identity.hub_id)


def test_heads_in_their_right_order_do_not_convict_without_a_cut(log: HubLog) -> None:
    with pytest.raises(EvidenceError, match="the later tree is missing"):
        verify_label_fork(label_fork(log.hub, by_head(log, 0), by_head(log, 3)))


def test_receipts_do_not_convict_by_places_that_nobody_signed(log: HubLog) -> None:
    """The places are not verified for a receipt, so a statement must not have both."""
    small = dataclasses.replace(by_receipt(log.hub, 3), index=9, checkpoint=b"note")
    large = dataclasses.replace(by_receipt(log.hub, 5), index=2, checkpoint=b"note")
    for earlier, later in ((small, large), (small, by_receipt(log.hub, 5)), (by_receipt(log.hub, 3), large)):
        with pytest.raises(EvidenceError, match="both a receipt and a head"):
            verify_label_fork(label_fork(log.hub, earlier, later))
    for extra in ({"head": log.heads[0]}, {"proof": ()}, {"index": 0}, {"checkpoint": b""}):
        with pytest.raises(EvidenceError, match="both a receipt and a head"):
            verify_label_fork(
                label_fork(log.hub, dataclasses.replace(by_receipt(log.hub, 3), **extra), large)
            )


@pytest.mark.parametrize("missing", ["head", "index", "proof", "checkpoint"])
def test_a_head_without_its_proof_is_no_statement(log: HubLog, missing: str) -> None:
    part = dataclasses.replace(by_head(log, 0), **{missing: None})
    with pytest.raises(EvidenceError, match="neither a receipt nor a head with its proof"):
        verify_label_fork(label_fork(log.hub, part, by_head(log, 3)))


def test_a_head_that_is_not_in_the_hub_log_is_no_statement(log: HubLog) -> None:
    invented = LabelHead(
        label=log.hub.label, upto_seq=StreamSeq(2), mmr_root=MmrRoot(bytes(32)), hub_ts=log.heads[0].hub_ts
    )
    stated = dataclasses.replace(by_head(log, 0), head=invented)
    with pytest.raises(EvidenceError, match="does not lead to the root"):
        verify_label_fork(label_fork(log.hub, stated, by_receipt(log.hub, 2)))


def test_statements_about_two_labels_and_in_the_wrong_order_are_refused(log: HubLog) -> None:
    with pytest.raises(EvidenceError, match="about two labels"):
        verify_label_fork(label_fork(log.hub, by_head(log, 1), by_head(log, 3)))
    with pytest.raises(EvidenceError, match="covers more entries than the later"):
        verify_label_fork(label_fork(log.hub, by_receipt(log.hub, 5), by_receipt(log.hub, 3)))


def test_a_receipt_of_another_key_is_no_statement(log: HubLog) -> None:
    other = Hub(name="other")
    other.write("writer", b"message")
    with pytest.raises(EvidenceError, match=r"RECEIPT.hub_sig at stream_seq 1"):
        verify_label_fork(label_fork(log.hub, by_receipt(other, 1), by_receipt(log.hub, 1)))


# --- subtrees


def test_a_tree_grown_by_subtrees_is_the_tree_grown_by_leaves(log: HubLog) -> None:
    for at in range(SIZE + 1):
        parts, grown = cut(log.lookup, at, SIZE), tree.tree_at(at, log.lookup)
        assert parts.before == grown.subtrees
        position = at
        for node in parts.after:
            height = next(h for (h, i), held in log.nodes.items() if held == node and i << h == position)
            grown.append_subtree(height, node)
            position += 1 << height
        assert (grown.size, grown.root) == (SIZE, log.tree.root)


def test_a_subtree_that_is_not_aligned_is_refused(log: HubLog) -> None:
    grown = tree.tree_at(3, log.lookup)
    with pytest.raises(ProofError, match="a subtree of 2 leaves is not aligned after 3 leaves"):
        grown.append_subtree(1, bytes(32))


# --- the keys of the hub


def test_receipts_by_a_key_that_had_ended_convict_nobody_who_is_known(hub: Hub) -> None:
    """The thief of a retired key leaves its end out of the record in the evidence."""
    stolen, successor = hub.key, signing_key("successor")
    claimed = hub_identity.new_identity(stolen, UnixTime(1))
    known = hub_identity.rotate(claimed, stolen, HubPk(successor.public), UnixTime(50), 50)
    first, other = (by_stolen_key(stolen, UnixTime(1_000), root) for root in (b"a", b"b"))
    forged = LabelFork(
        identity=claimed,
        origin=origin_of(claimed.hub_id),
        earlier=LabelStatement(receipt=first),
        later=LabelStatement(receipt=other),
    )
    verify_label_fork(forged, pinned=claimed.hub_id)
    with pytest.raises(EvidenceError, match="no key of the hub"):
        verify_label_fork(forged, pinned=claimed.hub_id, known=known)


def by_stolen_key(key: SigningKey, hub_ts: UnixTime, root: bytes) -> Receipt:
    unsigned = Receipt(
        label=Label(H(b"label")),
        stream_seq=StreamSeq(1),
        leaf_hash=LeafHash(H(root)),
        mmr_root=MmrRoot(H(root)),
        hub_ts=hub_ts,
        hub_sig=Signature(bytes(64)),
    )
    return dataclasses.replace(unsigned, hub_sig=key.sign(receipts.signing_digest(unsigned.encode())))


def test_the_known_record_must_be_of_the_hub_that_the_evidence_names(log: HubLog) -> None:
    other = hub_identity.new_identity(signing_key("another"), UnixTime(1))
    fork = log_fork(log.hub, log.checkpoint(size=3), second(log, 0).checkpoint(size=3), None)
    verify_hub_log_fork(fork, known=log.hub.identity)
    with pytest.raises(EvidenceError):
        verify_hub_log_fork(fork, known=other)
