"""Admission of a verified bundle, decided from its header and the target's audit log (AGB0 4.5).

The rules, in order:

1. the source hub, and the bridge that made the bundle, are configured;
2. the bundle was not imported before;
3. a mapping rule names its import stream, which no other source stream uses, now or earlier. A mapping that
   was reported, but under which no bundle was imported completely, is *contested*: it counts if its import
   stream holds an event, which only the target's log can tell;
4. the bundle continues its chain: the previous bundle and every entry right before it were imported, or a gap
   is allowed;
5. within its label it continues exactly where the bundle before it ended, and neither its header nor its
   receipts have another root for a position than an imported bundle. No flag allows anything else: two
   histories of one label are evidence against the source hub.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from veen_bridge.reconcile.intervals import Interval, covered, missing
from veen_bridge.roles.config import BridgeConfig, SourceHub
from veen_core.bundle import BundleHeader
from veen_core.errors import ConfigError, VerificationError
from veen_core.ids import NO_BUNDLE, BundleId, HubId, MmrRoot, StreamId, StreamSeq
from veen_core.stream import stream_id
from veen_core.utc import format_utc
from veen_overlays.bridge.imports import (
    ImportState,
    allowed_gap,
    imported_bundle,
    imported_bundles,
    last_imported,
    reported_mappings,
)
from veen_overlays.bridge.records import Imported, ImportMapping

RootAt = Callable[[StreamSeq], MmrRoot]
"""Returns the root in the receipt of one of a verified bundle's events."""


class BundleRefusedError(VerificationError):
    """A bundle is not imported; ``code`` is the stable key that the audit record names."""

    def __init__(self, code: str, message: str, *, position: int = 0, action: str | None = None) -> None:
        super().__init__(message, action=action)
        self.code, self.position = code, StreamSeq(position)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """The writes that the import of an admitted bundle needs."""

    bundle_id: BundleId
    header: BundleHeader
    target: str
    """Name of the import stream."""
    mapping_reported: bool
    """Whether the audit log already shows that this source stream is imported to ``target``."""
    contested: tuple[ImportMapping, ...]
    """Reported mappings that contradict this one. One of them forbids the import if its import stream has an
    event (rule 3)."""
    wanted: tuple[Interval, ...]
    """Source positions that no imported bundle covers yet."""
    skipped_from: StreamSeq | None
    """With an allowed gap: the first source position that no imported bundle covers."""
    gap_reported: bool
    """Whether an earlier attempt has reported the gap."""
    after: Imported | None
    """An imported bundle whose events precede those of this one in the import stream; None if unknown."""

    @property
    def target_id(self) -> StreamId:
        return stream_id(self.target)


def accepted_source(config: BridgeConfig, header: BundleHeader) -> SourceHub:
    """The configured source of a bundle; raise ``BundleRefusedError`` if there is none (rule 1)."""
    source = config.source(header.hub_id)
    if source is None:
        raise BundleRefusedError(
            "UNKNOWN_SOURCE",
            f"the bundle is from hub {header.hub_id.hex()}, which is not a source of this bridge",
            action="if this hub is to be trusted, add its hub_id to `sources` in the bridge's configuration",
        )
    if source.bridge_id is not None and source.bridge_id != header.bridge_id:
        raise BundleRefusedError(
            "UNKNOWN_BRIDGE",
            f"the bundle was made by bridge {header.bridge_id.hex()}, and the configuration names "
            f"{source.bridge_id.hex()} for this hub",
        )
    return source


def plan_import(
    bundle: BundleId,
    header: BundleHeader,
    config: BridgeConfig,
    state: ImportState,
    *,
    root_at: RootAt,
    allow_gap: bool = False,
) -> ImportPlan:
    """Decide about a verified bundle; raise ``BundleRefusedError`` with the first rule that it breaks."""
    source = accepted_source(config, header)
    if (done := imported_bundle(state, bundle)) is not None:
        raise BundleRefusedError(
            "ALREADY_IMPORTED",
            f"bundle {bundle.hex()} was imported at {format_utc(done.import_time)}, "
            + (f"entries {done.from_seq} to {done.to_seq}" if done.events else "a heartbeat"),
            action="leave it out, or skip such bundles with --skip-imported",
        )
    target = _target(source, header, state)
    mapping_reported, contested = _reported(target, header, state)
    imported = [each for each in imported_bundles(state) if _same_label(each, header)]
    union, _ = covered(Interval(each.from_seq, each.to_seq) for each in imported)
    skipped = _gap(header, state, union)
    begun = allowed_gap(state, bundle)
    if skipped is not None and begun is None and not allow_gap:
        raise BundleRefusedError(
            "GAP",
            _gap_reason(header, state, skipped),
            position=header.from_seq,
            action="import the missing bundle first; if it is lost, --allow-gap records the gap and goes on",
        )
    _check_continuation(header, imported, root_at)
    wanted = missing(Interval(header.from_seq, header.to_seq), union)
    return ImportPlan(
        bundle_id=bundle,
        header=header,
        target=target,
        mapping_reported=mapping_reported,
        contested=contested,
        wanted=tuple(wanted),
        skipped_from=begun.skipped_from if begun is not None else skipped,
        gap_reported=begun is not None,
        # After an allowed gap, events of this bundle may be older than those of the bundle it continues.
        after=_with_events(imported_bundle(state, header.prev_bundle_id), state) if begun is None else None,
    )


def _with_events(record: Imported | None, state: ImportState) -> Imported | None:
    """The record, or the nearest one before it in its chain, that has written events."""
    while record is not None and not record.targets:
        record = imported_bundle(state, record.prev_bundle_id)
    return record


