"""Evidence that travels alone: one file that proves a message to somebody who trusts nobody's word (P1, P2).

    MSG hash ── RECEIPT ── inclusion under the label's head ── the head's inclusion in the hub log
             ── hub checkpoint ── cosignatures of witnesses

A reader needs the hub_id, and a witness policy if the hub itself is not trusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from veen_core import hub_identity, hub_log
from veen_core.errors import DecodeError, EvidenceError, SignatureError
from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import LabelHead
from veen_core.ids import HubId, NodeHash
from veen_core.proof import MmrProof, verify_inclusion
from veen_core.receipt import Receipt
from veen_core.tlog import tree
from veen_core.tlog.policy import Cosigned, WitnessPolicy
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_core.wire import Wire, int_map

KIND: Final = "veen-hub-evidence"


@int_map("hub evidence", section="RESOLUTIONS P1")
@dataclass(frozen=True, slots=True, kw_only=True)
class HubEvidence(Wire):
    """A message's receipt and every step from it to the hub checkpoint."""

    kind: Literal["veen-hub-evidence"] = KIND
    ver: Literal[1] = 1
    identity: HubIdentity
    receipt: Receipt
    proof: MmrProof
    """Inclusion of the message under ``head``."""
    head: LabelHead
    index: int
    """Place of ``head`` in the hub log."""
    head_proof: tuple[NodeHash, ...]
    checkpoint: bytes
    """The hub checkpoint, with its cosignatures."""
    origin: str | None = None
    """Name of the hub log, if the hub is configured with another than P1's."""

    @property
    def signed_head(self) -> SignedHead:
        return parse_signed_head(self.checkpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What valid evidence proves."""

    receipt: Receipt
    head: LabelHead
    checkpoint: SignedHead
    cosigned: Cosigned | None
    """Who cosigned; None if no policy was given, so that the hub's own signature is all there is."""


def verify_evidence(
    evidence: HubEvidence, *, pinned: HubId | None = None, policy: WitnessPolicy | None = None
) -> Verdict:
    """Verify every step, in the order of the drawing above; each error names its step.

    Without ``pinned`` the evidence proves something about the hub that it names, whoever that is.
    """
    identity, receipt, head = evidence.identity, evidence.receipt, evidence.head
    hub_identity.verify_identity(identity, pinned=pinned)
    hub_identity.verify_receipt(identity, receipt)
    if head.label != receipt.label:
        raise EvidenceError("the head is that of another label than the receipt (RESOLUTIONS P1)")
    if head.upto_seq < receipt.stream_seq:
        raise EvidenceError(
            f"the label's head at {head.upto_seq} is before the message at {receipt.stream_seq} "
            "(RESOLUTIONS P1)"
        )
    verify_inclusion(evidence.proof, head.mmr_root, receipt.stream_seq, receipt.leaf_hash, head.upto_seq)
    signed = evidence.signed_head
    tree.verify_inclusion(
        tree.leaf_hash(head.encode()), evidence.index, signed.head.size, evidence.head_proof, signed.head.root
    )
    origin = evidence.origin if evidence.origin is not None else hub_log.origin_of(identity.hub_id)
    hub_log.verify_hub_checkpoint(identity, signed, origin=origin, since=head.hub_ts)
    cosigned = None
    if policy is not None:
        _check_named(identity, origin, policy)
        keys = [hub_log.note_key(key, origin) for key in identity.hub_keys]
        cosigned = policy.check(signed, log_keys=keys)
    return Verdict(receipt=receipt, head=head, checkpoint=signed, cosigned=cosigned)


def _check_named(identity: HubIdentity, origin: str, policy: WitnessPolicy) -> None:
    """Raise unless the policy, if it names logs, names one that is this hub's."""
    if not policy.logs:
        return
    known = {key.hub_pk for key in identity.hub_keys}
    if not any(log.key.name == origin and log.key.public in known for log in policy.logs):
        raise SignatureError(f"the policy does not name the log {origin} (C2SP tlog-policy)")


def parse_evidence(data: bytes) -> HubEvidence:
    """Decode a file of evidence, and check that its hub checkpoint can be parsed."""
    evidence = HubEvidence.decode(data)
    try:
        _ = evidence.signed_head
    except DecodeError as exc:
        raise exc.within("hub evidence.checkpoint (RESOLUTIONS P1)") from None
    return evidence
