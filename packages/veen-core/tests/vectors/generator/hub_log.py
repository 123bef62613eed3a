"""Vectors of label heads, the envelopes of the hub log, and evidence up to a hub checkpoint (P1, P2)."""

from __future__ import annotations

import dataclasses
from typing import Any

import cbor2

from veen_core import hub_log
from veen_core.errors import (
    DecodeError,
    EvidenceError,
    IdentityError,
    ProofError,
    QuorumError,
    SignatureError,
)
from veen_core.hashing import H
from veen_core.hub_evidence import HubEvidence, parse_evidence, verify_evidence
from veen_core.hub_log import LabelHead
from veen_core.ids import HubId, Label, MmrRoot, StreamSeq, UnixTime
from veen_core.keys import SigningKey
from veen_core.proof import prove_inclusion
from veen_core.tlog import note, tree
from veen_core.tlog.note import Note, NoteKey, NoteSignature
from veen_core.tlog.policy import parse_policy
from veen_core.tlog.tree_head import TreeHead

from . import cast
from .api import BY, envelope
from .case import Bad, Context, Good, Object, read, readable, unhex
from .crooked import encode

LOG = cast.log()
OTHER_LABEL = Label(H(b"another label"))
COSIGNED = UnixTime(cast.BORN + 60)
ORIGIN = hub_log.origin_of(cast.HUB_ID)
NAMES = ("witness.example/one", "witness.example/two")


def _head(upto_seq: int) -> LabelHead:
    receipt = LOG.receipts[upto_seq - 1]
    return LabelHead(
        label=cast.LABEL, upto_seq=receipt.stream_seq, mmr_root=receipt.mmr_root, hub_ts=receipt.hub_ts
    )


def _other_head(upto_seq: int) -> LabelHead:
    root = MmrRoot(H(b"root at %d" % upto_seq))
    return LabelHead(
        label=OTHER_LABEL, upto_seq=StreamSeq(upto_seq), mmr_root=root, hub_ts=UnixTime(cast.BORN + upto_seq)
    )


HEADS = (_head(2), _other_head(3), _head(6), _other_head(7), _other_head(8), _head(11), _head(13))
"""The entries of the hub log. The head at 6 is the first that covers the fifth message."""
INDEX = 2


