"""The tree of RFC 6962 against its recursive definitions, and refusals of every changed proof."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen_core.errors import ProofError
from veen_core.tlog import tree
from veen_core.tlog.tree import EMPTY_ROOT, Tree

from .strategies import steady

MOST = 40
HUGE = 2**63 - 1


# --- the definitions, as RFC 6962 §2.1 writes them


def split(count: int) -> int:
    half = 1
    while half * 2 < count:
        half *= 2
    return half


def mth(entries: Sequence[bytes]) -> bytes:
    if not entries:
        return sha256(b"").digest()
    if len(entries) == 1:
        return sha256(b"\x00" + entries[0]).digest()
    k = split(len(entries))
    return sha256(b"\x01" + mth(entries[:k]) + mth(entries[k:])).digest()


def path(index: int, entries: Sequence[bytes]) -> list[bytes]:
    if len(entries) == 1:
        return []
    k = split(len(entries))
    if index < k:
        return [*path(index, entries[:k]), mth(entries[k:])]
    return [*path(index - k, entries[k:]), mth(entries[:k])]


def subproof(old: int, entries: Sequence[bytes], whole: bool) -> list[bytes]:
    if old == len(entries):
        return [] if whole else [mth(entries)]
    k = split(len(entries))
    if old <= k:
        return [*subproof(old, entries[:k], whole), mth(entries[k:])]
    return [*subproof(old - k, entries[k:], False), mth(entries[:k])]


# --- the tree under test


class Log:
    """A log of entries, with its nodes as storage would keep them."""

    def __init__(self, entries: Sequence[bytes]) -> None:
        self.entries = entries
        self.nodes: dict[tuple[int, int], bytes] = {}
        self.tree = Tree()
        for entry in entries:
            for node in self.tree.append(tree.leaf_hash(entry)):
                assert (node.height, node.index) not in self.nodes
                self.nodes[node.height, node.index] = node.hash

    def lookup(self, height: int, index: int) -> bytes:
        return self.nodes[height, index]

    def root(self, size: int) -> bytes:
        return tree.tree_at(size, self.lookup).root


ENTRIES = [b"entry %d" % number for number in range(MOST)]


@pytest.fixture(scope="module")
def log() -> Log:
    return Log(ENTRIES)


entries_of = st.lists(st.binary(max_size=40), max_size=70)


@steady(60)
@given(entries_of)
def test_the_root_is_the_merkle_tree_hash_of_the_definition(entries: list[bytes]) -> None:
    grown = Log(entries)
    assert grown.tree.size == len(entries)
    assert grown.tree.root == mth(entries)


@steady(60)
@given(entries_of.filter(bool), st.data())
def test_proofs_are_those_of_the_definition_and_verify(entries: list[bytes], data: st.DataObject) -> None:
    grown, size = Log(entries), data.draw(st.integers(1, len(entries)))
    index, old = data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, size))
    inclusion = tree.prove_inclusion(grown.lookup, index, size)
    consistency = tree.prove_consistency(grown.lookup, old, size)
    assert inclusion == path(index, entries[:size])
    assert consistency == subproof(old, entries[:size], True)
    tree.verify_inclusion(tree.leaf_hash(entries[index]), index, size, inclusion, mth(entries[:size]))
    tree.verify_consistency(old, size, consistency, mth(entries[:old]), mth(entries[:size]))


def test_every_leaf_has_a_proof_in_every_tree_that_contains_it(log: Log) -> None:
    for size in range(1, MOST + 1):
        root = log.root(size)
        assert root == mth(ENTRIES[:size])
        for index in range(size):
            proof = tree.prove_inclusion(log.lookup, index, size)
            tree.verify_inclusion(tree.leaf_hash(ENTRIES[index]), index, size, proof, root)


def test_every_tree_is_the_start_of_every_later_one(log: Log) -> None:
    roots = [log.root(size) for size in range(MOST + 1)]
    for new in range(MOST + 1):
        for old in range(new + 1):
            proof = tree.prove_consistency(log.lookup, old, new)
            tree.verify_consistency(old, new, proof, roots[old], roots[new])


def test_a_leaf_verifies_at_no_other_place_of_the_tree(log: Log) -> None:
    for size in range(1, 20):
        for index in range(size):
            proof, leaf = tree.prove_inclusion(log.lookup, index, size), tree.leaf_hash(ENTRIES[index])
            for other in set(range(size)) - {index}:
                with pytest.raises(ProofError):
                    tree.verify_inclusion(leaf, other, size, proof, log.root(size))


# --- changed proofs


def bits(data: bytes) -> list[bytes]:
    """Return the bytes with each of their bits flipped in turn."""
    number = int.from_bytes(data, "big")
    return [(number ^ 1 << bit).to_bytes(len(data), "big") for bit in range(8 * len(data))]


@pytest.mark.parametrize(("index", "size"), [(0, 1), (2, 3), (4, 7), (6, 13), (12, 13), (8, 16)])
def test_every_flipped_bit_of_an_inclusion_proof_is_refused(log: Log, index: int, size: int) -> None:
    proof, leaf, root = tree.prove_inclusion(log.lookup, index, size), log.lookup(0, index), log.root(size)
    for other in bits(leaf):
        with pytest.raises(ProofError, match="does not lead to the root"):
            tree.verify_inclusion(other, index, size, proof, root)
    for other in bits(root):
        with pytest.raises(ProofError, match="does not lead to the root"):
            tree.verify_inclusion(leaf, index, size, proof, other)
    for at, sibling in enumerate(proof):
        for other in bits(sibling):
            changed = [*proof[:at], other, *proof[at + 1 :]]
            with pytest.raises(ProofError, match="does not lead to the root"):
                tree.verify_inclusion(leaf, index, size, changed, root)


@pytest.mark.parametrize(("old", "new"), [(1, 2), (3, 7), (4, 7), (6, 13), (8, 16), (12, 13)])
def test_every_flipped_bit_of_a_consistency_proof_is_refused(log: Log, old: int, new: int) -> None:
    proof, first, second = tree.prove_consistency(log.lookup, old, new), log.root(old), log.root(new)
    for other in bits(first):
        with pytest.raises(ProofError, match="does not lead to the root at size"):
            tree.verify_consistency(old, new, proof, other, second)
    for other in bits(second):
        with pytest.raises(ProofError, match=f"does not lead to the root at size {new}"):
            tree.verify_consistency(old, new, proof, first, other)
    for at, node in enumerate(proof):
        for other in bits(node):
            changed = [*proof[:at], other, *proof[at + 1 :]]
            with pytest.raises(ProofError, match="does not lead to the root at size"):
                tree.verify_consistency(old, new, changed, first, second)


@pytest.mark.parametrize("size", [1, 5, 8, 13])
def test_a_proof_with_one_hash_more_or_less_is_refused(log: Log, size: int) -> None:
    root = log.root(size)
    for index in range(size):
        proof, leaf = tree.prove_inclusion(log.lookup, index, size), log.lookup(0, index)
        with pytest.raises(ProofError, match="too long"):
            tree.verify_inclusion(leaf, index, size, [*proof, root], root)
        if proof:
            with pytest.raises(ProofError, match="too short"):
                tree.verify_inclusion(leaf, index, size, proof[:-1], root)
    for old in range(1, size):
        proof = tree.prove_consistency(log.lookup, old, size)
        with pytest.raises(ProofError, match="too long"):
            tree.verify_consistency(old, size, [*proof, root], log.root(old), root)
        with pytest.raises(ProofError, match=r"too short|is empty"):
            tree.verify_consistency(old, size, proof[:-1], log.root(old), root)


def test_a_proof_of_a_thousand_hashes_costs_no_more_than_the_tree_is_high(log: Log) -> None:
    many = [log.root(3)] * 1_000
    with pytest.raises(ProofError, match="too long"):
        tree.verify_inclusion(log.lookup(0, 0), 0, HUGE, many, log.root(3))
    with pytest.raises(ProofError, match="too long"):
        tree.verify_consistency(2**62 + 1, HUGE, many, log.root(3), log.root(4))


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_a_hash_of_another_length_is_refused(log: Log, length: int) -> None:
    other, leaf, root = bytes(length), log.lookup(0, 0), log.root(2)
    proof = tree.prove_inclusion(log.lookup, 0, 2)
    for claim in ((other, proof, root), (leaf, [other], root), (leaf, proof, other)):
        with pytest.raises(ProofError, match="a hash does not have 32 bytes"):
            tree.verify_inclusion(claim[0], 0, 2, claim[1], claim[2])
    with pytest.raises(ProofError, match="a hash does not have 32 bytes"):
        tree.verify_inclusion(other, 0, 1, [], other)
    with pytest.raises(ProofError, match="a hash does not have 32 bytes"):
        tree.verify_consistency(1, 1, [], other, other)


@pytest.mark.parametrize(("index", "size"), [(0, 0), (1, 1), (5, 3), (-1, 3)])
def test_a_leaf_beyond_the_tree_has_no_proof(log: Log, index: int, size: int) -> None:
    with pytest.raises(ProofError, match=f"leaf {index} is not in a tree of {size} leaves"):
        tree.prove_inclusion(log.lookup, index, size)
    with pytest.raises(ProofError, match=f"leaf {index} is not in a tree of {size} leaves"):
        tree.verify_inclusion(EMPTY_ROOT, index, size, [], EMPTY_ROOT)


@pytest.mark.parametrize(("old", "new"), [(2, 1), (1, 0), (-1, 3)])
def test_a_larger_tree_is_not_the_start_of_a_smaller_one(log: Log, old: int, new: int) -> None:
    with pytest.raises(ProofError, match=f"a tree of {old} leaves is not the start of one of {new}"):
        tree.prove_consistency(log.lookup, old, new)
    with pytest.raises(ProofError, match=f"a tree of {old} leaves is not the start of one of {new}"):
        tree.verify_consistency(old, new, [], EMPTY_ROOT, EMPTY_ROOT)


def test_the_empty_tree_is_the_start_of_every_tree_and_has_one_root(log: Log) -> None:
    tree.verify_consistency(0, 0, [], EMPTY_ROOT, EMPTY_ROOT)
    tree.verify_consistency(0, 3, [], EMPTY_ROOT, log.root(3))
    for old, new in ((EMPTY_ROOT, log.root(3)), (log.root(3), EMPTY_ROOT), (log.root(3), log.root(3))):
        with pytest.raises(ProofError, match="does not lead to the root at size 0"):
            tree.verify_consistency(0, 0, [], old, new)
    with pytest.raises(ProofError, match="does not lead to the root at size 0"):
        tree.verify_consistency(0, 3, [], log.root(1), log.root(3))


@pytest.mark.parametrize(("old", "new"), [(0, 0), (0, 3), (3, 3)])
def test_a_proof_must_be_empty_from_nothing_and_to_the_same_size(log: Log, old: int, new: int) -> None:
    with pytest.raises(ProofError, match=f"must be empty from size {old} to {new}"):
        tree.verify_consistency(old, new, [log.root(1)], log.root(old), log.root(new))


def test_two_roots_of_one_size_are_inconsistent(log: Log) -> None:
    with pytest.raises(ProofError, match="does not lead to the root at size 3"):
        tree.verify_consistency(3, 3, [], log.root(3), log.root(4))


def test_two_trees_that_differ_in_one_old_leaf_are_inconsistent(log: Log) -> None:
    other = Log([*ENTRIES[:5], b"another entry", *ENTRIES[6:]])
    for old in range(6, 13):
        proof = tree.prove_consistency(other.lookup, old, 13)
        with pytest.raises(ProofError, match="does not lead to the root"):
            tree.verify_consistency(old, 13, proof, log.root(old), other.root(13))


def test_the_roots_of_a_proof_are_those_that_it_leads_to(log: Log) -> None:
    for new in range(2, 14):
        for old in range(1, new):
            proof = tree.prove_consistency(log.lookup, old, new)
            assert tree.roots_of_proof(old, new, proof, log.root(old)) == (log.root(old), log.root(new))


@pytest.mark.parametrize(("old", "new"), [(0, 3), (3, 3), (4, 3), (-1, 3), (0, 0)])
def test_a_proof_has_no_roots_unless_both_trees_have_leaves_and_one_is_larger(
    log: Log, old: int, new: int
) -> None:
    with pytest.raises(ProofError, match=f"want 0 < old < new, found {old} and {new}"):
        tree.roots_of_proof(old, new, [log.root(1)], log.root(1))
    with pytest.raises(ProofError, match="a hash does not have 32 bytes"):
        tree.roots_of_proof(1, 2, [b""], log.root(1))


# --- resuming


def test_a_tree_resumes_from_its_subtrees_at_every_size(log: Log) -> None:
    for size in range(MOST + 1):
        resumed = tree.tree_at(size, log.lookup)
        again = Tree(size, resumed.subtrees)
        twin = again.copy()
        for entry in ENTRIES[size:]:
            again.append(tree.leaf_hash(entry))
        assert (again.size, again.root) == (MOST, log.tree.root)
        assert (twin.size, twin.root) == (size, mth(ENTRIES[:size]))


def test_a_tree_with_the_wrong_subtrees_does_not_resume() -> None:
    with pytest.raises(ProofError, match="a tree of 3 leaves has 2 complete subtrees, not 1"):
        Tree(3, [bytes(32)])
    with pytest.raises(ProofError, match="must have 32 bytes"):
        Tree(1, [bytes(31)])
