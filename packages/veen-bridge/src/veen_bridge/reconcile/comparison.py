"""Compare exports with imports: a pure function of two folded states (AGB0 4.7, J1, J2).

    reconcile(source, target) → findings, and for each source label its consistent region (K2)

The cost grows with the number of bundles, not with the number of events: the events of a bundle are one run
with the hashes of its subtrees. The root after a run is computed from them and compared with the root that
the source hub signed, so one comparison proves all events of the bundle.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from veen_bridge.reconcile.findings import (
    FindingKind,
    GapKind,
    Reconciliation,
    Region,
    ZoneDifference,
    ZoneGap,
)
from veen_bridge.reconcile.intervals import Interval, covered, missing
from veen_bridge.reconcile.sides import BundleFacts, ReportedImport, SourceLabel, SourceSide, TargetSide
from veen_core.errors import ProofError
from veen_core.ids import BundleId, MmrRoot
from veen_core.mmr import Mmr
from veen_overlays.bridge.origins import OriginRun


def reconcile(source: SourceSide, target: TargetSide) -> Reconciliation:
    """Compare the two sides; the result lists every difference."""
    findings = [*_reports(source, target), *_orphans(target)]
    regions = []
    for label in sorted({*(each.source for each in source.bundles.values()), *target.runs}):
        compared = _LabelComparison.of(label, source, target)
        findings += compared.findings()
        regions.append(compared.region())
    return Reconciliation(
        regions=tuple(regions),
        findings=tuple(findings),
        exported=len(source.bundles),
        imported=len(target.imports),
        failed=target.failed,
    )


def _reports(source: SourceSide, target: TargetSide) -> Iterator[ZoneDifference]:
    """Compare the audit records of both zones."""
    for bundle, times in sorted(target.repeated.items()):
        detail = f"reported as imported {times + 1} times"
        yield ZoneDifference(kind=FindingKind.DUPLICATE_BUNDLE, detail=detail, bundle_id=bundle)
    for report in target.imports:
        facts = report.facts
        exported = source.bundles.get(facts.bundle_id)
        if exported is None:
            yield _of(facts, FindingKind.UNKNOWN_BUNDLE, "imported, but the source zone did not export it")
        elif exported != facts:
            yield _of(facts, FindingKind.CONTRADICTION, "the two zones report different ranges or roots")
        if report.skipped_from is not None:
            span = Interval(report.skipped_from, facts.from_seq - 1)
            text = f"positions {span.from_seq} to {span.to_seq}" if span.size > 0 else "no position"
            detail = f"imported with an allowed gap: {text}"
            yield _of(facts, FindingKind.ALLOWED_GAP, detail)
    yield from _misplaced(target.imports)
    yield from _absent_heartbeats(source, target)


def _absent_heartbeats(source: SourceSide, target: TargetSide) -> Iterator[ZoneDifference]:
    done = {report.facts.bundle_id for report in target.imports}
    allowed = _in_allowed_gaps(source, target, done)
    for facts in source.bundles.values():
        if facts.bundle_id in done or facts.events:
            continue
        if facts.bundle_id in allowed:
            yield _of(facts, FindingKind.ALLOWED_GAP, "the heartbeat was not imported; the gap was allowed")
        else:
            yield _of(facts, FindingKind.MISSING, "the heartbeat was not imported")


def _in_allowed_gaps(source: SourceSide, target: TargetSide, done: set[BundleId]) -> set[BundleId]:
    """Bundles of a chain that were not imported and that precede one imported with an allowed gap."""
    allowed: set[BundleId] = set()
    for report in target.imports:
        before = source.bundles.get(report.facts.prev_bundle_id) if report.skipped_from is not None else None
        while before is not None and before.bundle_id not in done and before.bundle_id not in allowed:
            allowed.add(before.bundle_id)
            before = source.bundles.get(before.prev_bundle_id)
    return allowed


def _misplaced(imports: tuple[ReportedImport, ...]) -> Iterator[ZoneDifference]:
    """Bundles that were imported before a bundle that precedes them."""
    by_label: dict[SourceLabel, list[ReportedImport]] = {}
    for report in imports:
        by_label.setdefault(report.facts.source, []).append(report)
    for reports in by_label.values():
        for number, (before, after) in enumerate(pairwise(reports), start=1):
            facts = after.facts
            if facts.from_seq >= before.facts.from_seq:
                continue
            earlier, _ = covered(each.facts.span for each in reports[:number])
            if facts.events and not missing(facts.span, earlier):
                continue  # a range that was exported again: it wrote no event
            allowed = any(
                each.skipped_from is not None and each.skipped_from <= facts.from_seq < each.facts.from_seq
                for each in reports[:number]
            )
            kind = FindingKind.FILLED_GAP if allowed else FindingKind.OUT_OF_ORDER
            yield _of(facts, kind, f"imported after entry {before.facts.to_seq}")


def _orphans(target: TargetSide) -> Iterator[ZoneDifference]:
    for stream, count in sorted(target.without_origin.items()):
        detail = f"messages of stream {stream} that name no origin: {count}"
        yield ZoneDifference(kind=FindingKind.NO_ORIGIN, detail=detail)


def _of(facts: BundleFacts, kind: FindingKind, detail: str, span: Interval | None = None) -> ZoneDifference:
    return ZoneDifference(
        kind=kind,
        detail=detail,
        bundle_id=facts.bundle_id,
        source=facts.source,
        span=span if span is not None else facts.span if facts.events else None,
    )


def _between(union: list[Interval]) -> list[Interval]:
    """The positions between the first and the last of an ascending union that it does not cover."""
    return missing(Interval(union[0].from_seq, union[-1].to_seq), union) if union else []


class _LabelComparison(NamedTuple):
    """Bundles and imported events of one source label."""

    label: SourceLabel
    exported: list[BundleFacts]
    """Bundles with events, in order of their positions."""
    reported: set[BundleId]
    reported_union: list[Interval]
    """The positions of the bundles that are reported as imported."""
    runs: list[OriginRun]
    union: list[Interval]
    twice: list[Interval]
    head: int

    @classmethod
    def of(cls, label: SourceLabel, source: SourceSide, target: TargetSide) -> _LabelComparison:
        exported = [each for each in source.bundles.values() if each.source == label and each.events]
        runs = sorted(target.runs.get(label, ()), key=lambda run: (run.from_seq, run.to_seq))
        union, twice = covered(Interval(run.from_seq, run.to_seq) for run in runs)
        imported = [report.facts for report in target.imports if report.facts.source == label]
        return cls(
            label=label,
            exported=sorted(exported, key=lambda each: (each.from_seq, each.to_seq)),
            reported={each.bundle_id for each in imported},
            reported_union=covered(each.span for each in imported)[0],
            runs=runs,
            union=union,
            twice=twice,
            head=source.heads.get(label, 0),
        )

    def findings(self) -> Iterator[ZoneDifference]:
        for facts in self.exported:
            yield from self._absent(facts)
        for span in self.twice:
            yield self._find(FindingKind.DUPLICATE_EVENT, "imported more than once", span)
        known, _ = covered(facts.span for facts in self.exported)
        for span in _between(known):
            yield self._find(FindingKind.MISSING, "between two bundles, but in none", span)
        for have in self.union:
            for span in missing(have, known):
                yield self._find(FindingKind.NO_ORIGIN, "imported, but in no exported bundle", span)
        yield from self._proof()[1]

    def _absent(self, facts: BundleFacts) -> Iterator[ZoneDifference]:
        """The events of a bundle that are not in the import stream."""
        gaps = missing(facts.span, self.union)
        reported = facts.bundle_id in self.reported
        if not gaps and not reported:
            if missing(facts.span, self.reported_union):
                yield _of(facts, FindingKind.PARTIAL, "all events are there, but no report of success")
            else:
                yield _of(facts, FindingKind.REPLACED, "not imported; other bundles brought all its entries")
        for gap in gaps:
            if reported:
                yield _of(facts, FindingKind.LOST, "reported as imported, but events are missing", gap)
            elif gap == facts.span:
                yield _of(facts, FindingKind.MISSING, "not imported")
            else:
                yield _of(facts, FindingKind.PARTIAL, "imported in part only", gap)

    def _find(self, kind: FindingKind, detail: str, span: Interval) -> ZoneDifference:
        return ZoneDifference(kind=kind, detail=detail, source=self.label, span=span)

    # --- the proven region

    def region(self) -> Region:
        """The longest proven prefix of what was exported, and the gaps beyond it (K2)."""
        start = self.exported[0].from_seq if self.exported else 1
        proven, _ = self._proof()
        end = proven.size if proven is not None else start - 1
        inside = [run for run in self.runs if run.from_seq >= start and run.to_seq <= end]
        return Region(
            source=self.label,
            from_seq=start,
            to_seq=end,
            mmr_root=proven.root if proven is not None else None,
            from_ts=inside[0].from_ts if inside else None,
            to_ts=max((run.to_ts for run in inside), default=None),
            gaps=tuple(sorted(self._gaps(end), key=lambda gap: gap.span)),
            stream=self.exported[0].stream if self.exported else None,
        )

    def _gaps(self, proven: int) -> Iterator[ZoneGap]:
        exported, _ = covered(facts.span for facts in self.exported)
        for span in exported:
            beyond = Interval(max(span.from_seq, proven + 1), span.to_seq)
            if beyond.size <= 0:
                continue
            absent = missing(beyond, self.union)
            yield from (ZoneGap(span=gap, kind=GapKind.NOT_IMPORTED) for gap in absent)
            yield from (ZoneGap(span=gap, kind=GapKind.UNPROVEN) for gap in missing(beyond, absent))
        yield from (ZoneGap(span=gap, kind=GapKind.NOT_EXPORTED) for gap in _between(exported))
        last = max((span.to_seq for span in exported), default=0)
        if self.head > last:
            yield ZoneGap(span=Interval(last + 1, self.head), kind=GapKind.NOT_EXPORTED)

    def _proof(self) -> tuple[Mmr | None, list[ZoneDifference]]:
        """The tree of the longest proven prefix, and the runs that contradict a signed root.

        The tree grows run by run. A prefix is proven where its root is one that a bundle ends with: the root
        commits to every entry before it.
        """
        if not self.exported:
            return None, []
        start = self.exported[0]
        try:
            tree = Mmr(start.from_seq - 1, start.peaks_before)
        except ProofError:
            return None, [_of(start, FindingKind.WRONG_ROOT, "its peaks are not those of its range")]
        ends = {facts.to_seq: facts for facts in self.exported}
        proven: Mmr | None = None
        for run in self.runs:
            if run.from_seq != tree.size + 1:
                if run.from_seq <= tree.size:
                    continue  # reported as a duplicate
                break
            tree = run.appended_to(tree)
            signed = ends.get(run.to_seq)
            if MmrRoot(run.last_root) != tree.root or (signed is not None and signed.root_after != tree.root):
                span = Interval(run.from_seq, run.to_seq)
                detail = "the imported events do not lead to the root in the last receipt and in the bundle"
                return proven, [self._find(FindingKind.WRONG_ROOT, detail, span)]
            if signed is not None:
                proven = tree
        return proven, []
