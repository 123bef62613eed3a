"""The independent reader of hub logs: it accepts the published vectors, and agrees with veen_core.tlog."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from veen_core.errors import VeenError
from veen_core.hashing import H
from veen_core.hub_log import LabelHead
from veen_core.ids import Label, MmrRoot, StreamSeq, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.tlog import tree
from veen_core.tlog.note import COSIGNATURE, ED25519, Note, NoteKey, cosign, sign_note, verified_signatures
from veen_core.tlog.tiles import ENTRIES, Tile, encode_bundle
from veen_core.tlog.tree_head import TreeHead, parse_signed_head
from veen_selftest.peers import note_verifier, tree_verifier
from veen_selftest.runner.check import ClauseViolation

VECTORS = Path(__file__).parents[2] / "veen-core" / "tests" / "vectors"
ORIGIN = "veen.hub/" + "5f" * 32
HUB, WITNESS = (SigningKey(SigningSeed(H(name))) for name in (b"hub", b"witness"))
SIZES = 33
LEAVES = [tree.leaf_hash(b"entry %d" % n) for n in range(SIZES)]


def vector(path: str) -> Any:
    return json.loads((VECTORS / path).read_text(encoding="utf-8"))


def lookup(height: int, index: int) -> bytes:
    return tree_verifier.tree_hash(LEAVES[index << height : index + 1 << height])


def accepts(judge: Callable[[], object]) -> bool:
    try:
        judge()
    except (VeenError, ClauseViolation):
        return False
    return True


# --- trees


def test_the_trees_and_proofs_of_the_reference_data_verify() -> None:
    data = vector("rfc6962/eight_leaves.json")
    leaves = [tree_verifier.leaf_hash(bytes.fromhex(leaf)) for leaf in data["leaves"]]
    roots = [bytes.fromhex(root) for root in data["roots"]]
    assert [tree_verifier.tree_hash(leaves[:size]) for size in range(len(roots))] == roots
    for case in data["inclusion"]:
        path = [bytes.fromhex(node) for node in case["proof"]]
        leaf, size = leaves[case["index"]], case["size"]
        assert tree_verifier.root_of_inclusion(leaf, case["index"], size, path) == roots[size]
    for case in data["consistency"]:
        path = [bytes.fromhex(node) for node in case["proof"]]
        old, new = case["old"], case["new"]
        tree_verifier.require_consistent(old, new, path, roots[old], roots[new])


def test_every_proof_of_veen_core_verifies() -> None:
    roots = [tree_verifier.tree_hash(LEAVES[:size]) for size in range(SIZES + 1)]
    for size in range(1, SIZES + 1):
        for index in range(size):
            path = tree.prove_inclusion(lookup, index, size)
            assert tree_verifier.root_of_inclusion(LEAVES[index], index, size, path) == roots[size]
    for new in range(SIZES + 1):
        for old in range(new + 1):
            path = tree.prove_consistency(lookup, old, new)
            tree_verifier.require_consistent(old, new, path, roots[old], roots[new])


@given(
    st.integers(0, SIZES),
    st.integers(0, SIZES),
    st.lists(st.sampled_from(LEAVES), max_size=2),
    st.integers(0, 8),
)
def test_of_changed_consistency_proofs_both_readers_accept_the_same(
    one: int, other: int, more: list[bytes], cut: int
) -> None:
    old, new = sorted((one, other))
    old_root, new_root = (tree_verifier.tree_hash(LEAVES[:size]) for size in (old, new))
    path = [*tree.prove_consistency(lookup, old, new)[:cut], *more]
    theirs = accepts(lambda: tree.verify_consistency(old, new, path, old_root, new_root))
    assert accepts(lambda: tree_verifier.require_consistent(old, new, path, old_root, new_root)) == theirs


@given(
    st.integers(1, SIZES),
    st.integers(0, SIZES),
    st.lists(st.sampled_from(LEAVES), max_size=2),
    st.integers(0, 8),
)
def test_of_changed_inclusion_proofs_both_readers_accept_the_same(
    size: int, index: int, more: list[bytes], cut: int
) -> None:
    root = tree_verifier.tree_hash(LEAVES[:size])
    path = [*tree.prove_inclusion(lookup, min(index, size - 1), size)[:cut], *more]
    leaf = LEAVES[min(index, SIZES - 1)]
    theirs = accepts(lambda: tree.verify_inclusion(leaf, index, size, path, root))

    def mine() -> None:
        if tree_verifier.root_of_inclusion(leaf, index, size, path) != root:
            raise ClauseViolation("another root")

    assert accepts(mine) == theirs


# --- tiles and entries


@given(st.integers(0, 2**40), st.integers(1, 256), st.sampled_from([0, 1, 63, ENTRIES]))
@example(1_234_067, 256, 0)
def test_a_tile_has_one_path(index: int, width: int, level: int) -> None:
    name: int | str = "entries" if level == ENTRIES else level
    assert tree_verifier.tile_path(name, index, width) == f"/log/tile/{Tile(level, index, width).path}"


def test_a_bundle_of_another_width_or_with_half_an_entry_is_refused() -> None:
    data = encode_bundle([b"one", b"", b"three"])
    assert tree_verifier.split_bundle(data, 3) == [b"one", b"", b"three"]
    for wrong, width in ((data, 2), (data[:-1], 3), (data + b"\x00", 4)):
        with pytest.raises(ClauseViolation, match="tlog-tiles"):
            tree_verifier.split_bundle(wrong, width)


@given(
    st.binary(min_size=32, max_size=32),
    st.integers(1, 2**53),
    st.binary(min_size=32, max_size=32),
    st.integers(0, 2**40),
)
def test_a_label_head_reads_the_same(label: bytes, upto_seq: int, root: bytes, hub_ts: int) -> None:
    head = LabelHead(
        label=Label(label), upto_seq=StreamSeq(upto_seq), mmr_root=MmrRoot(root), hub_ts=UnixTime(hub_ts)
    )
    found = tree_verifier.parse_head(head.encode())
    assert (found.label, found.upto_seq, found.mmr_root, found.hub_ts) == (label, upto_seq, root, hub_ts)


@pytest.mark.parametrize("case", sorted((VECTORS / "label_head").iterdir()), ids=lambda path: path.name)
def test_a_vector_of_a_label_head_is_accepted_or_refused(case: Path) -> None:
    wire = bytes.fromhex("".join((case / "wire.hex").read_text(encoding="ascii").split()))
    assert accepts(lambda: tree_verifier.parse_head(wire)) is not case.name.endswith("_fail")


# --- notes


def test_a_public_checkpoint_verifies_with_the_keys_of_its_log_and_of_four_witnesses() -> None:
    data = vector("c2sp/cosigned_checkpoint.json")
    checkpoint = note_verifier.parse_hub_checkpoint(data["note"].encode())
    log = note_verifier.parse_verifier_key(data["log"], note_verifier.LOG_KEY)
    assert note_verifier.is_signed(checkpoint, *log)
    witnesses = [
        note_verifier.parse_verifier_key(key, note_verifier.WITNESS_KEY) for key in data["witnesses"]
    ]
    times = [note_verifier.cosigned_at(checkpoint, *witness) for witness in witnesses]
    assert len(times) == 4
    assert None not in times


def signed(size: int = 7) -> Note:
    text = TreeHead(ORIGIN, size, tree_verifier.tree_hash(LEAVES[:size])).text
    lines = (sign_note(HUB, ORIGIN, text), cosign(WITNESS, "w.example", text, UnixTime(1_700_000_000)))
    return Note(text, lines)


def test_signatures_of_hub_and_witness_verify() -> None:
    checkpoint = note_verifier.parse_hub_checkpoint(signed().encode())
    assert note_verifier.is_signed(checkpoint, ORIGIN, HUB.public)
    assert note_verifier.cosigned_at(checkpoint, "w.example", WITNESS.public) == 1_700_000_000
    assert not note_verifier.is_signed(checkpoint, ORIGIN, WITNESS.public)
    assert note_verifier.cosigned_at(checkpoint, "w.example", HUB.public) is None


def test_a_verifier_key_is_written_as_veen_core_writes_it() -> None:
    for kind, code in ((note_verifier.LOG_KEY, ED25519), (note_verifier.WITNESS_KEY, COSIGNATURE)):
        text = NoteKey(ORIGIN, code, HUB.public).text
        assert note_verifier.verifier_key(ORIGIN, kind, HUB.public) == text
        assert note_verifier.parse_verifier_key(text, kind) == (ORIGIN, HUB.public)


def both_signed_by_veen_core(data: bytes) -> None:
    keys = [NoteKey(ORIGIN, ED25519, HUB.public), NoteKey("w.example", COSIGNATURE, WITNESS.public)]
    if len(verified_signatures(parse_signed_head(data).note, keys)) < len(keys):
        raise ClauseViolation("a signature is missing")


def both_signed(data: bytes) -> None:
    checkpoint = note_verifier.parse_hub_checkpoint(data)
    by_hub = note_verifier.is_signed(checkpoint, ORIGIN, HUB.public)
    if not by_hub or note_verifier.cosigned_at(checkpoint, "w.example", WITNESS.public) is None:
        raise ClauseViolation("a signature is missing")


def test_a_note_with_both_signatures_is_accepted_by_both_readers() -> None:
    both_signed_by_veen_core(signed().encode())
    both_signed(signed().encode())


@given(st.integers(0, len(signed().encode()) - 1), st.integers(1, 255))
def test_a_note_with_any_byte_changed_is_refused_by_both_readers(place: int, change: int) -> None:
    data = bytearray(signed().encode())
    data[place] ^= change
    assert not accepts(lambda: both_signed_by_veen_core(bytes(data)))
    assert not accepts(lambda: both_signed(bytes(data)))


@pytest.mark.parametrize(
    "change",
    [
        lambda note: note.replace("\n7\n", "\n07\n"),
        lambda note: note.replace("\n7\n", "\n+7\n"),
        lambda note: note.replace("\n7\n", "\n7 \n"),
        lambda note: note.replace("=\n\n", "=\nextension\n\n"),
        lambda note: note.replace("=\n\n", "\n\n"),
        lambda note: note.replace("\n\n", "\n\n\n"),
        lambda note: note.replace("\n\n", "\n"),
        lambda note: note.replace("\N{EM DASH}", "-"),
        lambda note: note.replace("\N{EM DASH} ", "\N{EM DASH}  "),
        lambda note: note.replace("\n", "\r\n"),
        lambda note: note.removesuffix("\n"),
        lambda note: note + "\n",
        lambda note: note + "more\n",
        lambda note: note.split("\n\n")[0] + "\n\n",
        lambda note: "\n" + note,
    ],
)
def test_a_hub_checkpoint_of_another_form_is_refused(change: Callable[[str], str]) -> None:
    text = signed().encode().decode()
    assert change(text) != text
    with pytest.raises(ClauseViolation, match="C2SP"):
        note_verifier.parse_hub_checkpoint(change(text).encode())
