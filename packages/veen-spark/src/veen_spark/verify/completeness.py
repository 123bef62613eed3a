"""Whether a label is all there: entries that hold by themselves may be what somebody left of it.

In a folder that was looked through whole, the manifest says which entries there are, a data directory has
every label from its first entry on, and checkpoints, peaks and summaries are each of an entry (``beside``).
What nothing beside the log speaks of cannot be missed: entries after the last checkpoint of a data directory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from veen_core.errors import VeenError
from veen_core.ids import Label
from veen_spark.read.segment import Segment
from veen_spark.verify.artifacts import Mark, dealt, marks_of
from veen_spark.verify.judge import Fault, Verdict
from veen_spark.verify.origin import Extent, Gone, Origin
from veen_spark.verify.report import LabelReport, nothing_of

Key = tuple[str, bytes]
"""Origin and label."""


class Beside:
    """Of every label of every origin: the marks that its parts have to bear, and those that none reaches."""

    def __init__(self, parts: Sequence[Segment], origins: Mapping[str, Origin], whole: set[str]) -> None:
        self.held: dict[tuple[str, int], list[Mark]] = {}
        self._origins, self._whole = origins, whole
        self._lost: dict[Key, list[Mark]] = {}
        self._gone: dict[Key, list[Mark]] = {}
        """Likewise, of labels that have no part at all."""
        self._broken: dict[str, Fault] = {}
        ordered = sorted(parts, key=lambda part: (part.origin, part.label, part.start_seq, part.begin))
        for folder, of_folder in groupby(ordered, key=lambda part: part.origin):
            marks = self._marks(folder)
            for label, group in groupby(of_folder, key=lambda part: part.label):
                held, lost = dealt(list(group), marks.pop(label, ()))
                self.held |= held
                self._lost[folder, label] = lost
            self._gone |= {(folder, label): rest for label, rest in marks.items()}
        for folder in sorted((whole & origins.keys()) - {part.origin for part in parts}):
            self._gone |= {(folder, label): rest for label, rest in self._marks(folder).items()}

    def _marks(self, folder: str) -> dict[Label, list[Mark]]:
        try:
            origin = self._origins[folder]
            return marks_of(origin.folder, origin.manifest, indexed=origin.begins is not None)
        except (VeenError, OSError) as exc:
            self._broken[folder] = Fault(seq=0, file=folder, offset=0, reason=str(exc))
            return {}

    def conclude(self, report: LabelReport, parts: Sequence[Verdict]) -> Fault | None:
        """Of a label in which everything holds: what is missing of it."""
        origin, first, last = self._origins.get(report.origin), parts[0], parts[-1]
        if origin is None or report.origin not in self._whole:
            return None
        if report.origin in self._broken:
            return self._broken[report.origin]
        if lost := self._lost.get((report.origin, report.label or b"")):
            return _missing(lost[-1] if lost[-1].seq > report.to_seq else lost[0], report)
        if origin.begins is not None and report.from_seq != origin.begins:
            reason = f"begins with entry {report.from_seq}: what was before it is missing"
            return Fault(seq=origin.begins, file=report.origin, offset=0, reason=reason)
        times = (first.first_ts, last.last_ts)
        found = Extent(report.from_seq, report.to_seq, *times, last.peaks or (), _joined(parts))
        try:
            origin.check_extent(last.segment.label, found)
        except VeenError as exc:
            return Fault(seq=report.to_seq + 1, file=report.origin, offset=0, reason=str(exc))
        return None

    def labels_without_entries(self) -> list[LabelReport]:
        """Labels of which nothing is left but what lay beside them."""
        reports = []
        for (folder, label), marks in sorted(self._gone.items()):
            if folder in self._whole:
                hub_id = bytes(self._origins[folder].terms.identity.hub_id)
                report = nothing_of(folder, None, hub_id=hub_id, label=bytes(label))
                report.fault = _missing(marks[-1], report)
                reports.append(report)
        return reports


def _joined(parts: Sequence[Verdict]) -> Gone:
    """What retention took, in all parts."""
    joined: Gone = []
    for start, end in (gone for part in parts for gone in part.gone):
        if joined and joined[-1][1] == start - 1:
            start = joined.pop()[0]  # noqa: PLW2901 - they are one range
        joined.append((start, end))
    return joined


def _missing(mark: Mark, report: LabelReport) -> Fault:
    there = f"entries {report.from_seq} to {report.to_seq} are there" if report.entries else "none is there"
    reason = f"§4.8.3: is of entry {mark.seq}, but of the label {there}: the rest is missing"
    return Fault(seq=min(mark.seq, report.to_seq + 1), file=mark.file, offset=mark.offset, reason=reason)
