"""Vectors of inclusion and consistency proofs (§5.2-§5.4, B9-B11)."""

from __future__ import annotations

import dataclasses
from typing import Any

import cbor2

from veen_core.consistency import MmrConsistency, prove_consistency, verify_consistency
from veen_core.errors import (
    DecodeError,
    ProofError,
)
from veen_core.ids import (
    LeafHash,
    MmrRoot,
    NodeHash,
    StreamSeq,
)
from veen_core.proof import MmrProof, prove_inclusion, verify_inclusion

from . import cast
from .case import Bad, Context, Good, Object, read, readable, unhex
from .crooked import encode

LOG = cast.log()


# --- mmr_proof


def judge_proof(wire: bytes, context: Context) -> Any:
    proof = read(MmrProof, wire)
    root, leaf = MmrRoot(unhex(context, "root")), LeafHash(unhex(context, "leaf_hash"))
    verify_inclusion(proof, root, StreamSeq(context["stream_seq"]), leaf, context["tree_size"])
    return readable(proof)


def _proof(stream_seq: int, size: int) -> MmrProof:
    return prove_inclusion(LOG.lookup, StreamSeq(stream_seq), size)


def _claim(stream_seq: int, size: int) -> dict[str, Any]:
    leaf, root = LOG.leaf(stream_seq), LOG.root(size)
    return {"stream_seq": stream_seq, "tree_size": size, "leaf_hash": leaf.hex(), "root": root.hex()}


OF_5_IN_11 = _proof(5, 11)
STEPS, PEAKS = OF_5_IN_11.path, OF_5_IN_11.peaks_after


def _bent(**changes: Any) -> bytes:
    return dataclasses.replace(OF_5_IN_11, **changes).encode()


def _step(**changes: int) -> bytes:
    """The proof with its first step replaced, beyond what a ``PathStep`` can hold."""
    item = cbor2.loads(OF_5_IN_11.encode())
    item[3][0] = {int(key[1:]): value for key, value in changes.items()}
    return encode(item)


SIBLING = bytes(STEPS[0].sib)
MMR_PROOF = Object(
    name="mmr_proof",
    judge=judge_proof,
    wire=MmrProof,
    bend="5_in_11",
    good=tuple(
        Good(f"{seq}_in_{size}", _proof(seq, size).encode(), _claim(seq, size))
        for seq, size in ((1, 1), (2, 2), (3, 3), (1, 7), (7, 7), (5, 7), (8, 8), (5, 11), (9, 12), (13, 13))
    ),
    bad=(
        Bad("dir_2", _step(k1=2, k2=SIBLING), DecodeError, "dir (core §5.2): want 0 | 1, found int 2"),
        Bad(
            "sib_short",
            _step(k1=0, k2=SIBLING[1:]),
            DecodeError,
            "mmr_proof.path.sib (core §5.2): want NodeHash of 32",
        ),
        Bad(
            "step_unknown_key",
            _step(k1=0, k2=SIBLING, k3=0),
            DecodeError,
            "mmr_proof.path (core §5.2): unknown key",
        ),
        Bad("step_misordered", _step(k2=SIBLING, k1=0), DecodeError, "keys out of order"),
        Bad(
            "path_null",
            encode({1: 1, 2: SIBLING, 3: None, 4: []}),
            DecodeError,
            "path (core §5.2): want array",
        ),
        *(
            Bad(name, wire, ProofError, match, _claim(5, 11) | more)
            for name, wire, match, more in (
                (
                    "dir_contradicts_position",
                    _step(k1=1, k2=SIBLING),
                    "path[0].dir (core §5.2): 1 contradicts",
                    {},
                ),
                (
                    "redundant_sibling",
                    _bent(path=(*STEPS, STEPS[0])),
                    "4 siblings, position and tree size require 3",
                    {},
                ),
                (
                    "sibling_missing",
                    _bent(path=STEPS[:-1]),
                    "2 siblings, position and tree size require 3",
                    {},
                ),
                ("path_of_65", _bent(path=STEPS[:1] * 65), "65 siblings, at most 64", {}),
                ("siblings_swapped", _bent(path=(STEPS[1], STEPS[0], STEPS[2])), "does not lead to", {}),
                (
                    "peak_missing",
                    _bent(peaks_after=PEAKS[:-1]),
                    "a tree of 11 leaves does not have 2 peaks",
                    {},
                ),
                ("peak_added", _bent(peaks_after=(*PEAKS, NodeHash(bytes(32)))), "does not have 4 peaks", {}),
                ("peaks_swapped", _bent(peaks_after=PEAKS[::-1]), "does not lead to the expected", {}),
                ("peaks_duplicate", _bent(peaks_after=(PEAKS[0], PEAKS[0])), "two peaks are equal", {}),
                (
                    "leaf_other",
                    OF_5_IN_11.encode(),
                    "leaf_hash (core §5.4)",
                    {"leaf_hash": LOG.leaf(6).hex()},
                ),
                ("stream_seq_zero", OF_5_IN_11.encode(), "stream_seq 0 names no leaf", {"stream_seq": 0}),
                ("stream_seq_beyond", OF_5_IN_11.encode(), "12 is beyond a tree of 11", {"stream_seq": 12}),
                ("stream_seq_other", OF_5_IN_11.encode(), "contradicts", {"stream_seq": 6}),
                ("tree_size_other", OF_5_IN_11.encode(), "does not have", {"tree_size": 12}),
                ("root_other", OF_5_IN_11.encode(), "does not lead to", {"root": LOG.root(12).hex()}),
            )
        ),
    ),
)


