"""Hub evidence: one file that proves where a message is in the logs of a hub (P1, P2).

    MSG hash ── RECEIPT ── inclusion under the label's head ── the head's inclusion in the hub log
             ── hub checkpoint ── cosignatures of witnesses

A verifier needs the hub_id, and a witness policy if it does not trust the hub.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from veen_core import hub_identity, hub_log
from veen_core.errors import DecodeError, EvidenceError
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
MAX_EVIDENCE_BYTES: Final = 524_288
"""Four times the largest note; usual evidence has a few KiB."""


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
    """The configured name of the hub log; None: the default name of P1."""

    @property
    def signed_head(self) -> SignedHead:
        return parse_signed_head(self.checkpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceVerdict:
    """The facts that valid evidence proves."""

    receipt: Receipt
    head: LabelHead
    checkpoint: SignedHead
    cosigned: Cosigned | None
    """The witnesses that cosigned; None without a policy, since then only the hub's signature is verified."""


def verify_evidence(
    evidence: HubEvidence,
    *,
    pinned: HubId | None = None,
    policy: WitnessPolicy | None = None,
    origin: str | None = None,
    known: HubIdentity | None = None,
) -> EvidenceVerdict:
    """Verify every step from the message to the cosignatures, in this order; each error names its step.

    Without ``pinned`` the evidence proves the message for the hub that it names, which may be any hub. With a
    ``policy``, the log must be the hub's one log: P1's, one that the policy names, or ``origin``. ``known``
    replaces the evidence's own record of the hub's keys.
    """
    hub_identity.verify_identity(evidence.identity, pinned=pinned)
    if known is not None:
        hub_identity.verify_identity(known, pinned=evidence.identity.hub_id)
    identity = known or evidence.identity
    receipt, head = evidence.receipt, evidence.head
    hub_identity.verify_receipt(identity, receipt)
    _check_head(receipt, head)
    verify_inclusion(evidence.proof, head.mmr_root, receipt.stream_seq, receipt.leaf_hash, head.upto_seq)
    signed = evidence.signed_head
    tree.verify_inclusion(
        tree.leaf_hash(head.encode()), evidence.index, signed.head.size, evidence.head_proof, signed.head.root
    )
    name = evidence.origin if evidence.origin is not None else hub_log.origin_of(identity.hub_id)
    hub_log.verify_hub_checkpoint(identity, signed, origin=name, since=head.hub_ts)
    cosigned = None
    if policy is not None:
        check_log_name(identity, name, policy, pinned, origin)
        cosigned = policy.check(signed, log_keys=hub_log.note_keys(identity, name))
    return EvidenceVerdict(receipt=receipt, head=head, checkpoint=signed, cosigned=cosigned)


def _check_head(receipt: Receipt, head: LabelHead) -> None:
    """Raise ``EvidenceError`` unless the head may cover the receipt's message (P1, H3)."""
    if head.label != receipt.label:
        raise EvidenceError("the head is that of another label than the receipt (RESOLUTIONS P1)")
    if head.upto_seq < receipt.stream_seq:
        raise EvidenceError(
            f"the label's head at {head.upto_seq} is before the message at {receipt.stream_seq} "
            "(RESOLUTIONS P1)"
        )
    if head.hub_ts < receipt.hub_ts:
        raise EvidenceError(
            f"the label's head has hub_ts {head.hub_ts}, before that of the receipt, {receipt.hub_ts} "
            "(RESOLUTIONS P1, H3)"
        )
    if head.upto_seq == receipt.stream_seq and (head.mmr_root, head.hub_ts) != (
        receipt.mmr_root,
        receipt.hub_ts,
    ):
        raise EvidenceError(
            f"head and receipt at {head.upto_seq} differ in mmr_root or hub_ts (RESOLUTIONS P1)"
        )


def check_log_name(
    identity: HubIdentity, name: str, policy: WitnessPolicy, pinned: HubId | None, origin: str | None
) -> None:
    """Raise ``EvidenceError`` if nothing ties a log with a configured name to the hub.

    A hub could keep a second log under another name and have it cosigned. And an attacker could list the
    hub's key as the successor of its own key, because an endorsement needs no consent of the successor.
    """
    if name == hub_log.origin_of(identity.hub_id):
        return  # the name contains hub_id
    named = {log.key.public for log in policy.logs if log.key.name == name}
    if name != origin and not policy.logs:
        raise EvidenceError(
            f"the log is named {name!r}, and nothing says that it is the hub's one log (RESOLUTIONS P1)",
            action="add a log line to the witness policy",
        )
    if pinned is None and identity.hub_keys[0].hub_pk not in named:
        raise EvidenceError(
            f"nothing ties the log {name!r} to hub {identity.hub_id.hex()} (RESOLUTIONS P1)",
            action="pin the hub_id",
        )


def parse_evidence(data: bytes) -> HubEvidence:
    """Decode a file of evidence, and check that its hub checkpoint can be parsed."""
    if len(data) > MAX_EVIDENCE_BYTES:
        raise DecodeError(
            f"has {len(data)} bytes, at most {MAX_EVIDENCE_BYTES} are allowed",
            where="hub evidence (RESOLUTIONS P1)",
        )
    evidence = HubEvidence.decode(data)
    try:
        _ = evidence.signed_head
    except DecodeError as exc:
        raise exc.within("hub evidence.checkpoint (RESOLUTIONS P1)") from None
    return evidence
