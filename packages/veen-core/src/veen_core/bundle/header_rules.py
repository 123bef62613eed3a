"""The rules of a bundle's header: its form, the bridge's signature, the proofs to the hub checkpoint (P6).

``verify_header`` checks, in this order:

1. the source hub is the pinned one, and its keys chain to its hub_id (core §8.4);
2. the bridge is the expected one, and its key signed bundle_id;
3. the label is that of stream and epoch (core §2);
4. range, roots, counts and part table agree with each other;
5. the tree after the range is the label's head, or a prefix of its tree (B11);
6. the head is in the hub log, and the hub signed the hub checkpoint (P1);
7. with a witness policy, a quorum cosigned the hub checkpoint (P2).

``verifier`` checks the events.
"""

from __future__ import annotations

from dataclasses import dataclass

from veen_core import hub_evidence, hub_identity, hub_log
from veen_core.bundle.header import (
    MAX_NAME_BYTES,
    MAX_PARTS,
    AttachmentRule,
    BundleHeader,
    HeadProof,
    bundle_id,
)
from veen_core.bundle.part import MAGIC, MAX_INDEX_BYTES, MAX_INDEXED_ATTACHMENTS, BundleError
from veen_core.consistency import verify_consistency
from veen_core.hub_identity import HubIdentity
from veen_core.ids import ClientId, HubId, Signature, UnixTime
from veen_core.keys import verify
from veen_core.mmr import root_of
from veen_core.tlog import tree
from veen_core.tlog.policy import Cosigned, WitnessPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleTrust:
    """Facts that a verifier of bundles has from other sources."""

    pinned: HubId | None = None
    """The source hub; without it, the bundle proves something about the hub that it names."""
    bridge: ClientId | None = None
    """The bridge; without it, any key may have signed, and the header names it."""
    policy: WitnessPolicy | None = None
    origin: str | None = None
    """The configured name of the hub log; None: the default name of P1."""
    known: HubIdentity | None = None
    """A newer record of the source hub's keys than the bundle has."""


def verify_header(header: BundleHeader, signature: Signature, trust: BundleTrust) -> Cosigned | None:
    """Verify all that needs only the header; return the cosignatures if ``trust`` has a witness policy."""
    hub_identity.verify_identity(header.identity, pinned=trust.pinned)
    if trust.known is not None:
        hub_identity.verify_identity(trust.known, pinned=header.hub_id)
    if trust.bridge is not None and header.bridge_id != trust.bridge:
        raise BundleError(
            f"the bundle was made by bridge {header.bridge_id.hex()}, not by {trust.bridge.hex()}"
        )
    verify(header.bridge_id, bundle_id(header), signature, "bundle signature of the bridge (RESOLUTIONS P6)")
    _check_label(header)
    _check_range(header)
    _check_parts(header)
    signed = header.signed_head
    identity = trust.known or header.identity
    since: UnixTime | None = None
    if header.head is not None:
        _check_head(header, header.head)
        since = header.head.head.hub_ts
        leaf = tree.leaf_hash(header.head.head.encode())
        tree.verify_inclusion(leaf, header.head.index, signed.head.size, header.head.proof, signed.head.root)
    elif header.to_seq:
        raise BundleError(f"the header has no head of the label that covers entry {header.to_seq}")
    hub_log.verify_hub_checkpoint(identity, signed, origin=header.log_name, since=since)
    if trust.policy is None:
        return None
    hub_evidence.check_log_name(identity, header.log_name, trust.policy, trust.pinned, trust.origin)
    return trust.policy.check(signed, log_keys=hub_log.note_keys(identity, header.log_name))


def _check_label(header: BundleHeader) -> None:
    if not header.stream or len(header.stream.encode()) > MAX_NAME_BYTES:
        raise BundleError(f"the stream's name is empty or longer than {MAX_NAME_BYTES} bytes")
    if header.profile.epoch_sec == 0 and header.epoch != 0:
        raise BundleError(f"epoch is {header.epoch}, but the profile has no epochs", "core §3.2")
    if header.label_origin.label_at(header.epoch) != header.label:
        raise BundleError("the label is not that of the stream in this epoch of this hub", "core §2")


