"""Evidence of a result: receipts, inclusion under signed roots, hub checkpoints (query-api §6, P1, P13).

``build_evidence`` verifies what it collects; any failure fails the query (query-api §6.2, §6.3).

    matched event ── RECEIPT ── inclusion in the tree of the source ── RECEIPT of to_seq, which signs the root
                  ── (optional) label head in the hub log ── hub checkpoint ── cosignatures
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from veen_core import hub_identity
from veen_core.consistency import MmrConsistency
from veen_core.errors import DecodeError, VerificationError
from veen_core.hashing import H
from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import LabelHead
from veen_core.ids import HubId, NodeHash
from veen_core.receipt import Receipt
from veen_core.signatures import verify_all
from veen_core.wire import Wire, int_map
from veen_overlays.query.engine import QueryAnswer, SourceReceipt
from veen_overlays.query.errors import execution_failed
from veen_overlays.query.event import receipt_id
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.request.evidence_policy import EvidenceMode
from veen_overlays.query.result import inclusion, sampling
from veen_overlays.query.result.coverage import Prefix
from veen_overlays.query.verify.source_rules import KeysByTime, check_head, read_receipt, receipt_claims

SECTION = "query-api §6"


@int_map("query evidence.hub log", section="RESOLUTIONS P1")
@dataclass(frozen=True, slots=True, kw_only=True)
class HubLogLink(Wire):
    """The proofs that lead from a source's label to a hub checkpoint."""

    ver: Literal[1] = 1
    head: LabelHead
    """A head of the label in the hub log."""
    index: int
    """Index of ``head`` in the hub log."""
    head_proof: tuple[NodeHash, ...]
    checkpoint: bytes
    """The hub checkpoint, with its cosignatures."""
    consistency: MmrConsistency | None = None
    """Between the trees at ``head.upto_seq`` and at ``to_seq``, unless they are the same."""
    origin: str | None = None
    """The configured name of the hub log; absent: the default name of P1."""


@int_map("query evidence.source", section=SECTION)
@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEvidence(Wire):
    """The evidence of one source, in the order of the coverage."""

    head: bytes | None = None
    """The encoded RECEIPT of ``to_seq``, which signs the root; absent if the source has no entries."""
    receipts: tuple[bytes, ...] = ()
    """Encoded RECEIPTs of the verified events, ascending."""
    proof: bytes = b""
    """Their inclusion in the tree of ``to_seq`` leaves; see ``inclusion``."""
    link: HubLogLink | None = None


@int_map("query evidence", section=SECTION)
@dataclass(frozen=True, slots=True, kw_only=True)
class ResultEvidence(Wire):
    """All evidence of a result."""

    identities: tuple[HubIdentity, ...]
    """The hubs of the coverage, ascending by hub_id."""
    sources: tuple[SourceEvidence, ...]
    """One per element of the coverage."""
    matched: bytes | None = None
    """In mode "spot", the hashes of the receipts of all matched events, 32 bytes each, in the order of P11:
    a verifier recomputes the sample from them."""


class EvidenceSource(Protocol):
    """Where the evidence of an answer comes from: a view, an export, or proofs that a hub gave."""

    def head(self, prefix: Prefix) -> bytes | None:
        """Return the encoded RECEIPT of ``to_seq``; None if the prefix has no entries."""

    def proof(self, prefix: Prefix, seqs: Sequence[int]) -> bytes:
        """Return the inclusion proof of these entries in the tree of ``to_seq`` leaves.

        ``inclusion.prove_from_leaves`` and ``prove_from_nodes`` build it.
        """

    def link(self, prefix: Prefix) -> HubLogLink | None:
        """Return the proofs up to a hub checkpoint; None if no checkpoint is known."""


def chosen(descriptor: QueryDescriptor, sources: Sequence[SourceReceipt]) -> list[SourceReceipt]:
    """Return the receipts that the evidence policy verifies (query-api §6, P14)."""
    policy = descriptor.evidence
    if policy.mode == EvidenceMode.NONE:
        return []
    if policy.mode == EvidenceMode.FULL:
        return list(sources)
    assert policy.sample_rate is not None  # the descriptor's rules require it
    ids = [receipt_id(each.receipt) for each in sources]
    return [sources[at] for at in sampling.sampled(descriptor.query_id, ids, policy.sample_rate)]


