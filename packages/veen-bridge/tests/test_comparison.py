"""The comparison of two folded states (AGB0 4.7, J1, J2, K2): pure, so every fault is built by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from veen_bridge.reconcile.comparison import reconcile
from veen_bridge.reconcile.findings import FindingKind, GapKind
from veen_bridge.reconcile.sides import BundleFacts, ReportedImport, SourceSide, TargetSide
from veen_core.hashing import H, u64be
from veen_core.ids import NO_BUNDLE, BundleId, ClientId, HubId, Label, LeafHash, MmrRoot, StreamId, UnixTime
from veen_core.mmr import Mmr
from veen_core.receipt import Receipt
from veen_overlays.bridge import ImportedEvent
from veen_overlays.bridge.origins import OriginRun, add_event

HUB, LABEL, STREAM = HubId(H(b"hub")), Label(H(b"label")), StreamId(H(b"stream"))
SOURCE = HUB, LABEL
BRIDGE = ClientId(H(b"bridge"))


def leaf(seq: int) -> LeafHash:
    return LeafHash(H(b"leaf" + u64be(seq)))


def tree(size: int) -> Mmr:
    grown = Mmr()
    for seq in range(1, size + 1):
        grown.add(leaf(seq))
    return grown


def bundle(first: int, last: int, previous: BundleId = NO_BUNDLE) -> BundleFacts:
    before, after = tree(first - 1), tree(last)
    return BundleFacts(
        bundle_id=BundleId(H(b"bundle" + u64be(first) + u64be(last))),
        prev_bundle_id=previous,
        source_hub_id=HUB,
        stream_id=STREAM,
        label=LABEL,
        from_seq=first,
        to_seq=last,
        root_before=before.root,
        peaks_before=before.peaks,
        root_after=after.root,
    )


def event(of: BundleFacts, seq: int, *, forged: bool = False) -> ImportedEvent:
    receipt = Receipt(
        label=LABEL,
        stream_seq=seq,  # type: ignore[arg-type]
        leaf_hash=LeafHash(H(b"forged")) if forged else leaf(seq),
        mmr_root=tree(seq).root,
        hub_ts=UnixTime(1_000 + seq),
    )
    return ImportedEvent(
        bundle_id=of.bundle_id,
        source_hub_id=HUB,
        source_label=LABEL,
        source_stream_seq=receipt.stream_seq,
        origin_receipt=receipt.encode(),
        import_time=UnixTime(5_000),
        bridge_id=BRIDGE,
    )


def chain(*sizes: int) -> list[BundleFacts]:
    made: list[BundleFacts] = []
    at = 0
    for size in sizes:
        made.append(bundle(at + 1, at + size, made[-1].bundle_id if made else NO_BUNDLE))
        at += size
    return made


def report(facts: BundleFacts, skipped_from: int | None = None) -> ReportedImport:
    return ReportedImport(
        facts=facts, skipped_from=skipped_from, import_time=UnixTime(5_000), bridge_id=BRIDGE
    )


def target(
    reported: list[BundleFacts],
    events: list[ImportedEvent] | None = None,
    repeated: dict[BundleId, int] | None = None,
    orphans: int = 0,
) -> TargetSide:
    if events is None:
        events = [event(each, seq) for each in reported for seq in range(each.from_seq, each.to_seq + 1)]
    runs: list[OriginRun] = []
    for each in events:
        add_event(runs, each)
    return TargetSide(
        imports=tuple(report(each) for each in reported),
        repeated=repeated or {},
        failed=0,
        runs={SOURCE: tuple(runs)} if runs else {},
        without_origin={"import/x": orphans} if orphans else {},
    )


def kinds(source: list[BundleFacts], imported: TargetSide) -> list[FindingKind]:
    return [finding.kind for finding in reconcile(SourceSide.of(source), imported).findings]


def test_what_was_imported_whole_is_consistent_to_its_last_entry() -> None:
    bundles = chain(5, 3, 8)
    result = reconcile(SourceSide.of(bundles, {SOURCE: 20}), target(bundles))
    assert result.consistent
    (region,) = result.regions
    assert (region.from_seq, region.to_seq, region.mmr_root) == (1, 16, tree(16).root)
    assert (region.from_ts, region.to_ts) == (1_001, 1_016)
    assert [(gap.span, gap.kind) for gap in region.gaps] == [((17, 20), GapKind.NOT_EXPORTED)]


def test_a_missing_bundle_ends_the_consistent_region() -> None:
    first, second, third = chain(5, 3, 8)
    result = reconcile(SourceSide.of([first, second, third]), target([first, third]))
    assert [finding.kind for finding in result.findings] == [FindingKind.MISSING]
    assert result.findings[0].bundle_id == second.bundle_id
    (region,) = result.regions
    assert region.to_seq == 5
    assert [(gap.span, gap.kind) for gap in region.gaps] == [
        ((6, 8), GapKind.NOT_IMPORTED),
        ((9, 16), GapKind.UNPROVEN),
    ]


def test_entries_between_two_bundles_that_are_in_none_are_named() -> None:
    first, third = bundle(1, 5), bundle(9, 16)
    result = reconcile(SourceSide.of([first, third]), target([first, third]))
    assert [(each.kind, each.span) for each in result.findings] == [(FindingKind.MISSING, (6, 8))]
    assert not result.consistent
    (region,) = result.regions
    assert [(gap.span, gap.kind) for gap in region.gaps] == [
        ((6, 8), GapKind.NOT_EXPORTED),
        ((9, 16), GapKind.UNPROVEN),
    ]


def test_a_missing_heartbeat_is_named() -> None:
    first = bundle(1, 5)
    heartbeat = bundle(6, 5, first.bundle_id)
    assert kinds([first, heartbeat], target([first])) == [FindingKind.MISSING]
    assert kinds([first, heartbeat], target([first, heartbeat])) == []


def test_an_interrupted_import_is_partial_and_a_reported_one_has_lost_events() -> None:
    first, second = chain(5, 4)
    events = [event(first, n) for n in range(1, 6)] + [event(second, n) for n in (6, 7)]
    assert kinds([first, second], target([first], events)) == [FindingKind.PARTIAL]
    found = reconcile(SourceSide.of([first, second]), target([first, second], events))
    assert [finding.kind for finding in found.findings] == [FindingKind.LOST]
    assert found.findings[0].span == (8, 9)
    assert found.regions[0].to_seq == 5


def test_an_event_imported_twice_is_named() -> None:
    (only,) = chain(5)
    events = [event(only, n) for n in (1, 2, 3, 4, 5, 3)]
    found = reconcile(SourceSide.of([only]), target([only], events)).findings
    assert [(finding.kind, finding.span) for finding in found] == [(FindingKind.DUPLICATE_EVENT, (3, 3))]


def test_a_bundle_reported_twice_is_named() -> None:
    (only,) = chain(2)
    assert kinds([only], target([only], repeated={only.bundle_id: 1})) == [FindingKind.DUPLICATE_BUNDLE]


def test_bundles_imported_in_another_order_are_named() -> None:
    first, second = chain(2, 3)
    assert FindingKind.OUT_OF_ORDER in kinds([first, second], target([second, first]))


def test_a_bundle_that_fills_an_allowed_gap_is_no_fault() -> None:
    first, second, third = chain(2, 3, 4)
    allowed = replace(report(third), skipped_from=second.from_seq)
    side = target([first, third, second])
    result = reconcile(
        SourceSide.of([first, second, third]),
        replace(side, imports=(report(first), allowed, report(second))),
    )
    assert [each.kind for each in result.findings] == [FindingKind.ALLOWED_GAP, FindingKind.FILLED_GAP]
    assert result.consistent
    assert result.regions[0].to_seq == third.to_seq


def test_a_lost_bundle_whose_range_came_in_another_bundle_is_no_fault() -> None:
    first, lost, third = chain(2, 3, 4)
    again = replace(lost, bundle_id=BundleId(H(b"again")), prev_bundle_id=third.bundle_id)
    side = target([first, again, third])
    imports = (report(first), replace(report(again), skipped_from=again.from_seq), report(third))
    result = reconcile(SourceSide.of([first, lost, third, again]), replace(side, imports=imports))
    assert [(each.kind, each.bundle_id) for each in result.findings] == [
        (FindingKind.ALLOWED_GAP, again.bundle_id),
        (FindingKind.REPLACED, lost.bundle_id),
    ]
    assert result.consistent


def test_a_repeated_range_that_writes_no_event_is_not_out_of_order() -> None:
    first, second = chain(2, 3)
    again = replace(first, bundle_id=BundleId(H(b"again")), prev_bundle_id=second.bundle_id)
    side = replace(target([first, second]), imports=(report(first), report(second), report(again)))
    assert reconcile(SourceSide.of([first, second, again]), side).findings == ()


def test_a_lost_heartbeat_is_no_fault_if_the_gap_was_allowed() -> None:
    first = bundle(1, 5)
    silent = bundle(6, 5, first.bundle_id)
    silent_again = replace(silent, bundle_id=BundleId(H(b"again")), prev_bundle_id=silent.bundle_id)
    third = bundle(6, 8, silent_again.bundle_id)
    source, side = SourceSide.of([first, silent, silent_again, third]), target([first, third])
    assert [each.kind for each in reconcile(source, side).findings] == [FindingKind.MISSING] * 2
    allowed = replace(side, imports=(report(first), report(third, skipped_from=third.from_seq)))
    result = reconcile(source, allowed)
    assert [each.bundle_id for each in result.findings] == [
        third.bundle_id,
        silent.bundle_id,
        silent_again.bundle_id,
    ]
    assert {each.kind for each in result.findings} == {FindingKind.ALLOWED_GAP}


def test_an_event_without_an_exported_origin_is_named() -> None:
    first, second = chain(2, 3)
    assert kinds([first], target([first], orphans=2)) == [FindingKind.NO_ORIGIN]
    assert kinds([first], target([first, second])) == [FindingKind.UNKNOWN_BUNDLE, FindingKind.NO_ORIGIN]


def test_a_forged_origin_does_not_lead_to_the_signed_root() -> None:
    first, second = chain(4, 4)
    events = [event(first, n) for n in range(1, 5)]
    events += [event(second, n, forged=n == 6) for n in range(5, 9)]
    result = reconcile(SourceSide.of([first, second]), target([first, second], events))
    assert [finding.kind for finding in result.findings] == [FindingKind.WRONG_ROOT]
    assert result.regions[0].to_seq == 4


def test_zones_that_report_different_roots_contradict_each_other() -> None:
    (only,) = chain(3)
    other = replace(only, root_after=MmrRoot(H(b"other")))
    assert FindingKind.CONTRADICTION in kinds([only], target([other]))


@pytest.mark.parametrize("skipped", [3, 6])
def test_an_allowed_gap_is_listed_and_is_no_fault_of_its_own(skipped: int) -> None:
    (only,) = chain(5)
    imported = replace(target([only]), imports=(report(only, skipped),))
    result = reconcile(SourceSide.of([only]), imported)
    assert [finding.kind for finding in result.findings] == [FindingKind.ALLOWED_GAP]
    assert result.consistent
