"""The header of a bundle: what it contains, and the evidence that the hub committed to it (P6, AGB0 4.4).

A bundle is a range of one label's log. ``bundle_id`` is the hash of the header, and the header has the hash
of every part: a change of any payload, metadata or proof changes bundle_id (AGB0 4.4). The bridge signs it.

    part table ── events ── RECEIPTs ── root after ── head of the label ── hub log ── hub checkpoint

A bundle without events is a heartbeat: the bridge looked, and the label had not grown.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, Literal

from veen_core import hub_log, stream
from veen_core.checkpoint import LabelOrigin
from veen_core.consistency import MmrConsistency
from veen_core.hashing import Ht
from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import LabelHead
from veen_core.ids import (
    BundleId,
    ClientId,
    Epoch,
    FixedBytes,
    HubId,
    Label,
    MmrRoot,
    NodeHash,
    ProfileId,
    Signature,
    StreamId,
    StreamSeq,
    UnixTime,
)
from veen_core.keys import SigningKey
from veen_core.limits import DEFAULT_LIMITS
from veen_core.profile import Profile
from veen_core.tlog.tree_head import SignedHead, parse_signed_head
from veen_core.wire import Wire, array, int_map

KIND: Final = "veen-bundle"
SECTION: Final = "RESOLUTIONS P6"
MAX_PARTS: Final = 1_024
"""Most parts of one bundle. A header has at most 64 KiB of rows, so every part has room for it."""
MAX_NAME_BYTES: Final = 1_024
"""Longest name of a stream, in UTF-8."""


class PartDigest(FixedBytes):
    """SHA-256 of a part's content: everything in its file before the trailer."""

    __slots__ = ()


class AttachmentRule(enum.StrEnum):
    """Which attachments a bundle contains."""

    OPENED = "opened"
    """The attachments of every message that the bridge could open: only an opened message names them."""
    OMITTED = "omitted"


@array("bundle counts", section=SECTION)
@dataclass(frozen=True, slots=True, kw_only=True)
class BundleCounts(Wire):
    """Totals over all parts of a bundle."""

    events: int
    event_bytes: int
    """Bytes of all MSGs and RECEIPTs."""
    attachments: int
    attachment_bytes: int
    unopened: int
    """Messages that the bridge could not open: their attachments, if any, are not in the bundle."""


@array("part row", section=SECTION)
@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow(Wire):
    """One part: its events, and size and hash of its content. The first row is that of part 1."""

    first_seq: StreamSeq
    last_seq: StreamSeq
    """``first_seq - 1`` if the part has no events."""
    attachments: int
    index_size: int
    """Bytes of the ``PartIndex`` at the end of the content."""
    size: int
    """Bytes of the content."""
    digest: PartDigest


@int_map("head proof", section=SECTION)
@dataclass(frozen=True, slots=True, kw_only=True)
class HeadProof(Wire):
    """The label's head in the hub log, and its inclusion in the hub checkpoint (P1)."""

    head: LabelHead
    index: int
    proof: tuple[NodeHash, ...]
    consistency: MmrConsistency | None = None
    """Proof that the tree of ``to_seq`` entries is a prefix of the head's tree; absent if both are the same
    (B11)."""


@int_map("bundle header", section=SECTION)
@dataclass(frozen=True, slots=True, kw_only=True)
class BundleHeader(Wire):
    """Range, evidence and parts of a bundle. Every part carries the header, signed by the bridge."""

    kind: Literal["veen-bundle"] = KIND
    ver: Literal[1] = 1
    prev_bundle_id: BundleId
    """The bundle before this one of the same source hub, stream and bridge; ``NO_BUNDLE`` if none."""
    prev_in_label: BundleId
    """The bundle that ends at ``from_seq - 1`` of this label; without epochs, the bundle before this one."""
    identity: HubIdentity
    """The source hub: its hub_id and its keys."""
    profile: Profile
    stream: str
    """Name of the stream, or its id in 64 hex digits (B12)."""
    epoch: Epoch
    label: Label
    from_seq: StreamSeq
    to_seq: StreamSeq
    """``from_seq - 1`` in a heartbeat."""
    from_ts: UnixTime
    """hub_ts of the first event; in a heartbeat that of the label's head, or 0 if the label is empty."""
    to_ts: UnixTime
    counts: BundleCounts
    root_before: MmrRoot
    peaks_before: tuple[NodeHash, ...]
    """Peaks of the tree of ``from_seq - 1`` entries, in increasing height."""
    root_after: MmrRoot
    checkpoint: bytes
    """The hub checkpoint, with its cosignatures."""
    attachments: AttachmentRule
    bridge_id: ClientId
    """Public key of the bridge, which signs bundle_id."""
    exported_at: UnixTime
    """Time of the source hub when the export began."""
    parts: tuple[PartRow, ...]
    head: HeadProof | None = None
    """Absent if the label has no entry."""
    origin: str | None = None
    """The configured name of the hub log; None: the default name of P1."""

    @property
    def hub_id(self) -> HubId:
        return self.identity.hub_id

    @property
    def profile_id(self) -> ProfileId:
        return self.profile.profile_id

    @property
    def stream_id(self) -> StreamId:
        return stream.stream_id(self.stream)

    @property
    def is_heartbeat(self) -> bool:
        return self.to_seq < self.from_seq

    @property
    def log_name(self) -> str:
        """Name of the hub log that the hub checkpoint belongs to."""
        return self.origin if self.origin is not None else hub_log.origin_of(self.hub_id)

    @property
    def signed_head(self) -> SignedHead:
        return parse_signed_head(self.checkpoint)

    @property
    def label_origin(self) -> LabelOrigin:
        """How the label follows from hub, stream and epoch (H4)."""
        return LabelOrigin(
            routing_key=stream.routing_key(self.hub_id),
            stream_id=self.stream_id,
            epoch_sec=self.profile.epoch_sec,
            max_skew_sec=DEFAULT_LIMITS.max_epoch_skew_sec,
        )


def bundle_id(header: BundleHeader) -> BundleId:
    """Return the id of a bundle: the hash of its header, which has the hash of every part (P6)."""
    return BundleId(Ht("veen/bundle", header.encode()))


def sign_bundle(key: SigningKey, header: BundleHeader) -> Signature:
    """Return the bridge's signature over bundle_id (P6)."""
    return key.sign(bundle_id(header))
