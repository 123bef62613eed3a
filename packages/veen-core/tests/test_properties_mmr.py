"""The MMR compared with a second implementation of §5.1, and its proofs with every misuse."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from hashlib import sha256

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from veen_core.consistency import MmrConsistency, prove_consistency, verify_consistency
from veen_core.errors import ProofError
from veen_core.ids import LeafHash, MmrRoot, NodeHash, StreamSeq
from veen_core.mmr import Mmr, mmr_at, peak_heights, peak_positions, subtrees
from veen_core.proof import MmrProof, own_peak, peaks_of_proof, prove_inclusion, verify_inclusion

from .strategies import steady

pytestmark = pytest.mark.no_cover  # tracing would double the time, and the other tests cover the package

MILLION = 10**6

# --- §5.1 once more, naively


def leaf(position: int) -> bytes:
    return sha256(b"leaf" + position.to_bytes(8, "big")).digest()


def naive_node(left: bytes, right: bytes) -> bytes:
    return sha256(b"veen/mmr-node" + b"\0" + left + right).digest()


def naive_tree(leaves: Sequence[bytes]) -> bytes:
    """The hash over a power of two of leaves."""
    if len(leaves) == 1:
        return leaves[0]
    half = len(leaves) // 2
    return naive_node(naive_tree(leaves[:half]), naive_tree(leaves[half:]))


def naive_peaks(leaves: Sequence[bytes]) -> list[bytes]:
    """Cut the largest power of two off the left, again and again; then increasing height."""
    peaks: list[bytes] = []
    while leaves:
        size = 1
        while size * 2 <= len(leaves):
            size *= 2
        peaks.insert(0, naive_tree(leaves[:size]))
        leaves = leaves[size:]
    return peaks


def naive_root(leaves: Sequence[bytes]) -> bytes:
    peaks = naive_peaks(leaves)
    return peaks[0] if len(peaks) == 1 else sha256(b"veen/mmr-root" + b"\0" + b"".join(peaks)).digest()


# --- a big tree, built level by level


class Table:
    """All complete nodes over a million leaves: 64 MB, and about two seconds."""

    def __init__(self, size: int) -> None:
        self.size = size
        level = [leaf(position) for position in range(size)]
        self.levels = [b"".join(level)]
        prefix = sha256(b"veen/mmr-node\0")
        while len(level) > 1:
            below, level = level, []
            for left, right in zip(below[::2], below[1::2], strict=False):
                node = prefix.copy()
                node.update(left + right)
                level.append(node.digest())
            self.levels.append(b"".join(level))

    def __call__(self, height: int, index: int) -> bytes:
        node = self.levels[height][32 * index : 32 * index + 32]
        assert len(node) == 32, f"({height}, {index}) is not a complete node"
        return node

    @functools.cache  # noqa: B019 - one table a session
    def root(self, size: int) -> MmrRoot:
        return mmr_at(size, self).root


@functools.cache
def table() -> Table:
    return Table(MILLION)


@functools.cache
def small() -> Table:
    return Table(256)


@functools.cache
def proofs(most: int) -> list[tuple[int, int, MmrProof]]:
    """``(stream_seq, size, proof)`` of every leaf in every tree of up to ``most`` leaves."""
    return [
        (seq, size, prove_inclusion(small(), StreamSeq(seq), size))
        for size in range(1, most + 1)
        for seq in range(1, size + 1)
    ]


sizes = st.one_of(
    st.integers(1, MILLION),
    st.integers(0, 19).map(lambda height: 1 << height),
    st.integers(1, 19).map(lambda height: (1 << height) - 1),
    st.integers(0, 18).map(lambda height: (1 << height) + 1),
)


@st.composite
def leaves_in_trees(draw: st.DrawFn) -> tuple[int, int]:
    size = draw(sizes)
    return draw(st.one_of(st.integers(1, size), st.sampled_from([1, size]))), size


@st.composite
def growths(draw: st.DrawFn) -> tuple[int, int]:
    to_seq = draw(sizes.filter(lambda size: size > 1))
    return draw(st.one_of(st.integers(1, to_seq - 1), st.sampled_from([1, to_seq - 1]))), to_seq


# --- the tree itself


def test_appending_gives_the_root_and_peaks_of_the_definition() -> None:
    mmr, leaves = Mmr(), []
    for position in range(200):
        leaves.append(leaf(position))
        mmr.append(leaves[-1])
        assert mmr.root == naive_root(leaves)
        assert list(mmr.peaks) == naive_peaks(leaves)
        assert mmr.stream_seq == len(leaves)


@steady(60)
@given(st.lists(st.binary(min_size=32, max_size=32), max_size=70))
def test_any_leaves_give_the_root_of_the_definition(leaves: list[bytes]) -> None:
    mmr = Mmr()
    for each in leaves:
        mmr.append(each)
    assert mmr.root == naive_root(leaves)


def test_appending_leaf_by_leaf_gives_the_tree_built_level_by_level() -> None:
    """At the sizes where the shape changes most, and in between."""
    mmr = Mmr()
    watched = {n + d for n in (2**12, 2**13, 10_000, 2**14) for d in (-1, 0, 1)}
    for position in range(2**14 + 1):
        mmr.append(leaf(position))
        if mmr.size in watched:
            assert mmr == mmr_at(mmr.size, table())
            assert mmr.root == table().root(mmr.size)


@steady(100)
@given(sizes, st.integers(0, 300))
def test_resuming_from_any_earlier_size_ends_in_the_same_tree(size: int, more: int) -> None:
    more = min(more, MILLION - size)
    mmr = mmr_at(size, table())
    for position in range(size, size + more):
        mmr.append(leaf(position))
    assert mmr == mmr_at(size + more, table())


def test_appending_returns_the_leaf_and_each_inner_node_that_it_completes() -> None:
    mmr = Mmr()
    for position in range(256):
        completed = mmr.append(leaf(position))
        assert len(completed) <= (position + 1).bit_length()  # log2(n) + 1
        assert [node.height for node in completed] == list(range(len(completed)))
        assert [node.hash for node in completed] == [small()(n.height, n.index) for n in completed]
        closed = (position + 1 & -(position + 1)).bit_length()
        assert len(completed) == closed


def test_every_complete_node_is_completed_exactly_once() -> None:
    mmr, seen = Mmr(), set()
    for position in range(200):
        for node in mmr.append(leaf(position)):
            assert (node.height, node.index) not in seen
            seen.add((node.height, node.index))
    assert seen == {(h, i) for h in range(8) for i in range(200 >> h)}


@steady(200)
@given(sizes)
def test_peaks_are_listed_in_increasing_height_and_cover_every_leaf_once(size: int) -> None:
    heights = peak_heights(size)
    assert heights == sorted(set(heights))
    assert sum(1 << height for height in heights) == size
    covered = [(index << height, (index + 1) << height) for height, index in reversed(peak_positions(size))]
    assert covered[0][0] == 0
    assert covered[-1][1] == size
    assert all(before[1] == after[0] for before, after in itertools.pairwise(covered))


@steady(80)
@given(sizes, st.integers(0, 12))
def test_appending_a_subtree_is_appending_its_leaves(size: int, height: int) -> None:
    size = min(size >> height << height, (MILLION >> height) - 1 << height)
    mmr = mmr_at(size, table())
    mmr.append_subtree(height, table()(height, size >> height))
    assert mmr == mmr_at(size + (1 << height), table())


@steady(80)
@given(sizes, st.integers(1, 20))
def test_a_subtree_is_refused_where_it_does_not_fit(size: int, height: int) -> None:
    assume(size % (1 << height))
    mmr = mmr_at(size, table())
    before = mmr.copy()
    with pytest.raises(ProofError):
        mmr.append_subtree(height, bytes(32))
    assert mmr == before


def test_tiles_are_the_fewest_aligned_subtrees() -> None:
    """Against the minimum over all tilings, computed apart (B11)."""
    most = 64
    for start in range(most):
        fewest = {start: 0}
        for end in range(start + 1, most + 1):
            steps = [
                fewest[end - (1 << h)] + 1
                for h in range(7)
                if end - (1 << h) >= start and (end - (1 << h)) % (1 << h) == 0
            ]
            fewest[end] = min(steps)
            tiles = subtrees(start, end)
            assert len(tiles) == fewest[end]
            edges = [(index << height, (index + 1) << height) for height, index in tiles]
            assert [low for low, _ in edges] == [start, *(high for _, high in edges)][:-1]
            assert edges[-1][1] == end


@pytest.mark.parametrize("wrong", ["missing", "extra", "short"])
def test_a_tree_cannot_be_resumed_from_peaks_that_do_not_fit_its_size(wrong: str) -> None:
    for size in range(1, 65):
        peaks: list[bytes] = list(mmr_at(size, small()).peaks)
        damaged = {"missing": peaks[1:], "extra": [*peaks, leaf(0)], "short": [*peaks[1:], bytes(31)]}[wrong]
        with pytest.raises(ProofError):
            Mmr(size, damaged)


# --- inclusion


def test_every_leaf_has_a_proof_in_every_tree_that_contains_it() -> None:
    for seq, size, proof in proofs(200):
        verify_inclusion(proof, small().root(size), StreamSeq(seq), LeafHash(leaf(seq - 1)), size)


@steady(300)
@given(leaves_in_trees())
@example((1, MILLION))
@example((MILLION, MILLION))
@example((524_288, 524_288))
def test_leaves_prove_their_place_among_a_million(place: tuple[int, int]) -> None:
    seq, size = place
    proof = prove_inclusion(table(), StreamSeq(seq), size)
    tree = peaks_of_proof(proof, table().root(size), StreamSeq(seq), LeafHash(leaf(seq - 1)), size)
    assert tree == mmr_at(size, table())
    assert len(proof.path) + len(proof.peaks_after) <= 2 * size.bit_length()
    assert MmrProof.decode(proof.encode()) == proof


def _verifies(proof: MmrProof, root: MmrRoot, seq: int, size: int) -> bool:
    try:
        verify_inclusion(proof, root, StreamSeq(seq), proof.leaf_hash, size)
    except ProofError:
        return False
    return True


def test_a_proof_verifies_at_no_other_place() -> None:
    """Each proof against each (stream_seq, size) with the root of that size."""
    places = [(seq, size) for seq, size, _ in proofs(26)]
    roots = {size: small().root(size) for size in range(1, 27)}
    for seq, size, proof in proofs(26):
        held = [place for place in places if _verifies(proof, roots[place[1]], *place)]
        assert held == [(seq, size)]


@steady(200)
@given(leaves_in_trees(), leaves_in_trees())
def test_a_proof_among_a_million_verifies_at_no_other_place(
    place: tuple[int, int], other: tuple[int, int]
) -> None:
    assume(place != other)
    proof = prove_inclusion(table(), StreamSeq(place[0]), place[1])
    assert not _verifies(proof, table().root(other[1]), *other)
    seq = min(other[0], place[1])
    assert _verifies(proof, table().root(place[1]), seq, place[1]) == (seq == place[0])


def _shape(seq: int, size: int) -> tuple[int, int, int, int]:
    """All that a proof's verification takes from a place: counts, rank and sides."""
    height, rank = own_peak(seq - 1, size)
    return size.bit_count(), rank, height, (seq - 1) & ((1 << height) - 1)


