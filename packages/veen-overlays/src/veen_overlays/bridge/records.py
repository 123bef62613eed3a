"""The records of an air-gap bridge and the audit streams that carry them (products-spec-1 §4.5, §4.6, P7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from veen_core.attached import ATTACHED_NAME, AttachmentRef
from veen_core.ciphertext import leaf_hash
from veen_core.errors import DecodeError
from veen_core.ids import (
    BundleId,
    ClientId,
    ClientSeq,
    CtHash,
    FixedBytes,
    HubId,
    Label,
    MmrRoot,
    NodeHash,
    ProfileId,
    SchemaId,
    StreamId,
    StreamSeq,
    UnixTime,
)
from veen_core.msg import Msg
from veen_core.receipt import Receipt
from veen_core.wire import Wire, text_map
from veen_overlays.schema.record import Record, RecordRule, record

ONLINE_LOG: Final = "bridge/online/log"
"""The audit stream of the source zone (products-spec-1 §2.2)."""
OFFLINE_LOG: Final = "bridge/offline/log"
"""The audit stream of the target zone (products-spec-1 §2.2)."""

ImportMode = Literal["wrap", "reseal"]


class PartsHash(FixedBytes):
    """``H`` of the concatenated hashes of a bundle's part table."""

    __slots__ = ()


class CheckpointHash(FixedBytes):
    """``H`` of the bytes of a hub checkpoint's signed note: the id of an export checkpoint (4.6)."""

    __slots__ = ()


def origin_of(event: ImportedEvent) -> Receipt:
    """The receipt that the source hub signed for an imported event; the record's rules have checked it."""
    return Receipt.decode(event.origin_receipt)


def _names_its_receipt(event: ImportedEvent) -> bool:
    try:
        receipt = Receipt.decode(event.origin_receipt)
    except DecodeError:
        return False
    named = event.source_label, event.source_stream_seq
    return (receipt.label, receipt.stream_seq) == named and receipt.stream_seq >= 1


def _has_the_message_of_its_receipt(event: ImportedEvent) -> bool:
    if event.origin_msg is None:
        return True
    try:
        return Msg.decode(event.origin_msg).leaf_hash == Receipt.decode(event.origin_receipt).leaf_hash
    except DecodeError:
        return False


@text_map("bridge.import.v1 origin_leaf", section="core §4.2.13")
@dataclass(frozen=True, slots=True, kw_only=True)
class OriginLeaf(Wire):
    """The inputs of an original MSG's leaf hash, without the label.

    The origin hub's receipt signs the leaf hash. So these fields prove which client_id signed the original,
    without the original.
    """

    profile_id: ProfileId
    ct_hash: CtHash
    client_id: ClientId
    client_seq: ClientSeq


def leaf_of(msg: Msg) -> OriginLeaf:
    """The inputs of an original MSG's leaf hash."""
    return OriginLeaf(
        profile_id=msg.profile_id, ct_hash=msg.ct_hash, client_id=msg.client_id, client_seq=msg.client_seq
    )


def _has_the_leaf_of_its_receipt(event: ImportedEvent) -> bool:
    if (leaf := event.origin_leaf) is None:
        return True
    if event.origin_msg is not None:
        return False
    try:
        receipt = Receipt.decode(event.origin_receipt)
    except DecodeError:
        return False
    parts = receipt.label, leaf.profile_id, leaf.ct_hash, leaf.client_id, leaf.client_seq
    return leaf_hash(*parts) == receipt.leaf_hash


