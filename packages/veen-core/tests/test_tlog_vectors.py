"""The published vectors of transparency logs: RFC 6962's tree, signed notes, cosignatures, tiles (C2SP)."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from veen_core.errors import DecodeError, ProofError, QuorumError, SignatureError
from veen_core.ids import VerifyKey
from veen_core.keys import SigningKey, SigningSeed
from veen_core.tlog import add_checkpoint, note, policy, tiles, tree
from veen_core.tlog.note import ED25519, Note, NoteKey, parse_key, parse_note, parse_signatures
from veen_core.tlog.tiles import Tile
from veen_core.tlog.tree_head import parse_signed_head

VECTORS = Path(__file__).parent / "vectors"
FILES = {
    "rfc6962": {"eight_leaves"},
    "c2sp": {
        "add_checkpoint",
        "checkpoint_example",
        "cosigned_checkpoint",
        "go_note",
        "request_example",
        "signed_note",
        "tiles",
    },
}


def read(folder: str, name: str) -> Any:
    return json.loads((VECTORS / folder / f"{name}.json").read_bytes())


EIGHT = read("rfc6962", "eight_leaves")
LEAVES, ROOTS = ([bytes.fromhex(text) for text in EIGHT[name]] for name in ("leaves", "roots"))
GO, COSIGNED, TILES = (read("c2sp", name) for name in ("go_note", "cosigned_checkpoint", "tiles"))
REQUESTS = read("c2sp", "add_checkpoint")


def unhex(proof: list[str]) -> list[bytes]:
    return [bytes.fromhex(digest) for digest in proof]


def test_the_files_are_the_vectors_named_here() -> None:
    for folder, names in FILES.items():
        assert {path.stem for path in (VECTORS / folder).iterdir()} == names


# --- the tree of RFC 6962


class Eight:
    """The tree of the eight published leaves, with its nodes."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[int, int], bytes] = {}
        self.tree = tree.Tree()
        self.roots = [self.tree.root]
        for leaf in LEAVES:
            for node in self.tree.append(tree.leaf_hash(leaf)):
                self.nodes[node.height, node.index] = node.hash
            self.roots.append(self.tree.root)

    def lookup(self, height: int, index: int) -> bytes:
        return self.nodes[height, index]


@pytest.fixture(scope="module")
def eight() -> Eight:
    return Eight()


def test_the_roots_are_the_published_ones(eight: Eight) -> None:
    assert eight.roots == ROOTS
    assert ROOTS[0] == tree.EMPTY_ROOT


@pytest.mark.parametrize("case", EIGHT["inclusion"], ids=lambda case: f"{case['index']}_in_{case['size']}")
def test_the_inclusion_proof_is_the_published_one_and_verifies(eight: Eight, case: Any) -> None:
    index, size, proof = case["index"], case["size"], unhex(case["proof"])
    assert tree.prove_inclusion(eight.lookup, index, size) == proof
    tree.verify_inclusion(tree.leaf_hash(LEAVES[index]), index, size, proof, ROOTS[size])


@pytest.mark.parametrize("case", EIGHT["consistency"], ids=lambda case: f"{case['old']}_to_{case['new']}")
def test_the_consistency_proof_is_the_published_one_and_verifies(eight: Eight, case: Any) -> None:
    old, new, proof = case["old"], case["new"], unhex(case["proof"])
    assert tree.prove_consistency(eight.lookup, old, new) == proof
    tree.verify_consistency(old, new, proof, ROOTS[old], ROOTS[new])


SOME_HASH = bytes.fromhex("abacaba000000000000000000000000000000000000000000060061e00123456")


