"""Detection of missing entries and labels.

Entries that verify by themselves may be only a part of the label. In a folder that was searched completely,
the manifest states which entries exist, a data directory holds every label from entry 1 on, and every
checkpoint, peaks file and summary belongs to an entry (``artifacts``). If entries after
the last artifact are missing, this cannot be detected: no file mentions them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from veen_core.errors import VeenError
from veen_core.ids import Label
from veen_spark.errors import DamagedLog
from veen_spark.read.segment import SparkSegment
from veen_spark.verify.artifacts import Artifact, assign_to_parts, find_artifacts
from veen_spark.verify.origin import LabelExtent, LogOrigin, PrunedRanges
from veen_spark.verify.report import LabelReport, empty_label
from veen_spark.verify.segment_verifier import LabelFault, SegmentVerdict

Key = tuple[str, bytes]
"""Folder and label."""


class ArtifactIndex:
    """The artifacts of all folders: those of each part, and those whose entry is missing."""

    def __init__(
        self, parts: Sequence[SparkSegment], origins: Mapping[str, LogOrigin], whole: set[str]
    ) -> None:
        self.by_part: dict[tuple[str, int], list[Artifact]] = {}
        """By path and first byte of the part that holds the artifact's entry."""
        self._origins, self._whole = origins, whole
        self._without_entry: dict[Key, list[Artifact]] = {}
        """Artifacts of labels that lack the artifact's entry."""
        self._without_label: dict[Key, list[Artifact]] = {}
        """Artifacts of labels that have no entry at all."""
        self._broken: dict[str, LabelFault] = {}
        ordered = sorted(parts, key=lambda part: (part.origin, part.label, part.start_seq, part.begin))
        for folder, in_folder in groupby(ordered, key=lambda part: part.origin):
            artifacts = self._find(folder)
            for label, group in groupby(in_folder, key=lambda part: part.label):
                by_part, unassigned = assign_to_parts(list(group), artifacts.pop(label, ()))
                self.by_part |= by_part
                self._without_entry[folder, label] = unassigned
            self._without_label |= {(folder, label): rest for label, rest in artifacts.items()}
        for folder in sorted((whole & origins.keys()) - {part.origin for part in parts}):
            self._without_label |= {(folder, label): rest for label, rest in self._find(folder).items()}

    def _find(self, folder: str) -> dict[Label, list[Artifact]]:
        try:
            origin = self._origins[folder]
            return find_artifacts(origin.folder, origin.manifest, indexed=origin.first_seq is not None)
        except (VeenError, OSError) as exc:
            self._broken[folder] = LabelFault(seq=0, file=folder, offset=0, reason=str(exc))
            return {}

    def missing(self, report: LabelReport, parts: Sequence[SegmentVerdict]) -> LabelFault | None:
        """Return the fault of a label that verifies but lacks entries; None if the label is complete."""
        origin, first, last = self._origins.get(report.origin), parts[0], parts[-1]
        if origin is None or report.origin not in self._whole:
            return None
        if report.origin in self._broken:
            return self._broken[report.origin]
        if lost := self._without_entry.get((report.origin, report.label or b"")):
            return _entry_missing(lost[-1] if lost[-1].seq > report.to_seq else lost[0], report)
        if origin.first_seq is not None and report.from_seq != origin.first_seq:
            reason = f"the label begins with entry {report.from_seq}; the entries before it are missing"
            return LabelFault(seq=origin.first_seq, file=report.origin, offset=0, reason=reason)
        times = (first.first_ts, last.last_ts)
        found = LabelExtent(report.from_seq, report.to_seq, *times, last.peaks or (), _joined_ranges(parts))
        try:
            origin.check_extent(last.segment.label, found)
        except DamagedLog as exc:
            return LabelFault(seq=report.to_seq, file=exc.file, offset=exc.offset, reason=exc.reason)
        except VeenError as exc:
            return LabelFault(seq=report.to_seq + 1, file=report.origin, offset=0, reason=str(exc))
        return None

    def labels_without_entries(self) -> list[LabelReport]:
        """Return a report with a fault for each label that has artifacts but no entries."""
        reports = []
        for (folder, label), artifacts in sorted(self._without_label.items()):
            if folder in self._whole:
                hub_id = bytes(self._origins[folder].identity.hub_id)
                report = empty_label(folder, None, hub_id=hub_id, label=bytes(label))
                report.fault = _entry_missing(artifacts[-1], report)
                reports.append(report)
        return reports


def _joined_ranges(parts: Sequence[SegmentVerdict]) -> PrunedRanges:
    """Return the pruned ranges of all parts, adjacent ones joined."""
    joined: PrunedRanges = []
    for start, end in (pruned for part in parts for pruned in part.pruned_ranges):
        if joined and joined[-1][1] == start - 1:
            start = joined.pop()[0]  # noqa: PLW2901 - extends the previous range
        joined.append((start, end))
    return joined


def _entry_missing(artifact: Artifact, report: LabelReport) -> LabelFault:
    extent = f"has entries {report.from_seq} to {report.to_seq}" if report.entries else "has no entries"
    reason = (
        f"core §4.8.3: the file belongs to entry {artifact.seq}, but the label {extent}; the rest is missing"
    )
    seq = min(artifact.seq, report.to_seq + 1)
    return LabelFault(seq=seq, file=artifact.file, offset=artifact.offset, reason=reason)