@record(
    "bridge.import.v1",
    section="P7",
    rules=(
        RecordRule("origin_receipt is the receipt of source_stream_seq on source_label", _names_its_receipt),
        RecordRule("origin_msg is the message of origin_receipt", _has_the_message_of_its_receipt),
        RecordRule(
            "origin_leaf hashes to the leaf of origin_receipt, and origin_msg is absent",
            _has_the_leaf_of_its_receipt,
        ),
    ),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedEvent(Record):
    """Carry one event of another hub, with its origin; in mode reseal the audit log carries the record."""

    bundle_id: BundleId
    source_hub_id: HubId
    source_label: Label
    source_stream_seq: StreamSeq
    origin_receipt: bytes
    origin_msg: bytes | None = None
    import_time: UnixTime
    bridge_id: ClientId
    origin_leaf: OriginLeaf | None = None
    """In mode reseal: proves which key signed the original."""


def _carries_an_event(envelope: EnvelopedEvent) -> bool:
    try:
        event = ImportedEvent.decode(envelope.body)
    except DecodeError:
        return False
    return envelope.schema == ImportedEvent.SCHEMA and event.origin_msg is None


@record(
    ATTACHED_NAME,
    section="4.6, P7",
    rules=(
        RecordRule("body is a bridge.import.v1 record that has no origin_msg", _carries_an_event),
        RecordRule("there is one attachment, the original MSG", lambda each: len(each.attachments) == 1),
    ),
    int_keys=True,
)
@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopedEvent(Record):
    """Carry an imported event whose original MSG is too large for a body and travels as an attachment."""

    ver: Literal[1] = 1
    schema: SchemaId
    body: bytes
    attachments: tuple[AttachmentRef, ...]

    @property
    def event(self) -> ImportedEvent:
        return ImportedEvent.decode(self.body)


_RANGE_RULE: Final = RecordRule(
    "from_seq is at least 1 and to_seq is from_seq + events - 1",
    lambda each: each.from_seq >= 1 and each.to_seq == each.from_seq + each.events - 1,
)
_PEAKS_RULE: Final = RecordRule(
    "peaks_before are the peaks of a tree of from_seq - 1 leaves",
    lambda each: len(each.peaks_before) == (each.from_seq - 1).bit_count(),
)


@record("bridge.exported.v1", section="products-spec-1 4.6", rules=(_RANGE_RULE, _PEAKS_RULE))
@dataclass(frozen=True, slots=True, kw_only=True)
class Exported(Record):
    """Report a bundle that bridge_online has written; without events it is a heartbeat."""

    bundle_id: BundleId
    prev_bundle_id: BundleId
    parts_hash: PartsHash
    source_hub_id: HubId
    stream_id: StreamId
    stream: str | None = None
    """The stream's name, if the bridge knows it."""
    label: Label
    from_seq: StreamSeq
    to_seq: StreamSeq
    events: int
    root_before: MmrRoot
    peaks_before: tuple[NodeHash, ...]
    root_after: MmrRoot
    checkpoint: CheckpointHash
    ts: UnixTime
    bridge_id: ClientId
    operator: str
    """The person or the automation that started the export."""


@text_map("bridge.imported.v1 target", section="products-spec-1 4.6")
@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRange(Wire):
    """A label of the target hub that received events of a bundle, and the first and last of their positions.

    Events of other writers may lie between them.
    """

    stream_id: StreamId
    label: Label
    from_seq: StreamSeq
    to_seq: StreamSeq


@record("bridge.imported.v1", section="products-spec-1 4.6", rules=(_RANGE_RULE, _PEAKS_RULE))
@dataclass(frozen=True, slots=True, kw_only=True)
class Imported(Record):
    """Report a bundle whose events are all durable at the target hub."""

    bundle_id: BundleId
    prev_bundle_id: BundleId
    source_hub_id: HubId
    source_bridge_id: ClientId
    """The bridge_online that made the bundle."""
    source_stream_id: StreamId
    source_label: Label
    from_seq: StreamSeq
    to_seq: StreamSeq
    events: int
    root_before: MmrRoot
    peaks_before: tuple[NodeHash, ...]
    root_after: MmrRoot
    mode: ImportMode
    targets: tuple[TargetRange, ...]
    """Empty for a heartbeat."""
    skipped_from: StreamSeq | None = None
    """With an allowed gap: the first source position that no imported bundle covers. It equals ``from_seq``
    if only heartbeats are missing."""
    import_time: UnixTime
    bridge_id: ClientId
    operator: str
    """The person or the automation that started the import."""


@record("bridge.import.gap.v1", section="products-spec-1 4.5")
@dataclass(frozen=True, slots=True, kw_only=True)
class ImportGap(Record):
    """Report, before the first event, that a bundle is imported although a bundle before it is missing."""

    bundle_id: BundleId
    missing_bundle_id: BundleId
    """The bundle that the imported one continues; zeros if it begins a new chain."""
    skipped_from: StreamSeq
    """The first source position that no imported bundle covers."""
    import_time: UnixTime
    bridge_id: ClientId
    operator: str


@record("bridge.import.mapping.v1", section="products-spec-1 4.5")
@dataclass(frozen=True, slots=True, kw_only=True)
class ImportMapping(Record):
    """Report, before its first event, which import stream receives the events of a source stream."""

    source_hub_id: HubId
    source_stream_id: StreamId
    source_stream: str
    """The name that the bundle gives, or the id in hex."""
    target_stream_id: StreamId
    target_stream: str
    import_time: UnixTime
    bridge_id: ClientId
    operator: str


@record("bridge.import.failed.v1", section="products-spec-1 4.5")
@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFailed(Record):
    """Report a bundle that bridge_offline has refused or could not import completely."""

    bundle_id: BundleId | None = None
    """Absent if the header of the bundle cannot be read."""
    position: StreamSeq
    """The source position of the event that failed; 0 if the failure concerns the bundle as a whole."""
    code: str
    reason: str
    import_time: UnixTime
    bridge_id: ClientId
    operator: str