# --- mmr_consistency


def judge_consistency(wire: bytes, context: Context) -> Any:
    proof = read(MmrConsistency, wire)
    roots = MmrRoot(unhex(context, "from_root")), MmrRoot(unhex(context, "to_root"))
    tree = verify_consistency(proof, *roots)
    return readable(proof) | {"peaks": [peak.hex() for peak in tree.peaks]}


def _consistency(start: int, end: int) -> MmrConsistency:
    return prove_consistency(LOG.lookup, StreamSeq(start), StreamSeq(end))


def _roots(start: int, end: int) -> dict[str, Any]:
    return {"from_root": LOG.root(start).hex(), "to_root": LOG.root(end).hex()}


FROM_6_TO_13 = _consistency(6, 13)


def _grown(**changes: Any) -> bytes:
    return dataclasses.replace(FROM_6_TO_13, **changes).encode()


MMR_CONSISTENCY = Object(
    name="mmr_consistency",
    judge=judge_consistency,
    wire=MmrConsistency,
    bend="6_to_13",
    good=tuple(
        Good(f"{start}_to_{end}", _consistency(start, end).encode(), _roots(start, end))
        for start, end in ((1, 2), (1, 13), (3, 7), (4, 8), (6, 13), (7, 8), (12, 13))
    ),
    bad=tuple(
        Bad(name, wire, ProofError, match, _roots(6, 13) | more)
        for name, wire, match, more in (
            (
                "from_zero",
                _grown(from_seq=0, peaks_from=()),
                "want 1 <= from_seq < to_seq, found 0 and 13",
                {},
            ),
            ("from_is_to", _grown(to_seq=6, path=()), "want 1 <= from_seq < to_seq, found 6 and 6", {}),
            ("from_after_to", _grown(to_seq=5), "want 1 <= from_seq < to_seq, found 6 and 5", {}),
            ("path_one_less", _grown(path=FROM_6_TO_13.path[:-1]), "2 subtrees, the two sizes require 3", {}),
            ("path_one_more", _grown(path=(*FROM_6_TO_13.path, NodeHash(bytes(32)))), "4 subtrees", {}),
            ("path_reversed", _grown(path=FROM_6_TO_13.path[::-1]), "to the root at 13", {}),
            (
                "peaks_one_less",
                _grown(peaks_from=FROM_6_TO_13.peaks_from[:1]),
                "6 leaves has 2 peaks, not 1",
                {},
            ),
            (
                "peaks_swapped",
                _grown(peaks_from=FROM_6_TO_13.peaks_from[::-1]),
                "do not fold to the root at 6",
                {},
            ),
            ("from_root_other", _grown(), "do not fold to the root at 6", {"from_root": LOG.root(7).hex()}),
            ("to_root_other", _grown(), "to the root at 13", {"to_root": LOG.root(12).hex()}),
            ("sizes_other", _grown(to_seq=12), "3 subtrees, the two sizes require 2", {}),
        )
    ),
)
OBJECTS = (MMR_PROOF, MMR_CONSISTENCY)
