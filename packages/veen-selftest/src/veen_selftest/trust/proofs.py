"""Proofs of the hub log by request, and hub evidence in one file (P1, RFC 6962 §2.1)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement
from typing import Final

from veen_core.api import ProofRequest, ProofResponse
from veen_core.hashing import H
from veen_core.hub_evidence import EvidenceVerdict, HubEvidence, parse_evidence, verify_evidence
from veen_core.hub_log import (
    HubConsistencyRequest,
    HubConsistencyResponse,
    HubProofRequest,
    HubProofResponse,
)
from veen_core.ids import Label, StreamSeq
from veen_core.receipt import Receipt
from veen_core.tlog.policy import WitnessPolicy
from veen_core.wire import Wire
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.peers.hub_log_reader import PeerHubLogView, verify_checkpoint
from veen_selftest.peers.note_verifier import HubCheckpoint
from veen_selftest.peers.tree_verifier import leaf_hash, require_consistent, root_of_inclusion
from veen_selftest.runner.check import Check, require, require_equal
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.hub_setup import HUB_LOG
from veen_selftest.trust.coverage import head_of, size_of, write

PROOF_PATH: Final = "/v1/hublog/proof"
CONSISTENCY_PATH: Final = "/v1/hublog/consistency"
TURNS: Final = (3, 1, 4)
"""Messages per extension of the label that is proved."""
MAX_SIZES: Final = 9
"""Sizes of the hub log between which consistency proofs are asked for, in all pairs."""


def ask_proof(
    hub: HttpHub, label: Label, stream_seq: int | None = None
) -> tuple[HubProofResponse, HubCheckpoint]:
    """Ask for a label's head; require that its proof leads to the hub checkpoint of the answer."""
    seq = StreamSeq(stream_seq) if stream_seq is not None else None
    answer = hub.ask(PROOF_PATH, HubProofRequest(label=label, stream_seq=seq), HubProofResponse)
    checkpoint = verify_checkpoint(hub, answer.checkpoint)
    root = root_of_inclusion(leaf_hash(answer.head.encode()), answer.index, checkpoint.size, answer.proof)
    require_equal(
        root, checkpoint.root, f"root that the proof of entry {answer.index} leads to (RFC 6962 §2.1.1)"
    )
    require_equal(answer.head.label, label, "label of the head that was asked for")
    return answer, checkpoint


def _proof(context: CheckContext) -> None:
    """A label's newest head, and the first that covers a message, are proved against the hub checkpoint."""
    hub = context.hub(HUB_LOG)
    writer = context.writer(hub)
    start = size_of(hub)
    receipts = [write(context, writer, count)[0] for count in TURNS]
    newest, checkpoint = ask_proof(hub, writer.label)
    found = (bytes(newest.head.label), newest.head.upto_seq, bytes(newest.head.mmr_root), newest.head.hub_ts)
    last = head_of(receipts[-1])
    require_equal(found, (last.label, last.upto_seq, last.mmr_root, last.hub_ts), "newest head of the label")
    view = PeerHubLogView(hub, checkpoint)
    ends = [head.upto_seq for head in view.heads(start) if head.label == writer.label]
    for seq in range(1, last.upto_seq + 1):
        answer, _checkpoint = ask_proof(hub, writer.label, seq)
        covering = next((end for end in ends if end >= seq), None)
        require_equal(answer.head.upto_seq, covering, f"upto_seq of the first head that covers {seq} (P1)")
    _require_refusals(
        hub,
        PROOF_PATH,
        (
            ("a label without entries", HubProofRequest(label=Label(H(b"no such label"))), "E.NOT_FOUND"),
            (
                "an entry that does not exist",
                HubProofRequest(label=writer.label, stream_seq=StreamSeq(last.upto_seq + 1)),
                "E.NOT_FOUND",
            ),
            ("no label", b"\xa1\x01\x01", "E.BAD_REQUEST"),
            ("no CBOR", b"\xff", "E.BAD_REQUEST"),
        ),
    )