def _same_label(record: Imported, header: BundleHeader) -> bool:
    return (record.source_hub_id, record.source_label) == (header.hub_id, header.label)


def _target(source: SourceHub, header: BundleHeader, state: ImportState) -> str:
    """The import stream of a bundle; it has one source stream, now and earlier (rule 3, J1)."""
    try:
        target = source.mapping.target(header.stream)
    except ConfigError as exc:
        raise BundleRefusedError("NO_MAPPING", exc.message, action=exc.action) from None
    wanted = header.hub_id, header.stream_id
    for record, used in _uses(state):
        origin = record.source_hub_id, record.source_stream_id
        if used == stream_id(target) and origin != wanted:
            raise mapping_collision(target, record.source_hub_id, record.source_stream_id.hex())
        if origin == wanted and used != stream_id(target):
            raise mapping_changed(header, used.hex(), target)
    return target


def _reported(
    target: str, header: BundleHeader, state: ImportState
) -> tuple[bool, tuple[ImportMapping, ...]]:
    """Return whether the audit log shows this mapping, and which reported mappings contradict it (rule 3)."""
    wanted = header.hub_id, header.stream_id
    completed = any((each.source_hub_id, each.source_stream_id) == wanted for each, _ in _uses(state))
    own, others = None, []
    for each in reported_mappings(state):
        if (each.source_hub_id, each.source_stream_id) == wanted:
            own = each
        else:
            others.append(each)
    contested = [each for each in others if each.target_stream_id == stream_id(target)]
    if own is None or own.target_stream_id == stream_id(target):
        return completed or own is not None, tuple(contested)
    # A later mapping of another source stream to the same import stream proves that the import stream was
    # empty then, because that import checked it. So this source never used its mapping.
    if not completed and all(each.target_stream_id != own.target_stream_id for each in others):
        contested.append(own)
    return completed, tuple(contested)


def mapping_collision(target: str, hub: HubId, source_stream: str) -> BundleRefusedError:
    """The refusal of a bundle whose import stream has events of another stream (rule 3, J1)."""
    return BundleRefusedError(
        "MAPPING_COLLISION",
        f"stream {target} has events of stream {source_stream} of hub {hub.hex()}; one import stream has one "
        "origin (J1)",
        action="map this source to another stream in the bridge's configuration",
    )


def mapping_changed(header: BundleHeader, used: str, target: str) -> BundleRefusedError:
    """The refusal of a bundle whose stream has events in another import stream (rule 3)."""
    return BundleRefusedError(
        "MAPPING_CHANGED",
        f"earlier events of stream {header.stream} were imported to stream {used}, and the configuration now "
        f"says {target}",
        action="restore the old rule: the events of one stream belong in one import stream",
    )


def _uses(state: ImportState) -> Iterator[tuple[Imported, StreamId]]:
    for record in imported_bundles(state):
        for used in {each.stream_id for each in record.targets}:
            yield record, used


def _gap(header: BundleHeader, state: ImportState, union: list[Interval]) -> StreamSeq | None:
    """The first source position that importing the bundle now would skip; None without a gap (rule 4).

    A gap is a bundle of the chain that was not imported, or entries right before this bundle that no imported
    bundle covers: a range may have been exported that begins later than the one before it ended.
    """
    before = max((span.to_seq for span in union if span.from_seq < header.from_seq), default=0)
    if before >= header.from_seq - 1 and _chain_is_whole(header, state):
        return None
    return StreamSeq(min(before + 1, header.from_seq))


def _gap_reason(header: BundleHeader, state: ImportState, skipped: StreamSeq) -> str:
    if _chain_is_whole(header, state):
        return f"entries {skipped} to {header.from_seq - 1} before the bundle were not imported"
    if header.prev_bundle_id != NO_BUNDLE:
        return f"the bundle continues bundle {header.prev_bundle_id.hex()}, which was not imported"
    return "the bundle begins a new chain, but bundles of this stream were imported before"


def _chain_is_whole(header: BundleHeader, state: ImportState) -> bool:
    if header.prev_bundle_id == NO_BUNDLE:
        return last_imported(state, header.hub_id, header.stream_id, header.bridge_id) is None
    return imported_bundle(state, header.prev_bundle_id) is not None


def _check_continuation(header: BundleHeader, imported: Sequence[Imported], root_at: RootAt) -> None:
    """Check that the bundle fits the imported bundles of its label (rule 5).

    One position of a label has one root, whichever bundle states it: ``root_before``, ``root_after``, or the
    receipt of an event, where a bundle overlaps an imported one and shares no end with it.
    """
    for before in imported:
        if before.bundle_id == header.prev_in_label and header.from_seq != before.to_seq + 1:
            raise _diverged(header, before.to_seq, before.root_after)
        known = {before.from_seq - 1: before.root_before, before.to_seq: before.root_after}
        for at, root in ((header.from_seq - 1, header.root_before), (header.to_seq, header.root_after)):
            if known.get(at, root) != root:
                raise _diverged(header, at, known[at])
        for at, root in known.items():
            if header.from_seq <= at <= header.to_seq and root_at(StreamSeq(at)) != root:
                raise _diverged(header, at, root)


def _diverged(header: BundleHeader, at: int, root: MmrRoot) -> BundleRefusedError:
    return BundleRefusedError(
        "DIVERGED",
        f"the bundle contradicts an imported bundle of its label, with root {root.hex()} at entry {at}: "
        "the source hub showed two histories",
        position=header.from_seq,
        action="keep both bundles: they are the evidence",
    )
