"""The two sides of a reconciliation: exported bundles of the source zone, imports of the target zone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from veen_bridge.reconcile.intervals import Interval
from veen_core.bundle import BundleHeader, bundle_id
from veen_core.ids import BundleId, ClientId, HubId, Label, MmrRoot, NodeHash, StreamId, UnixTime
from veen_core.stream import stream_id as id_of_name
from veen_overlays.bridge.origins import OriginRun
from veen_overlays.bridge.records import Exported, Imported

SourceLabel = tuple[HubId, Label]


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleFacts:
    """The facts about a bundle that both zones must agree on."""

    bundle_id: BundleId
    prev_bundle_id: BundleId
    source_hub_id: HubId
    stream_id: StreamId
    label: Label
    from_seq: int
    to_seq: int
    root_before: MmrRoot
    peaks_before: tuple[NodeHash, ...]
    root_after: MmrRoot
    stream: str | None = field(default=None, compare=False)
    """The stream's name, if the source zone says it."""

    @property
    def span(self) -> Interval:
        return Interval(self.from_seq, self.to_seq)

    @property
    def events(self) -> int:
        """The number of events; 0 in a heartbeat."""
        return self.to_seq - self.from_seq + 1

    @property
    def source(self) -> SourceLabel:
        return self.source_hub_id, self.label


def of_exported(record: Exported) -> BundleFacts:
    """The facts of a record in bridge/online/log."""
    return BundleFacts(
        bundle_id=record.bundle_id,
        prev_bundle_id=record.prev_bundle_id,
        source_hub_id=record.source_hub_id,
        stream_id=record.stream_id,
        label=record.label,
        from_seq=record.from_seq,
        to_seq=record.to_seq,
        root_before=record.root_before,
        peaks_before=record.peaks_before,
        root_after=record.root_after,
        stream=record.stream,
    )


def of_imported(record: Imported) -> BundleFacts:
    """The facts of a record in bridge/offline/log."""
    return BundleFacts(
        bundle_id=record.bundle_id,
        prev_bundle_id=record.prev_bundle_id,
        source_hub_id=record.source_hub_id,
        stream_id=record.source_stream_id,
        label=record.source_label,
        from_seq=record.from_seq,
        to_seq=record.to_seq,
        root_before=record.root_before,
        peaks_before=record.peaks_before,
        root_after=record.root_after,
    )


def of_header(header: BundleHeader) -> BundleFacts:
    """The facts of a verified bundle."""
    return BundleFacts(
        bundle_id=bundle_id(header),
        prev_bundle_id=header.prev_bundle_id,
        source_hub_id=header.hub_id,
        stream_id=id_of_name(header.stream),
        label=header.label,
        from_seq=header.from_seq,
        to_seq=header.to_seq,
        root_before=header.root_before,
        peaks_before=header.peaks_before,
        root_after=header.root_after,
        stream=header.stream,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSide:
    """The exported bundles, in the order in which they were exported."""

    bundles: Mapping[BundleId, BundleFacts]
    heads: Mapping[SourceLabel, int] = field(default_factory=dict)
    """The last position of each label at the source hub, if the hub was asked."""

    @classmethod
    def of(cls, facts: Iterable[BundleFacts], heads: Mapping[SourceLabel, int] | None = None) -> SourceSide:
        return cls(bundles={each.bundle_id: each for each in facts}, heads=heads or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedImport:
    """A bundle that bridge/offline/log reports as imported."""

    facts: BundleFacts
    skipped_from: int | None
    import_time: UnixTime
    bridge_id: ClientId


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSide:
    """The imported bundles in the order of their reports, and the origins of the imported events."""

    imports: tuple[ReportedImport, ...]
    repeated: Mapping[BundleId, int]
    """How often bundles were reported again."""
    failed: int
    """How many failures bridge/offline/log reports."""
    runs: Mapping[SourceLabel, tuple[OriginRun, ...]]
    """The origins of the events in the import streams, in the order of the streams."""
    without_origin: Mapping[str, int]
    """How many messages of each import stream name no origin; streams without such messages are absent."""
