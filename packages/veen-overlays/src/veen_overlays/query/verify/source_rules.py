"""The rules of one source: its receipts, its signed root and its link to a hub checkpoint (P1, P11, P13).

Each function raises ``VerificationError`` or ``DecodeError``, with the source's name in the message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from veen_core import hub_log, stream
from veen_core.consistency import verify_consistency
from veen_core.errors import DecodeError, EvidenceError, VerificationError
from veen_core.hashing import U64_MAX
from veen_core.hub_evidence import check_log_name
from veen_core.hub_identity import HubIdentity, receipt_claim
from veen_core.ids import Epoch, HubPk, MmrRoot, UnixTime
from veen_core.receipt import Receipt
from veen_core.signatures import SignatureClaim, verify_one
from veen_core.tlog import tree
from veen_core.tlog.policy import Cosigned, WitnessPolicy
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_overlays.query.result.coverage import Prefix

if TYPE_CHECKING:
    from veen_overlays.query.result.evidence import HubLogLink


class KeysByTime:
    """The keys of a hub by time; receipts of one second share the lookup."""

    def __init__(self, identity: HubIdentity) -> None:
        self.identity = identity
        self._active: dict[UnixTime, list[HubPk]] = {}

    def active_at(self, hub_ts: UnixTime) -> list[HubPk]:
        """Return the keys that were active at a time (core §8.4)."""
        if (keys := self._active.get(hub_ts)) is None:
            keys = self._active[hub_ts] = [key.hub_pk for key in self.identity.active_at(hub_ts)]
        return keys


def named(prefix: Prefix) -> str:
    """Return the name of a source in errors."""
    epoch = f", epoch {prefix.epoch}" if prefix.epoch else ""
    return f"stream {prefix.stream!r} at hub {prefix.hub_id.hex()[:16]}…{epoch}"


def check_label(prefix: Prefix, name: str) -> None:
    """Refuse a source whose label does not belong to its stream; ``name`` is the stream's name at its hub.

    Otherwise an executor could answer from another stream of the same hub (core §2, B12).
    """
    derived = stream.label(
        stream.routing_key(prefix.hub_id), stream.stream_id(name), Epoch(min(prefix.epoch, U64_MAX))
    )
    if prefix.label != derived:
        raise EvidenceError(
            f"{named(prefix)}: the label of the coverage does not belong to this stream (core §2)",
            action="if the hub of origin calls the stream by another name, give that name (aliases)",
        )


def read_receipt(prefix: Prefix, wire: bytes) -> Receipt:
    """Decode the receipt of an entry of a source; refuse one of another label or outside the range (P13)."""
    try:
        receipt = Receipt.decode(wire)
    except DecodeError as exc:
        raise exc.within(named(prefix)) from None
    if receipt.label != prefix.label:
        raise EvidenceError(
            f"{named(prefix)}: the receipt of entry {receipt.stream_seq} belongs to another label "
            "(RESOLUTIONS P11)"
        )
    if not prefix.from_seq <= receipt.stream_seq <= prefix.to_seq:
        raise EvidenceError(
            f"{named(prefix)}: entry {receipt.stream_seq} is outside the coverage, {prefix.from_seq} to "
            f"{prefix.to_seq} (RESOLUTIONS P13)"
        )
    return receipt


def receipt_claims(
    keys: KeysByTime, receipts: Sequence[Receipt], wires: Sequence[bytes]
) -> Iterator[SignatureClaim]:
    """Yield the signatures of receipts, to be verified together (core §4.3, §8.4)."""
    for receipt, wire in zip(receipts, wires, strict=True):
        yield receipt_claim(keys.active_at(receipt.hub_ts), receipt, wire)


def check_head(prefix: Prefix, head: bytes | None, keys: KeysByTime) -> Receipt | None:
    """Verify that the hub signed the root at the end of a source (P13).

    Return the receipt that signs it; None for a source without entries.
    """
    if prefix.mmr_root is None or not prefix.to_seq:
        if head is not None or prefix.mmr_root is not None or prefix.size:
            raise EvidenceError(
                f"{named(prefix)}: a source without entries has neither root nor receipt (RESOLUTIONS P13)"
            )
        return None
    if head is None:
        raise EvidenceError(
            f"{named(prefix)}: the receipt of entry {prefix.to_seq}, which signs the root, is missing "
            "(RESOLUTIONS P13)"
        )
    receipt = read_receipt(prefix, head)
    if receipt.stream_seq != prefix.to_seq:
        raise EvidenceError(
            f"{named(prefix)}: the coverage ends at entry {prefix.to_seq}, but the receipt that signs its "
            f"root is that of entry {receipt.stream_seq} (RESOLUTIONS P13)"
        )
    if receipt.mmr_root != prefix.mmr_root:
        raise EvidenceError(
            f"{named(prefix)}: the hub signed another root for the first {prefix.to_seq} entries than the "
            "coverage names (RESOLUTIONS P13)"
        )
    verify_one(receipt_claim(keys.active_at(receipt.hub_ts), receipt, head))
    return receipt


def check_link(
    prefix: Prefix, link: HubLogLink, identity: HubIdentity, policy: WitnessPolicy | None = None
) -> tuple[SignedHead, Cosigned | None]:
    """Verify the link from a source to a hub checkpoint and, with a policy, its cosignatures (P1, P2)."""
    try:
        return _check_link(prefix, link, identity, policy)
    except VerificationError as exc:
        raise EvidenceError(f"{named(prefix)}: {exc.message}", action=exc.action) from None


def _check_link(
    prefix: Prefix, link: HubLogLink, identity: HubIdentity, policy: WitnessPolicy | None
) -> tuple[SignedHead, Cosigned | None]:
    head = link.head
    if head.label != prefix.label or prefix.mmr_root is None:
        raise EvidenceError("the label head belongs to another label (RESOLUTIONS P1)")
    _check_same_log(prefix, prefix.mmr_root, link)
    signed = parse_signed_head(link.checkpoint)
    tree.verify_inclusion(
        tree.leaf_hash(head.encode()), link.index, signed.head.size, link.head_proof, signed.head.root
    )
    origin = link.origin if link.origin is not None else hub_log.origin_of(identity.hub_id)
    hub_log.verify_hub_checkpoint(identity, signed, origin=origin, since=head.hub_ts)
    if prefix.checkpoint != signed.head.text:
        raise EvidenceError(
            "the coverage names another hub checkpoint than the evidence has (RESOLUTIONS P13)"
        )
    if policy is None:
        return signed, None
    check_log_name(identity, origin, policy, identity.hub_id, None)
    return signed, policy.check(signed, log_keys=hub_log.note_keys(identity, origin))


def _check_same_log(prefix: Prefix, root: MmrRoot, link: HubLogLink) -> None:
    """Refuse a label head that does not belong to the same history as the end of the source (B11)."""
    head, proof = link.head, link.consistency
    if head.upto_seq == prefix.to_seq:
        if head.mmr_root != root or proof is not None:
            raise EvidenceError(
                f"the label head in the hub log has another root at entry {prefix.to_seq} (RESOLUTIONS P1)"
            )
        return
    smaller, larger = sorted(((int(head.upto_seq), head.mmr_root), (prefix.to_seq, root)))
    if proof is None or (proof.from_seq, proof.to_seq) != (smaller[0], larger[0]):
        raise EvidenceError(
            f"a consistency proof between entries {smaller[0]} and {larger[0]} is missing (RESOLUTIONS B11)"
        )
    verify_consistency(proof, smaller[1], larger[1])