def _check_range(header: BundleHeader) -> None:
    if header.from_seq < 1 or header.to_seq < header.from_seq - 1:
        raise BundleError(f"entries {header.from_seq} to {header.to_seq} are no range")
    if len(header.peaks_before) != (header.from_seq - 1).bit_count():
        raise BundleError(f"{len(header.peaks_before)} peaks are not those of {header.from_seq - 1} entries")
    if root_of(header.peaks_before) != header.root_before:
        raise BundleError("root_before is not the root of peaks_before", "core §5.1")
    if header.is_heartbeat and header.root_after != header.root_before:
        raise BundleError("a heartbeat has no events, but its two roots differ")
    if header.from_ts > header.to_ts:
        raise BundleError(f"hub_ts goes back from {header.from_ts} to {header.to_ts}", "RESOLUTIONS H3")
    if header.counts.events != header.to_seq - header.from_seq + 1:
        raise BundleError(
            f"counts has {header.counts.events} events, but the range is {header.from_seq} to {header.to_seq}"
        )


def _check_parts(header: BundleHeader) -> None:
    if not 1 <= len(header.parts) <= MAX_PARTS:
        raise BundleError(f"{len(header.parts)} parts; want 1 to {MAX_PARTS}")
    last, attachments = header.from_seq - 1, 0
    for number, row in enumerate(header.parts, start=1):
        if row.first_seq != last + 1 or row.last_seq < row.first_seq - 1:
            raise BundleError(
                f"entries {row.first_seq} to {row.last_seq} do not follow entry {last}", part=number
            )
        if row.attachments > MAX_INDEXED_ATTACHMENTS or row.index_size > MAX_INDEX_BYTES:
            raise BundleError("the index is larger than allowed", part=number)
        if row.size < len(MAGIC) + row.index_size:
            raise BundleError(f"{row.size} bytes are too few for the index", part=number)
        last, attachments = row.last_seq, attachments + row.attachments
    if last != header.to_seq:
        raise BundleError(f"the part table ends at entry {last}, the bundle at {header.to_seq}")
    if attachments != header.counts.attachments:
        raise BundleError(f"the parts have {attachments} attachments, counts has {header.counts.attachments}")
    if header.attachments is AttachmentRule.OMITTED and (attachments or header.counts.unopened):
        raise BundleError("the bundle says that it omits attachments, but it counts some")


def _check_head(header: BundleHeader, shown: HeadProof) -> None:
    """Check that the tree after the range is the head's, or a prefix of it (P1, B11)."""
    head, clause = shown.head, "RESOLUTIONS P1"
    if head.label != header.label:
        raise BundleError("the head in the hub log is that of another label", clause)
    if head.upto_seq < header.to_seq or head.hub_ts < header.to_ts:
        raise BundleError(
            f"the label's head at {head.upto_seq} is before the bundle's last entry {header.to_seq}", clause
        )
    if head.upto_seq == header.to_seq:
        if (head.mmr_root, head.hub_ts) != (header.root_after, header.to_ts):
            raise BundleError(f"head and bundle differ in root or hub_ts at {header.to_seq}", clause)
        if shown.consistency is not None:
            raise BundleError("a consistency proof between equal trees", "B11")
    elif header.is_heartbeat:
        raise BundleError(
            f"a heartbeat after entry {header.to_seq}, but the label has {head.upto_seq} entries", clause
        )
    else:
        sizes = header.to_seq, head.upto_seq
        proof = shown.consistency
        if proof is None or (proof.from_seq, proof.to_seq) != sizes:
            raise BundleError(f"the consistency proof from {sizes[0]} to {sizes[1]} is missing", "B11")
        verify_consistency(proof, header.root_after, head.mmr_root)
