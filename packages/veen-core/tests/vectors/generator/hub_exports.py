"""Vectors of the files that tie exports to the hub log (RESOLUTIONS P1, ADR 0014)."""

from __future__ import annotations

import dataclasses
from typing import Any

from veen_core import hub_log
from veen_core.consistency import prove_consistency
from veen_core.errors import DecodeError, EvidenceError, ProofError, SignatureError, VeenError
from veen_core.hub_export import HubHead, HubManifest, verify_hub_head
from veen_core.ids import StreamSeq
from veen_core.tlog import tree

from . import cast
from .case import Bad, Context, Good, Object, decoded, read
from .crooked import encode
from .hub_log import CHECKPOINT, HEADS, INDEX, LOG, TREE

UPTO = HEADS[INDEX].upto_seq


def judge(wire: bytes, context: Context) -> Any:
    """Verify the head for an export of the label up to ``to_seq``."""
    to_seq = StreamSeq(context["to_seq"])
    found = read(HubHead, wire)
    signed = verify_hub_head(found, cast.identity(), cast.LABEL, to_seq, LOG.root(to_seq))
    return {"upto_seq": found.head.upto_seq, "origin": signed.head.origin, "size": signed.head.size}


AT_HEAD = HubHead(
    head=HEADS[INDEX],
    index=INDEX,
    proof=hub_log.hashes(tree.prove_inclusion(TREE.lookup, INDEX, len(HEADS))),
    checkpoint=CHECKPOINT,
)
BEFORE_HEAD = dataclasses.replace(AT_HEAD, consistency=prove_consistency(LOG.lookup, StreamSeq(5), UPTO))
OTHER = dataclasses.replace(
    AT_HEAD,
    head=HEADS[3],
    index=3,
    proof=hub_log.hashes(tree.prove_inclusion(TREE.lookup, 3, len(HEADS))),
)


def _bad(name: str, made: HubHead, error: type[VeenError], match: str, to_seq: int = UPTO) -> Bad:
    return Bad(name, made.encode(), error, match, {"to_seq": to_seq})


HUB_HEAD = Object(
    name="hub_head",
    judge=judge,
    wire=HubHead,
    good=(
        Good("at_the_end", AT_HEAD.encode(), {"to_seq": UPTO}),
        Good("after_the_end", BEFORE_HEAD.encode(), {"to_seq": 5}),
    ),
    bad=(
        _bad("label_other", OTHER, EvidenceError, "the head is that of another label"),
        _bad("without_consistency", AT_HEAD, EvidenceError, "not that of the label at entry 5", 5),
        _bad("consistency_from_elsewhere", BEFORE_HEAD, EvidenceError, "does not lead from to_seq", 4),
        _bad(
            "consistency_of_another_label",
            dataclasses.replace(BEFORE_HEAD, head=dataclasses.replace(HEADS[INDEX], mmr_root=LOG.root(5))),
            ProofError,
            "consistency",
            5,
        ),
        _bad(
            "head_changed",
            dataclasses.replace(AT_HEAD, head=dataclasses.replace(HEADS[INDEX], hub_ts=cast.BORN)),
            ProofError,
            "does not lead to the root",
        ),
        _bad("index_other", dataclasses.replace(AT_HEAD, index=3), ProofError, "does not lead to the root"),
        _bad(
            "checkpoint_unsigned",
            dataclasses.replace(AT_HEAD, checkpoint=CHECKPOINT.replace(b"veen.hub/", b"veen.huc/")),
            SignatureError,
            "no key of the hub signed it",
        ),
        _bad("checkpoint_not_a_note", dataclasses.replace(AT_HEAD, checkpoint=b""), DecodeError, "note"),
    ),
)
HUB_EXPORT = Object(
    name="hub_export",
    judge=decoded(HubManifest),
    wire=HubManifest,
    good=(Good("two_labels", HubManifest(hub_id=cast.HUB_ID, labels=2, size=len(HEADS)).encode()),),
    bad=(
        Bad(
            "size_missing",
            encode({1: 1, 2: cast.HUB_ID, 3: 2}),
            DecodeError,
            "hub export.size (ADR 0014): missing",
        ),
    ),
)
OBJECTS = (HUB_HEAD, HUB_EXPORT)
