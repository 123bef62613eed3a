"""Read the two sides of a reconciliation from zones and from bundle files (AGB0 4.7)."""

from __future__ import annotations

from collections.abc import Iterable

from veen_bridge.bundles import BundleFiles
from veen_bridge.importing.run import trust_of
from veen_bridge.reconcile.resealed import Resealed
from veen_bridge.reconcile.sides import (
    BundleFacts,
    ReportedImport,
    SourceLabel,
    SourceSide,
    TargetSide,
    of_exported,
    of_header,
    of_imported,
)
from veen_bridge.reconcile.zones import Zone
from veen_bridge.roles.config import SourceHub
from veen_core.bundle import BundleTrust
from veen_core.bundle.header_rules import verify_header
from veen_core.ids import HubId, StreamId
from veen_core.stream import stream_id
from veen_overlays.bridge import EXPORTS, IMPORTS, ORIGINS
from veen_overlays.bridge.exports import exported_bundles
from veen_overlays.bridge.imports import imported_bundles, repeated_imports, reported_mappings
from veen_overlays.bridge.origins import OriginRun, sources
from veen_overlays.bridge.records import OFFLINE_LOG, ONLINE_LOG


async def read_source(zone: Zone) -> SourceSide:
    """The exported bundles as bridge/online/log reports them, and the last position of each label."""
    view = await zone.view(EXPORTS, stream_id(ONLINE_LOG))
    facts = [of_exported(record) for record in exported_bundles((await view.summary()).inner)]
    heads: dict[SourceLabel, int] = {}
    for label in {each.source for each in facts}:
        if (last := await zone.last_position(label[1])) is not None:
            heads[label] = last
    return SourceSide.of(facts, heads)


def read_bundles(
    bundles: Iterable[BundleFiles], pinned: HubId | None, accepted: Iterable[SourceHub]
) -> SourceSide:
    """The bundles in files, each header verified to its hub checkpoint; their events are not read."""
    known = {source.hub_id: source for source in accepted}
    facts: list[BundleFacts] = []
    for files in bundles:
        source = known.get(files.header.hub_id)
        trust = trust_of(source) if source is not None else BundleTrust(pinned=pinned)
        verify_header(files.header, files.trailer.signature, trust)
        facts.append(of_header(files.header))
    return SourceSide.of(facts)


def joined(audit: SourceSide | None, files: SourceSide | None) -> SourceSide:
    """Both descriptions of the source zone; the audit log counts where both describe a bundle."""
    if audit is None or files is None:
        found = audit or files
        assert found is not None
        return found
    return SourceSide(bundles={**files.bundles, **audit.bundles}, heads=audit.heads)


async def read_target(zone: Zone, streams: Iterable[StreamId] = ()) -> TargetSide:
    """The imports as bridge/offline/log reports them, and the origins in all import streams.

    ``streams`` are import streams in addition to those that the audit log names.
    """
    audit = await zone.view(IMPORTS, stream_id(OFFLINE_LOG))
    state = (await audit.summary()).inner
    records = list(imported_bundles(state))
    wanted = {each.stream_id for record in records for each in record.targets} | set(streams)
    wanted |= {mapping.target_stream_id for mapping in reported_mappings(state)}
    resealing = {each.stream_id for record in records for each in record.targets if record.mode == "reseal"}
    runs: dict[SourceLabel, list[OriginRun]] = {}
    without: dict[str, int] = {}
    for stream in sorted(wanted):
        view = await zone.view(ORIGINS, stream)
        summary = await view.summary()
        _collect(runs, summary.inner)
        count = summary.foreign + summary.undecodable
        if stream in resealing:
            count = await Resealed(zone, stream, records).without_origin(runs)
        if count:
            without[stream.hex()] = count
    return TargetSide(
        imports=tuple(
            ReportedImport(
                facts=of_imported(record),
                skipped_from=record.skipped_from,
                import_time=record.import_time,
                bridge_id=record.bridge_id,
            )
            for record in records
        ),
        repeated=repeated_imports(state),
        failed=state.get("failed", 0),
        runs={label: tuple(found) for label, found in runs.items()},
        without_origin=without,
    )


def _collect(runs: dict[SourceLabel, list[OriginRun]], state: object) -> None:
    assert isinstance(state, dict) or hasattr(state, "items")
    for label in sources(state):  # type: ignore[arg-type]  # the state of ORIGINS
        runs.setdefault(label, []).extend(state[label[0] + label[1]])  # type: ignore[index]