@pytest.mark.parametrize("case", EIGHT["inclusion"], ids=lambda case: f"{case['index']}_in_{case['size']}")
def test_a_corrupted_inclusion_proof_is_refused_in_each_published_way(case: Any) -> None:
    index, size, proof = case["index"], case["size"], unhex(case["proof"])
    leaf, root = tree.leaf_hash(LEAVES[index]), ROOTS[size]
    claims = [
        *((leaf, other, size, proof, root) for other in (index - 1, index + 1, index ^ 2)),
        *((leaf, index, other, proof, root) for other in (size * 2, size // 2)),
        (b"WrongLeaf", index, size, proof, root),
        *((leaf, index, size, proof, other) for other in (tree.EMPTY_ROOT, SOME_HASH)),
        *((leaf, index, size, other, root) for other in ([*proof, b""], [*proof, root])),
        *((leaf, index, size, other, root) for other in ([b"", *proof], [root, *proof])),
    ]
    if proof:
        claims.append((leaf, index, size, proof[:-1], root))
    if len(proof) > 1:
        claims.append((leaf, index, size, [proof[0], SOME_HASH, *proof[1:]], root))
    for claim in claims:
        with pytest.raises(ProofError):
            tree.verify_inclusion(*claim)


@pytest.mark.parametrize("case", EIGHT["consistency"][1:], ids=lambda case: f"{case['old']}_to_{case['new']}")
def test_a_corrupted_consistency_proof_is_refused_in_each_published_way(case: Any) -> None:
    old, new, proof = case["old"], case["new"], unhex(case["proof"])
    first, second = ROOTS[old], ROOTS[new]
    proofs = [
        [],
        proof[:-1],
        *([*proof, more] for more in (b"", first, second)),
        *([more, *proof] for more in (b"", first, second, proof[0])),
    ]
    claims = [
        *((other, new, proof, first, second) for other in (old - 1, old + 1, old ^ 2)),
        *((old, other, proof, first, second) for other in (new * 2, new // 2)),
        (old, new, proof, b"WrongRoot", second),
        (old, new, proof, first, b"WrongRoot"),
        (old, new, proof, second, first),
        *((old, new, other, first, second) for other in proofs),
    ]
    for claim in claims:
        with pytest.raises(ProofError):
            tree.verify_consistency(*claim)


# --- signed notes


def test_the_note_of_go_is_made_byte_for_byte() -> None:
    key = SigningKey(SigningSeed(base64.b64decode(GO["seed"])))
    assert NoteKey("PeterNeumann", ED25519, key.public).text == GO["keys"][0]
    made = Note(GO["text"], (note.sign_note(key, "PeterNeumann", GO["text"]),))
    assert made.encode().decode() == GO["text"] + "\n" + GO["signatures"][0]


def test_the_note_of_go_verifies_under_the_keys_that_are_known() -> None:
    peter, enoch = map(parse_key, GO["keys"])
    parsed = parse_note((GO["text"] + "\n" + "".join(GO["signatures"])).encode())
    assert parsed.text == GO["text"]
    assert note.verified_signatures(parsed, [peter]) == {peter: parsed.signatures[0]}
    assert note.verified_signatures(parsed, [peter, enoch]).keys() == {peter, enoch}
    assert note.verified_signatures(parsed, []) == {}


def test_a_longer_signature_of_go_is_refused_only_if_its_key_is_known() -> None:
    peter, enoch = map(parse_key, GO["keys"])
    longer = GO["signatures"][1][:60] + "ABCD" + GO["signatures"][1][60:]
    parsed = parse_note((GO["text"] + "\n" + GO["signatures"][0] + longer).encode())
    assert note.verified_signatures(parsed, [peter]).keys() == {peter}
    with pytest.raises(SignatureError, match="the signature of EnochRoot does not verify"):
        note.verified_signatures(parsed, [peter, enoch])


@pytest.mark.parametrize("case", GO["malformed"])
def test_a_malformed_note_of_go_is_refused(case: str) -> None:
    with pytest.raises(DecodeError, match=r"note \(C2SP signed-note\)"):
        parse_note(GO["malformed"][case].encode())


@pytest.mark.parametrize("text", GO["bad_keys"], ids=["long key", "unknown type"])
def test_a_bad_key_of_go_is_refused(text: str) -> None:
    with pytest.raises(DecodeError, match="verifier key"):
        parse_key(text)


def test_no_part_and_no_neighbour_of_a_key_is_a_key() -> None:
    text = GO["keys"][0]
    parts = [text[i:j] for i in range(len(text) + 1) for j in range(i + 1, len(text) + 1)]
    neighbours = [text[:i] + chr(ord(text[i]) + 1) + text[i + 1 :] for i in range(len(text))]
    for other in {*parts, *neighbours} - {text}:
        with pytest.raises(DecodeError):
            parse_key(other)


def test_the_key_and_signature_of_c2sp_are_read_as_published() -> None:
    vector = read("c2sp", "signed_note")
    key = parse_key(vector["key"])
    assert (key.name, key.kind, key.key_id.hex()) == (vector["name"], vector["kind"], vector["key_id"])
    assert key.public.hex() == vector["public"]
    assert key.text == vector["key"]
    signed = Note(vector["text"], parse_signatures(vector["signature"]))
    assert note.verified_signatures(signed, [key]).keys() == {key}


# --- checkpoints and cosignatures


def test_the_example_of_c2sp_has_the_size_root_and_time_that_the_page_gives() -> None:
    vector = read("c2sp", "checkpoint_example")
    signed = parse_signed_head(vector["note"].encode())
    assert signed.head.origin == vector["origin"]
    assert (signed.head.size, signed.head.root.hex()) == (vector["size"], vector["root"])
    assert note.cosigned_at(signed.note.signatures[1].signature) == vector["time"]
    assert signed.encode().decode() == vector["note"]


def test_a_public_checkpoint_verifies_under_its_log_and_its_four_witnesses() -> None:
    """The first line is a signature of a type that is not known here (RFC 6962); it is ignored."""
    signed = parse_signed_head(COSIGNED["note"].encode())
    assert (signed.head.size, signed.head.root.hex()) == (COSIGNED["size"], COSIGNED["root"])
    keys = [parse_key(text) for text in (COSIGNED["log"], *COSIGNED["witnesses"])]
    found = note.verified_signatures(signed.note, keys)
    assert found.keys() == set(keys)
    assert {note.cosigned_at(found[key].signature) for key in keys[1:]} == {COSIGNED["time"]}


def public_policy(threshold: int) -> policy.WitnessPolicy:
    lines = [f"witness w{at} {key}" for at, key in enumerate(COSIGNED["witnesses"])]
    group = f"group g {threshold} " + " ".join(f"w{at}" for at in range(len(lines)))
    return policy.parse_policy("\n".join([f"log {COSIGNED['log']}", *lines, group, "quorum g"]).encode())


def test_a_public_checkpoint_has_a_quorum_of_four_and_without_one_line_of_three() -> None:
    signed = parse_signed_head(COSIGNED["note"].encode())
    result = public_policy(4).check(signed)
    assert (len(result.witnesses), result.quorum_at) == (4, COSIGNED["time"])
    fewer = parse_signed_head(COSIGNED["note"].encode().rsplit("\N{EM DASH} ".encode(), 1)[0])
    assert len(public_policy(3).check(fewer).witnesses) == 3
    with pytest.raises(QuorumError, match="3 of 4 witnesses"):
        public_policy(4).check(fewer)


def test_a_public_checkpoint_with_another_size_does_not_verify() -> None:
    changed = COSIGNED["note"].replace("1432088532", "1432088533").encode()
    for text in (COSIGNED["log"], *COSIGNED["witnesses"]):
        with pytest.raises(SignatureError):
            note.verified_signatures(parse_note(changed), [parse_key(text)])


# --- add-checkpoint


def test_the_requests_that_another_witness_accepts_are_accepted_in_order() -> None:
    key = NoteKey(REQUESTS["origin"], ED25519, VerifyKey(bytes.fromhex(REQUESTS["public"])))
    size, root = 0, tree.EMPTY_ROOT
    for body in REQUESTS["accepted"]:
        request = add_checkpoint.parse_add_checkpoint(body.encode())
        head = request.checkpoint.head
        assert head.origin == REQUESTS["origin"]
        assert note.verified_signatures(request.checkpoint.note, [key])
        assert request.old_size == size
        tree.verify_consistency(size, head.size, request.proof, root, head.root)
        assert request.encode().decode() == body
        size, root = head.size, head.root
    assert size == 5


def test_a_request_from_a_size_that_is_no_longer_the_newest_proves_a_smaller_tree() -> None:
    first, from_1_to_3 = (
        add_checkpoint.parse_add_checkpoint(body.encode())
        for body in (REQUESTS["accepted"][0], REQUESTS["from_1_to_3"])
    )
    old, new = first.checkpoint.head, from_1_to_3.checkpoint.head
    tree.verify_consistency(old.size, new.size, from_1_to_3.proof, old.root, new.root)


def test_a_request_with_64_hashes_is_refused() -> None:
    with pytest.raises(DecodeError, match="a proof of 64 hashes, at most 63"):
        add_checkpoint.parse_add_checkpoint(REQUESTS["too_many_hashes"].encode())


def test_the_request_and_the_response_of_c2sp_are_parsed() -> None:
    vector = read("c2sp", "request_example")
    request = add_checkpoint.parse_add_checkpoint(vector["request"].encode())
    assert (request.old_size, len(request.proof), request.checkpoint.head.size) == (20852014, 4, 20852163)
    assert len(request.checkpoint.note.signatures) == 2
    assert request.encode().decode() == vector["request"]
    cosignatures = parse_signatures(vector["response"].encode())
    assert [each.name.rpartition("/")[2] for each in cosignatures] == ["w1", "w1", "w2"]
    assert "".join(each.line for each in cosignatures) == vector["response"]


# --- tiles


@pytest.mark.parametrize("case", TILES["paths"], ids=lambda case: case["path"])
def test_the_path_of_a_tile_is_the_published_one(case: Any) -> None:
    tile = Tile(case["level"], case["index"], case["width"])
    assert tile.path == case["path"]
    assert tiles.parse_path(case["path"]) == tile


@pytest.mark.parametrize("path", TILES["not_paths"])
def test_a_published_text_that_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(DecodeError, match="is not the path of a tile"):
        tiles.parse_path(path)


@pytest.mark.parametrize("case", TILES["trees"], ids=lambda case: f"of_{case['size']}_leaves")
def test_a_tree_has_the_tiles_that_the_page_counts(case: Any) -> None:
    found = list(tiles.tiles_of(case["size"]))
    assert len({tile.path for tile in found}) == len(found)
    for level, expected in enumerate(case["levels"]):
        widths = [tile.width for tile in found if tile.level == level]
        assert widths.count(tiles.TILE_WIDTH) == expected["full"]
        assert sum(width for width in widths if width < tiles.TILE_WIDTH) == expected["partial"]
    assert max(tile.level for tile in found) == len(case["levels"]) - 1