class Heads:
    """The tree over the heads, with every node."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[int, int], bytes] = {}
        self.roots = [tree.EMPTY_ROOT]
        grown = tree.Tree()
        for head in HEADS:
            for node in grown.append(tree.leaf_hash(head.encode())):
                self.nodes[node.height, node.index] = node.hash
            self.roots.append(grown.root)

    def lookup(self, height: int, index: int) -> bytes:
        return self.nodes[height, index]


TREE = Heads()


def _note(
    *witnesses: int,
    key: SigningKey = cast.HUB,
    origin: str = ORIGIN,
    size: int = len(HEADS),
    time: int = COSIGNED,
) -> bytes:
    """Return a hub checkpoint with the cosignatures of these witnesses."""
    text = TreeHead(origin, size, TREE.roots[size]).text
    signatures = [note.sign_note(key, origin, text)]
    for at in witnesses:
        signatures.append(note.cosign(cast.WITNESSES[at], NAMES[at], text, UnixTime(time + at)))
    return Note(text, tuple(signatures)).encode()


CHECKPOINT = _note(0, 1)
KEYS = [NoteKey(NAMES[at], note.COSIGNATURE, cast.WITNESSES[at].public) for at in (0, 1)]
LINES = [f"witness w{at} {key.text}" for at, key in enumerate(KEYS)]
BOTH = "\n".join([*LINES, "group both all w0 w1", "quorum both"])


# --- label head


def judge_head(wire: bytes, _context: Context) -> Any:
    head = read(LabelHead, wire)
    return readable(head) | {"tree_leaf": tree.leaf_hash(wire).hex()}


_FIELDS = [1, cast.LABEL, 6, bytes(32), cast.BORN]
LABEL_HEAD = Object(
    name="label_head",
    judge=judge_head,
    wire=LabelHead,
    good=(Good("sixth", _head(6).encode()), Good("other_label", _other_head(8).encode())),
    bad=tuple(
        Bad(name, encode(item), DecodeError, match)
        for name, item, match in (
            ("ver_2", [2, *_FIELDS[1:]], "label head.ver (RESOLUTIONS P1): want 1, found int 2"),
            ("label_short", [1, bytes(31), *_FIELDS[2:]], "label head.label (RESOLUTIONS P1): want Label"),
            (
                "root_null",
                [*_FIELDS[:3], None, cast.BORN],
                "label head.mmr_root (RESOLUTIONS P1): want bstr32",
            ),
            ("hub_ts_missing", _FIELDS[:4], "label head (RESOLUTIONS P1): want array of 5, found array of 4"),
            ("item_added", [*_FIELDS, 0], "label head (RESOLUTIONS P1): want array of 5, found array of 6"),
            (
                "as_map",
                dict(enumerate(_FIELDS, start=1)),
                "label head (RESOLUTIONS P1): want array, found map",
            ),
        )
    ),
)


# --- the envelopes


PROOF = hub_log.hashes(tree.prove_inclusion(TREE.lookup, INDEX, len(HEADS)))
GROWTH = hub_log.hashes(tree.prove_consistency(TREE.lookup, 3, len(HEADS)))
ENVELOPES = (
    envelope(
        "hub_proof_request",
        hub_log.HubProofRequest,
        Bad(
            "stream_seq_null",
            encode({1: 1, 2: cast.LABEL, 3: None}),
            DecodeError,
            "hub log proof request.stream_seq (RESOLUTIONS P1): want uint, found null",
        ),
        full=hub_log.HubProofRequest(label=cast.LABEL, stream_seq=StreamSeq(5)),
        bare=hub_log.HubProofRequest(label=cast.LABEL),
    ),
    envelope(
        "hub_proof_response",
        hub_log.HubProofResponse,
        Bad(
            "head_as_bytes",
            encode({1: 1, 2: _head(6).encode(), 3: INDEX, 4: [], 5: CHECKPOINT}),
            DecodeError,
            "label head (RESOLUTIONS P1): want array, found bstr",
        ),
        Bad(
            "checkpoint_as_text",
            encode({1: 1, 2: cbor2.loads(_head(6).encode()), 3: INDEX, 4: [], 5: CHECKPOINT.decode()}),
            DecodeError,
            "hub log proof response.checkpoint (RESOLUTIONS P1): want bstr, found tstr",
        ),
        full=hub_log.HubProofResponse(
            head=_head(6), index=INDEX, proof=PROOF, checkpoint=CHECKPOINT, server_version="0.0.1"
        ),
        bare=hub_log.HubProofResponse(head=_head(6), index=INDEX, proof=PROOF, checkpoint=CHECKPOINT),
    ),
    envelope(
        "hub_consistency_request",
        hub_log.HubConsistencyRequest,
        Bad(
            "old_size_negative",
            encode({1: 1, 2: -1}),
            DecodeError,
            "hub log consistency request.old_size (RESOLUTIONS P1): want uint, found int -1",
        ),
        full=hub_log.HubConsistencyRequest(old_size=3, new_size=7),
        bare=hub_log.HubConsistencyRequest(old_size=0),
    ),
    envelope(
        "hub_consistency_response",
        hub_log.HubConsistencyResponse,
        Bad(
            "hash_short",
            encode({1: 1, 2: 3, 3: 7, 4: [bytes(31)], 5: CHECKPOINT}),
            DecodeError,
            "hub log consistency response.proof (RESOLUTIONS P1): [0]: want NodeHash of 32 bytes",
        ),
        full=hub_log.HubConsistencyResponse(
            old_size=3, new_size=7, proof=GROWTH, checkpoint=CHECKPOINT, **BY
        ),
        bare=hub_log.HubConsistencyResponse(old_size=7, new_size=7, proof=(), checkpoint=CHECKPOINT),
    ),
)


# --- hub evidence


def judge_evidence(wire: bytes, context: Context) -> Any:
    """Verify the evidence against the pinned hub and, if there is one, the policy."""
    evidence = parse_evidence(wire)
    if evidence.encode() != wire:
        raise AssertionError("HubEvidence decodes what it does not encode")
    policy = parse_policy(context["policy"].encode()) if "policy" in context else None
    verdict = verify_evidence(evidence, pinned=HubId(unhex(context, "pinned")), policy=policy)
    value = {
        "leaf_hash": verdict.receipt.leaf_hash.hex(),
        "stream_seq": verdict.receipt.stream_seq,
        "upto_seq": verdict.head.upto_seq,
        "origin": verdict.checkpoint.head.origin,
        "size": verdict.checkpoint.head.size,
    }
    if verdict.cosigned is not None:
        value["witnesses"] = [witness.name.decode() for witness in verdict.cosigned.witnesses]
        value["quorum_at"] = verdict.cosigned.quorum_at
    return value


EVIDENCE = HubEvidence(
    identity=cast.identity(),
    receipt=LOG.receipts[4],
    proof=prove_inclusion(LOG.lookup, StreamSeq(5), 6),
    head=_head(6),
    index=INDEX,
    head_proof=PROOF,
    checkpoint=CHECKPOINT,
)
PINNED = {"pinned": cast.HUB_ID.hex()}
UNDER_BOTH = PINNED | {"policy": BOTH}
OWN_ORIGIN = "logs.example/hub"
HUB_LINE = f"log {NoteKey(OWN_ORIGIN, note.ED25519, cast.HUB.public).text}\n"


def _bent(**changes: Any) -> bytes:
    return dataclasses.replace(EVIDENCE, **changes).encode()


def _cosigned_late() -> bytes:
    """Return the checkpoint with a cosignature whose time is beyond 2^63 - 1."""
    text = TreeHead(ORIGIN, len(HEADS), TREE.roots[-1]).text
    time = 2**63
    message = f"cosignature/v1\ntime {time}\n{text}".encode()
    late = NoteSignature(NAMES[0], KEYS[0].key_id, time.to_bytes(8, "big") + cast.WITNESSES[0].sign(message))
    return Note(text, (note.sign_note(cast.HUB, ORIGIN, text), late)).encode()


HUB_EVIDENCE = Object(
    name="hub_evidence",
    judge=judge_evidence,
    wire=HubEvidence,
    good=(
        Good("without_a_policy", EVIDENCE.encode(), PINNED),
        Good("two_of_two", EVIDENCE.encode(), UNDER_BOTH),
        Good(
            "one_of_two",
            _bent(checkpoint=_note(1)),
            PINNED | {"policy": BOTH.replace("group both all", "group both any")},
        ),
        Good("quorum_none", _bent(checkpoint=_note()), PINNED | {"policy": "quorum none"}),
        Good(
            "own_origin",
            _bent(checkpoint=_note(0, 1, origin=OWN_ORIGIN), origin=OWN_ORIGIN),
            PINNED | {"policy": HUB_LINE + BOTH},
        ),
    ),
    bad=tuple(
        Bad(name, wire, error, match, context)
        for name, wire, error, match, context in (
            (
                "kind_other",
                encode(cbor2.loads(EVIDENCE.encode()) | {1: "veen-evidence"}),
                DecodeError,
                "hub evidence.kind (RESOLUTIONS P1)",
                PINNED,
            ),
            (
                "checkpoint_not_a_note",
                _bent(checkpoint=b"checkpoint"),
                DecodeError,
                "hub evidence.checkpoint (RESOLUTIONS P1): note (C2SP signed-note)",
                PINNED,
            ),
            (
                "pinned_other",
                EVIDENCE.encode(),
                IdentityError,
                "the pinned hub is 0000",
                {"pinned": "00" * 32},
            ),
            (
                "receipt_of_another_hub",
                _bent(receipt=cast.receipt(5, LOG.leaf(5), LOG.root(5), key=cast.OTHER_HUB)),
                SignatureError,
                "RECEIPT.hub_sig at stream_seq 5",
                PINNED,
            ),
            (
                "head_of_another_label",
                _bent(head=_other_head(7), index=3),
                EvidenceError,
                "the head is that of another label",
                PINNED,
            ),
            ("head_too_early", _bent(head=_head(2), index=0), EvidenceError, "head at 2 is before", PINNED),
            (
                "receipt_later_than_head",
                _bent(receipt=cast.receipt(5, LOG.leaf(5), LOG.root(5), hub_ts=_head(6).hub_ts + 1)),
                EvidenceError,
                "before that of the receipt",
                PINNED,
            ),
            (
                "receipt_contradicts_head",
                _bent(receipt=cast.receipt(6, LOG.leaf(6), LOG.root(5))),
                EvidenceError,
                "head and receipt at 6 differ in mmr_root or hub_ts",
                PINNED,
            ),
            (
                "proof_of_another_message",
                _bent(proof=prove_inclusion(LOG.lookup, StreamSeq(6), 6)),
                ProofError,
                "mmr_proof.leaf_hash (core §5.4)",
                PINNED,
            ),
            ("index_other", _bent(index=3), ProofError, "leaf 3 of 7 does not lead to the root", PINNED),
            ("index_beyond", _bent(index=7), ProofError, "leaf 7 is not in a tree of 7 leaves", PINNED),
            ("head_proof_short", _bent(head_proof=PROOF[:-1]), ProofError, "too short", PINNED),
            ("head_proof_long", _bent(head_proof=(*PROOF, PROOF[0])), ProofError, "too long", PINNED),
            (
                "checkpoint_of_another_size",
                _bent(checkpoint=_note(0, 1, size=6)),
                ProofError,
                "inclusion proof (RFC 6962 §2.1.1)",
                PINNED,
            ),
            (
                "checkpoint_of_another_hub",
                _bent(checkpoint=_note(0, 1, key=cast.OTHER_HUB)),
                SignatureError,
                "no key of the hub signed it",
                PINNED,
            ),
            (
                "origin_other",
                _bent(checkpoint=_note(0, 1, origin=OWN_ORIGIN)),
                SignatureError,
                "its origin is 'logs.example/hub'",
                PINNED,
            ),
            (
                "origin_not_in_the_policy",
                EVIDENCE.encode(),
                SignatureError,
                "does not name the log",
                PINNED | {"policy": HUB_LINE + BOTH},
            ),
            (
                "own_origin_not_in_the_policy",
                _bent(checkpoint=_note(0, 1, origin=OWN_ORIGIN), origin=OWN_ORIGIN),
                EvidenceError,
                "nothing says that it is the hub's one log",
                UNDER_BOTH,
            ),
            ("one_of_two_missing", _bent(checkpoint=_note(0)), QuorumError, "1 of 2 witnesses", UNDER_BOTH),
            (
                "cosignature_time_beyond_2_63",
                _bent(checkpoint=_cosigned_late()),
                SignatureError,
                "the signature of witness.example/one does not verify",
                UNDER_BOTH,
            ),
        )
    ),
)
OBJECTS = (LABEL_HEAD, *ENVELOPES, HUB_EVIDENCE)