def test_a_root_commits_to_the_shape_of_its_tree_but_not_to_its_size() -> None:
    """Why tree_size must come from the RECEIPT or CHECKPOINT that holds the root (§5.4, B10).

    Five leaves fold as three do: a peak and a leaf. Given the root of the one and the size of the
    other, a proof verifies; between places of different shapes it never does.
    """
    places = [(seq, size) for seq, size, _ in proofs(20)]
    for seq, size, proof in proofs(20):
        root = small().root(size)
        for place in places:
            assert _verifies(proof, root, *place) == (_shape(*place) == _shape(seq, size))


def _damaged_proofs(proof: MmrProof) -> list[MmrProof]:
    """One part missing, doubled, swapped with another or turned."""
    damaged = []
    for name in ("path", "peaks_after"):
        parts = getattr(proof, name)
        shapes = [parts[:at] + parts[at + 1 :] for at in range(len(parts))]
        shapes += [parts[: at + 1] + parts[at:] for at in range(len(parts))]
        shapes += [
            tuple(parts[{a: b, b: a}.get(at, at)] for at in range(len(parts)))
            for a, b in itertools.combinations(range(len(parts)), 2)
        ]
        damaged += [dataclasses.replace(proof, **{name: shape}) for shape in shapes]
    for at, step in enumerate(proof.path):
        turned = dataclasses.replace(step, dir=1 - step.dir)
        damaged.append(dataclasses.replace(proof, path=(*proof.path[:at], turned, *proof.path[at + 1 :])))
    return damaged