def _require_refusals(hub: HttpHub, path: str, cases: tuple[tuple[str, Wire | bytes, str], ...]) -> None:
    for what, body, code in cases:
        answer = hub.post(path, body)
        require(answer.status != 200, f"{path} with {what} was answered, and must be refused by {code}")
        status = 404 if code == "E.NOT_FOUND" else 400
        require_equal((answer.status, answer.error.code), (status, code), f"{path} with {what}")


def _consistency(context: CheckContext) -> None:
    """A consistency proof leads from the root of any size of the hub log to that of any larger size."""
    hub = context.hub(HUB_LOG)
    writer = context.writer(hub)
    write(context, writer)
    _receipt, view = write(context, writer)
    for old, new in combinations_with_replacement(sorted(_sizes(context, view.size)), 2):
        answer = hub.ask(
            CONSISTENCY_PATH, HubConsistencyRequest(old_size=old, new_size=new), HubConsistencyResponse
        )
        require_equal((answer.old_size, answer.new_size), (old, new), "sizes of a consistency proof")
        require_consistent(old, new, answer.proof, view.root_at(old), view.root_at(new))
    newest = hub.ask(CONSISTENCY_PATH, HubConsistencyRequest(old_size=view.size), HubConsistencyResponse)
    checkpoint = verify_checkpoint(hub, newest.checkpoint)
    require_equal(newest.new_size, checkpoint.size, "new_size, if it is not given (P1)")
    require_consistent(view.size, checkpoint.size, newest.proof, view.checkpoint.root, checkpoint.root)
    beyond = checkpoint.size + 1_000_000
    _require_refusals(
        hub,
        CONSISTENCY_PATH,
        (
            ("sizes in the wrong order", HubConsistencyRequest(old_size=2, new_size=1), "E.BAD_REQUEST"),
            ("a size to come", HubConsistencyRequest(old_size=1, new_size=beyond), "E.NOT_FOUND"),
            ("no size", b"\xa1\x01\x01", "E.BAD_REQUEST"),
        ),
    )


def _sizes(context: CheckContext, size: int) -> Iterator[int]:
    """Yield sizes of the hub log: the first, the last, and some at random."""
    yield from {0, 1, size - 1, size, *context.rng.sample(range(1, size), min(size - 1, MAX_SIZES - 4))}


def make_evidence(hub: HttpHub, receipt: Receipt) -> HubEvidence:
    """Gather what proves a message to a stranger: its receipt and every step to the hub checkpoint."""
    answer, checkpoint = ask_proof(hub, receipt.label, receipt.stream_seq)
    asked = ProofRequest(label=receipt.label, stream_seq=receipt.stream_seq, tree_size=answer.head.upto_seq)
    proof = hub.ask("/v1/proof", asked, ProofResponse).mmr_proof
    return HubEvidence(
        identity=hub.known.identity,
        receipt=receipt,
        proof=proof,
        head=answer.head,
        index=answer.index,
        head_proof=answer.proof,
        checkpoint=answer.checkpoint,
        origin=checkpoint.origin if hub.known.hub_log_origin is not None else None,
    )


def judge_offline(
    hub: HttpHub, evidence: HubEvidence, policy: WitnessPolicy | None = None
) -> EvidenceVerdict:
    """Verify evidence as a file: nothing but its bytes, the pinned hub_id and a policy."""
    return verify_evidence(parse_evidence(evidence.encode()), pinned=hub.known.identity.hub_id, policy=policy)


def _evidence(context: CheckContext) -> None:
    """Receipt, label head and hub checkpoint make one file that proves each message offline (P1)."""
    hub = context.hub(HUB_LOG)
    writer = context.writer(hub)
    receipts = []
    for count in TURNS:
        receipts += hub.accept_many(writer.many(count))
        write(context, writer)
    for receipt in receipts:
        verdict = judge_offline(hub, make_evidence(hub, receipt))
        require_equal(verdict.receipt, receipt, "the receipt that the evidence proves")


CHECKS: Final = (
    Check("hub-log.proof", "P1, RFC 6962", _proof),
    Check("hub-log.consistency", "P1, RFC 6962", _consistency),
    Check("hub-log.evidence", "P1", _evidence),
)