def matched_hashes(descriptor: QueryDescriptor, sources: Sequence[SourceReceipt]) -> bytes | None:
    """Return the receipt hashes of all matched events, from which mode "spot" draws (P14); else None."""
    if descriptor.evidence.mode != EvidenceMode.SPOT:
        return None
    return b"".join(H(each.receipt) for each in sources)


def build_evidence(
    descriptor: QueryDescriptor,
    answer: QueryAnswer,
    source: EvidenceSource,
    identities: Mapping[HubId, HubIdentity],
) -> ResultEvidence:
    """Collect and verify the evidence of an answer; any failure fails the query (query-api §6.2, §6.3).

    ``identities`` has the keys of each hub in the coverage, already verified against the pinned hub_id.
    """
    try:
        return _build(descriptor, answer, source, identities)
    except (VerificationError, DecodeError) as exc:
        raise execution_failed(
            f"the evidence of the result does not verify (query-api §6): {exc.message}",
            "rebuild the view (--rebuild); if it fails again, keep the log as evidence against the hub",
        ) from exc


def _build(
    descriptor: QueryDescriptor,
    answer: QueryAnswer,
    source: EvidenceSource,
    identities: Mapping[HubId, HubIdentity],
) -> ResultEvidence:
    matched = sum(each.matched for each in answer.coverage)
    if descriptor.evidence.mode != EvidenceMode.NONE and len(answer.sources) != matched:
        raise execution_failed(
            f"the engine gave {len(answer.sources)} receipts for {matched} matched events (query-api §6)",
            "report it: the engine breaks its contract",
        )
    picked: dict[int, list[SourceReceipt]] = {}
    for each in chosen(descriptor, answer.sources):
        picked.setdefault(each.source, []).append(each)
    hubs = sorted({each.hub_id for each in answer.coverage})
    found = tuple(
        _of_source(prefix, source, picked.get(index, []), _keys_of(identities, prefix.hub_id))
        for index, prefix in enumerate(answer.coverage)
    )
    return ResultEvidence(
        identities=tuple(identities[hub] for hub in hubs),
        sources=found,
        matched=matched_hashes(descriptor, answer.sources),
    )


def _keys_of(identities: Mapping[HubId, HubIdentity], hub: HubId) -> KeysByTime:
    if (identity := identities.get(hub)) is None:
        raise execution_failed(
            f"the keys of hub {hub.hex()} are unknown, so its signatures cannot be verified (core §8.4)",
            "configure the hub's identity",
        )
    hub_identity.verify_identity(identity, pinned=hub)
    return KeysByTime(identity)


def _of_source(
    prefix: Prefix, source: EvidenceSource, picked: Sequence[SourceReceipt], keys: KeysByTime
) -> SourceEvidence:
    """Collect and verify the evidence of one source: signatures, then inclusion."""
    head = source.head(prefix)
    check_head(prefix, head, keys)
    if not picked:
        return SourceEvidence(head=head, link=source.link(prefix))
    receipts = list(_receipts(prefix, picked))
    verify_all(list(receipt_claims(keys, receipts, [each.receipt for each in picked])))
    seqs = [each.seq for each in picked]
    proof = source.proof(prefix, seqs)
    assert prefix.mmr_root is not None  # check_head: a prefix with entries has a root
    inclusion.verify_leaves(
        proof, seqs, [receipt.leaf_hash for receipt in receipts], prefix.to_seq, prefix.mmr_root
    )
    return SourceEvidence(
        head=head,
        receipts=tuple(each.receipt for each in picked),
        proof=proof,
        link=source.link(prefix),
    )


def _receipts(prefix: Prefix, picked: Sequence[SourceReceipt]) -> Iterator[Receipt]:
    for each in picked:
        receipt = read_receipt(prefix, each.receipt)
        if receipt.stream_seq != each.seq:
            raise VerificationError(f"the receipt of entry {each.seq} names entry {receipt.stream_seq}")
        yield receipt