def test_a_damaged_proof_verifies_nowhere() -> None:
    for seq, size, proof in proofs(40):
        for damaged in _damaged_proofs(proof):
            assert damaged == proof or not _verifies(damaged, small().root(size), seq, size)


@steady(60)
@given(leaves_in_trees(), st.integers(0, 255))
def test_a_proof_does_not_lead_to_a_root_that_differs_in_one_bit(place: tuple[int, int], bit: int) -> None:
    seq, size = place
    proof = prove_inclusion(table(), StreamSeq(seq), size)
    root = int.from_bytes(table().root(size), "big") ^ 1 << bit
    assert not _verifies(proof, MmrRoot(root.to_bytes(32, "big")), seq, size)


@steady(60)
@given(leaves_in_trees(), leaves_in_trees())
def test_a_proof_includes_no_other_leaf(place: tuple[int, int], other: tuple[int, int]) -> None:
    seq, size = place
    assume(other[0] != seq)
    proof = prove_inclusion(table(), StreamSeq(seq), size)
    elsewhere = LeafHash(leaf(other[0] - 1))
    for claimed in (proof, dataclasses.replace(proof, leaf_hash=elsewhere)):
        with pytest.raises(ProofError):
            verify_inclusion(claimed, table().root(size), StreamSeq(seq), elsewhere, size)


@pytest.mark.parametrize(("seq", "size"), [(0, 0), (0, 5), (6, 5), (2**64 - 1, 5)])
def test_a_place_outside_the_tree_has_no_proof(seq: int, size: int) -> None:
    proof = prove_inclusion(small(), StreamSeq(5))
    with pytest.raises(ProofError):
        prove_inclusion(small(), StreamSeq(seq), size)
    assert not _verifies(proof, small().root(5), seq, size)


def test_an_inner_node_cannot_pose_as_a_leaf() -> None:
    """A path shortened from below, with the node it leads to in the leaf's place."""
    for seq, size, proof in proofs(40):
        if not proof.path:
            continue
        inner = small()(1, (seq - 1) >> 1)
        posing = dataclasses.replace(proof, leaf_hash=LeafHash(inner), path=proof.path[1:])
        for place in range(1, size + 1):
            assert not _verifies(posing, small().root(size), place, size)


# --- consistency


def _extends(proof: MmrConsistency, from_root: bytes, to_root: bytes) -> bool:
    try:
        verify_consistency(proof, MmrRoot(from_root), MmrRoot(to_root))
    except ProofError:
        return False
    return True


def _consistency(lookup: Table, from_seq: int, to_seq: int) -> MmrConsistency:
    return prove_consistency(lookup, StreamSeq(from_seq), StreamSeq(to_seq))


def test_every_tree_is_a_prefix_of_every_later_one() -> None:
    for from_seq, to_seq in itertools.combinations(range(1, 121), 2):
        proof = _consistency(small(), from_seq, to_seq)
        grown = verify_consistency(proof, small().root(from_seq), small().root(to_seq))
        assert grown == mmr_at(to_seq, small())


@steady(300)
@given(growths())
@example((1, MILLION))
@example((MILLION - 1, MILLION))
@example((524_288, MILLION))
def test_trees_are_prefixes_of_later_ones_up_to_a_million(growth: tuple[int, int]) -> None:
    from_seq, to_seq = growth
    proof = _consistency(table(), from_seq, to_seq)
    grown = verify_consistency(proof, table().root(from_seq), table().root(to_seq))
    assert grown == mmr_at(to_seq, table())
    assert len(proof.path) <= 2 * to_seq.bit_length()
    assert MmrConsistency.decode(proof.encode()) == proof


def test_a_consistency_proof_is_refused_for_any_other_sizes() -> None:
    """Each proof, relabelled to each other pair of sizes, against the roots of those sizes."""
    pairs = list(itertools.combinations(range(1, 25), 2))
    roots = {size: small().root(size) for size in range(1, 25)}
    for pair in pairs:
        proof = _consistency(small(), *pair)
        held = [
            other
            for other in pairs
            if _extends(
                dataclasses.replace(proof, from_seq=other[0], to_seq=other[1]),
                roots[other[0]],
                roots[other[1]],
            )
        ]
        assert held == [pair]


@steady(150)
@given(growths(), growths())
def test_a_consistency_proof_up_to_a_million_is_refused_for_any_other_roots(
    growth: tuple[int, int], other: tuple[int, int]
) -> None:
    assume(growth != other)
    proof = _consistency(table(), *growth)
    roots, wrong = ([table().root(size) for size in pair] for pair in (growth, other))
    relabelled = dataclasses.replace(proof, from_seq=other[0], to_seq=other[1])
    assert not _extends(relabelled, *wrong)
    assert not _extends(proof, *reversed(roots))
    for from_root, to_root in ((roots[0], wrong[1]), (wrong[0], roots[1]), wrong):
        assert _extends(proof, from_root, to_root) == ([from_root, to_root] == roots)


def _damaged_consistencies(proof: MmrConsistency) -> list[MmrConsistency]:
    damaged = []
    for name in ("path", "peaks_from"):
        parts: tuple[NodeHash, ...] = getattr(proof, name)
        shapes = [parts[:at] + parts[at + 1 :] for at in range(len(parts))]
        shapes += [(*parts[:at], NodeHash(leaf(0)), *parts[at:]) for at in range(len(parts) + 1)]
        shapes += [parts[: at + 1] + parts[at:] for at in range(len(parts))]
        if len(parts) <= 4:
            shapes += itertools.permutations(parts)
        else:
            shapes += [parts[::-1], parts[1:] + parts[:1], (parts[1], parts[0], *parts[2:])]
        damaged += [dataclasses.replace(proof, **{name: shape}) for shape in shapes if shape != parts]
    return damaged


def test_a_damaged_consistency_proof_is_refused() -> None:
    """Missing, extra and permuted parts."""
    for from_seq, to_seq in itertools.combinations(range(1, 41), 2):
        proof = _consistency(small(), from_seq, to_seq)
        for damaged in _damaged_consistencies(proof):
            assert not _extends(damaged, small().root(from_seq), small().root(to_seq))


@steady(60)
@given(growths())
def test_a_damaged_consistency_proof_up_to_a_million_is_refused(growth: tuple[int, int]) -> None:
    proof = _consistency(table(), *growth)
    for damaged in _damaged_consistencies(proof):
        assert not _extends(damaged, *(table().root(size) for size in growth))


@steady(60)
@given(growths(), st.integers(1, 300), st.integers(0, 299))
def test_a_forked_history_is_not_an_extension(growth: tuple[int, int], length: int, at: int) -> None:
    """One leaf of the verified prefix rewritten: no proof the forger can build leads from it."""
    from_seq = min(growth[0], 400)
    to_seq = min(from_seq + length, 700)
    forged, nodes = Mmr(), {}
    for position in range(to_seq):
        rewritten = position == at % from_seq
        for node in forged.append(leaf(position + MILLION) if rewritten else leaf(position)):
            nodes[node.height, node.index] = node.hash
    honest_root = table().root(from_seq)
    proof = prove_consistency(lambda h, i: nodes[h, i], StreamSeq(from_seq), StreamSeq(to_seq))
    assert _extends(proof, mmr_at(from_seq, lambda h, i: nodes[h, i]).root, forged.root)
    assert not _extends(proof, honest_root, forged.root)
    honest_start = dataclasses.replace(proof, peaks_from=_consistency(table(), from_seq, to_seq).peaks_from)
    assert not _extends(honest_start, honest_root, forged.root)


@pytest.mark.parametrize(("from_seq", "to_seq"), [(0, 0), (0, 5), (5, 5), (6, 5), (2**64 - 1, 0)])
def test_sizes_that_do_not_grow_have_no_consistency_proof(from_seq: int, to_seq: int) -> None:
    with pytest.raises(ProofError):
        _consistency(small(), from_seq, to_seq)
    empty = MmrConsistency(from_seq=StreamSeq(from_seq), to_seq=StreamSeq(to_seq), peaks_from=(), path=())
    assert not _extends(empty, Mmr().root, Mmr().root)
