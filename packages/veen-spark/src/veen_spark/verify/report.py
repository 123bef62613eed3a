"""The report of a verification: one row per label and folder, and a summary.

The driver joins the verdicts of a label's segments in order. Across segments it checks that stream_seq,
hub_ts and the writers' client_seq continue, that no token is authorized twice, and that each segment was
verified from the peaks that the previous one ended with. ``histories_agree`` compares copies of a label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from veen_core.errors import VeenError
from veen_core.log_rules import CONSECUTIVE, POSITION, TIME, TOKEN
from veen_core.mmr import Mmr
from veen_spark.read.segment import SparkSegment
from veen_spark.verify.origin import Peaks
from veen_spark.verify.segment_verifier import (
    LabelFault,
    SegmentVerdict,
    check_summary,
    summary_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema(
    [
        ("hub_id", pa.binary()),
        ("label", pa.binary()),
        ("origin", pa.string()),
        ("from_seq", pa.int64()),
        ("to_seq", pa.int64()),
        ("root", pa.binary()),
        ("entries", pa.int64()),
        ("pruned", pa.int64()),
        ("verdict", pa.string()),
        ("fault_seq", pa.int64()),
        ("fault_file", pa.string()),
        ("fault_offset", pa.int64()),
        ("first_fault", pa.string()),
    ]
)


@dataclass(slots=True, kw_only=True)
class LabelReport:
    """The result for one label in one folder."""

    hub_id: bytes | None
    label: bytes | None
    """None if the folder is too damaged to know its labels."""
    origin: str
    from_seq: int
    to_seq: int
    """The last entry up to which everything verifies."""
    root: bytes | None
    """The root that the hub signed at that entry."""
    entries: int
    pruned: int
    fault: LabelFault | None = None
    roots: dict[int, bytes] = field(default_factory=dict)
    """The roots where segments begin and end, by tree size."""

    def row(self) -> dict[str, Any]:
        """Return the label as a row of the report table."""
        fault = self.fault
        return {
            "hub_id": self.hub_id,
            "label": self.label,
            "origin": self.origin,
            "from_seq": self.from_seq,
            "to_seq": self.to_seq,
            "root": self.root,
            "entries": self.entries,
            "pruned": self.pruned,
            "verdict": "ok" if fault is None else "fault",
            "fault_seq": fault.seq if fault else None,
            "fault_file": fault.file if fault else None,
            "fault_offset": fault.offset if fault else None,
            "first_fault": fault.reason if fault else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HubLogReport:
    """The result for one hub log; its faults are rows of the report, like those of labels."""

    origin: str
    """The folder of the hub log."""
    hub_id: bytes
    size: int
    """The number of heads that the newest hub checkpoint covers."""
    published: int | None
    """The size of the published hub checkpoint."""
    covered: int
    """Labels whose heads in the hub log agree with their entries."""
    uncovered: int
    """Labels with entries after their newest head, which the hub checkpoint does not commit to."""

    def as_object(self) -> dict[str, Any]:
        """Return the hub log for ``--json``."""
        return {
            "origin": self.origin,
            "hub_id": self.hub_id.hex(),
            "size": self.size,
            "published": self.published,
            "covered": self.covered,
            "uncovered": self.uncovered,
        }


def _too_large(value: Any) -> bool:
    return isinstance(value, int) and value >= 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationReport:
    """The results for all labels."""

    labels: tuple[LabelReport, ...]
    hubs: dict[bytes, bool]
    """Every hub whose logs were verified, and whether it was pinned."""
    unsigned: tuple[str, ...]
    """Exports without manifest.sig: nothing vouches for their registry and their completeness."""
    partly_followed: int
    """Number of labels with too many writers or tokens in a segment to compare them with the next segment."""
    hub_logs: tuple[HubLogReport, ...] = ()
    """The hub logs that were checked."""
    without_hub_log: tuple[str, ...] = ()
    """Folders for which there was no hub log to check: a missing label would not show."""

    @property
    def ok(self) -> bool:
        """Whether no check failed. ``complete`` says whether every check was made."""
        return not self.faults

    @property
    def complete(self) -> bool:
        """Whether every check was made: false if ``partly_followed`` is not 0."""
        return self.partly_followed == 0

    @property
    def faults(self) -> list[LabelReport]:
        """The labels with a fault."""
        return [label for label in self.labels if label.fault is not None]

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the report table as a DataFrame."""
        return spark.createDataFrame(self.table())

    def table(self) -> pa.Table:
        """Return the report table in Arrow; a number beyond 2^63 - 1 from a forged file name becomes null."""
        rows = [label.row().items() for label in self.labels]
        bounded = [{name: None if _too_large(value) else value for name, value in row} for row in rows]
        return pa.Table.from_pylist(bounded, schema=SCHEMA)

    def as_object(self) -> dict[str, Any]:
        """Return the summary and the labels with a fault, for ``--json``."""
        return {
            "ok": self.ok,
            "complete": self.complete,
            "labels": sum(label.label is not None for label in self.labels),
            "entries": sum(label.entries for label in self.labels),
            "pruned": sum(label.pruned for label in self.labels),
            "faults": [_shown(label.row()) for label in self.faults],
            "hubs": [{"hub_id": hub.hex(), "pinned": pinned} for hub, pinned in sorted(self.hubs.items())],
            "unsigned": list(self.unsigned),
            "partly_followed": self.partly_followed,
            "hub_logs": [hub_log.as_object() for hub_log in self.hub_logs],
            "without_hub_log": list(self.without_hub_log),
        }


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in row.items()}


def key_of(segment: SparkSegment) -> tuple[bytes, bytes, str]:
    """Return hub, label and folder: segments with the same key make up one ``LabelReport``."""
    return (segment.hub_id or b"", segment.label, segment.origin)


PartKey = tuple[str, int]
"""Path and first byte of a part."""


def part_key(segment: SparkSegment) -> PartKey:
    """Return the key of a part."""
    return segment.path, segment.begin


FindMissing = Callable[[LabelReport, Sequence[SegmentVerdict]], LabelFault | None]
"""Returns the fault of a label that verifies but lacks entries, or None."""


def assemble_labels(
    verdicts: Iterable[SegmentVerdict], before: dict[tuple[str, int], Peaks | None], find_missing: FindMissing
) -> tuple[list[LabelReport], int]:
    """Join verdicts to one report per label; also return the number of labels that were compared partly."""
    ordered = sorted(verdicts, key=lambda v: (*key_of(v.segment), v.segment.start_seq, v.segment.begin))
    reports, partly = [], 0
    for _, group in groupby(ordered, key=lambda v: key_of(v.segment)):
        parts = list(group)
        partly += any(part.writers is None or part.tokens is None for part in parts)
        report = _join(parts, before)
        if report.fault is None:
            report.fault = _summary_fault(parts) or find_missing(report, parts)
        reports.append(report)
    return reports, partly


def _join(parts: Sequence[SegmentVerdict], before: dict[tuple[str, int], Peaks | None]) -> LabelReport:
    first = parts[0].segment
    report = LabelReport(
        hub_id=first.hub_id,
        label=bytes(first.label),
        origin=first.origin,
        from_seq=first.start_seq,
        to_seq=first.start_seq - 1,
        root=None,
        entries=sum(part.entries for part in parts),
        pruned=sum(part.pruned for part in parts),
    )
    writers, tokens = _Writers(from_start=first.start_seq == 1), dict[bytes, tuple[int, int]]()
    last: SegmentVerdict | None = None
    for part in parts:
        peaks = before[part.segment.path, part.segment.begin]
        reason = _continues(last, part, peaks) or writers.fault(part)
        if reason is not None:
            at = part.segment
            report.fault = LabelFault(seq=at.start_seq, file=at.path, offset=at.begin, reason=reason)
            break
        if (again := _authorized_again(tokens, part)) is not None:
            report.fault = again
            break
        if part.entries:
            report.to_seq, report.root = part.last_seq, part.root
        if part.fault is not None:
            report.fault = part.fault
            break
        if peaks is not None:
            report.roots[part.segment.start_seq - 1] = Mmr(part.segment.start_seq - 1, peaks).root
        if part.root is not None:
            report.roots[part.last_seq] = part.root
        last = part
    return report


def empty_label(
    origin: str, fault: LabelFault | None, *, hub_id: bytes | None = None, label: bytes | None = None
) -> LabelReport:
    """Return the report of a folder, or of a label in it, that has no entries."""
    return LabelReport(
        hub_id=hub_id,
        label=label,
        origin=origin,
        from_seq=1,
        to_seq=0,
        root=None,
        entries=0,
        pruned=0,
        fault=fault,
    )


def _summary_fault(parts: Sequence[SegmentVerdict]) -> LabelFault | None:
    """Compare split chunks with their summaries, and return a fault; tasks compare the other chunks."""
    cut = (part for part in parts if not part.segment.whole)
    for _, group in groupby(cut, key=lambda part: part.segment.path):
        pieces = list(group)
        root, summary = pieces[-1].root, summary_of(pieces[-1].segment)
        if summary is None or root is None:
            continue
        try:
            check_summary(summary, pieces[0].segment.label, root, pieces)
        except (VeenError, OSError) as exc:
            return LabelFault(seq=pieces[-1].last_seq, file=str(summary), offset=0, reason=str(exc))
    return None


def _continues(last: SegmentVerdict | None, part: SegmentVerdict, peaks: Peaks | None) -> str | None:
    """Return the reason why a segment does not continue the previous one, or None."""
    start = part.segment.start_seq
    if last is not None:
        if start != last.last_seq + 1:
            found = f"the entry follows entry {last.last_seq}; the entries in between are missing"
            return str(POSITION.broken(found, start))
        if part.entries and part.first_ts < last.last_ts:
            return str(TIME.broken(f"hub_ts goes back from {last.last_ts} to {part.first_ts}", start))
        if peaks is not None and peaks != last.peaks:
            return f"core §5.1: the peaks before entry {start} differ from those of the log up to there"
    if peaks is None and part.fault is None:
        return f"core §5.1: the peaks before entry {start} are unknown, so no root can be checked"
    return None


def _authorized_again(tokens: dict[bytes, tuple[int, int]], part: SegmentVerdict) -> LabelFault | None:
    """Return a fault if the segment authorizes a token of an earlier segment (RESOLUTIONS H5).

    ``tokens`` holds the tokens of the earlier segments; those of this segment are added.
    """
    found = part.tokens or {}
    for auth_ref, (seq, offset) in found.items():  # in the order of entries
        if (before := tokens.get(auth_ref)) is not None:
            error = TOKEN.broken(f"token {auth_ref.hex()} was already authorized by entry {before[0]}", seq)
            return LabelFault(seq=seq, file=part.segment.path, offset=offset, reason=str(error))
    tokens |= found
    return None


class _Writers:
    """The writers' counters across segments (I9)."""

    def __init__(self, *, from_start: bool) -> None:
        self._last: dict[bytes, int] = {}
        self._complete = from_start
        """Whether all writers so far are known, so that a new one must begin with 1."""

    def fault(self, part: SegmentVerdict) -> str | None:
        """Return the reason why a writer's client_seq does not continue, or None."""
        if part.writers is None:
            self._last, self._complete = {}, False
            return None
        for client, (first, last) in part.writers.items():
            expected = self._last.get(client, 0 if self._complete else first - 1) + 1
            if first != expected:
                found = f"client_seq {first} of writer {client.hex()} does not follow {expected - 1}"
                return str(CONSECUTIVE.broken(found, part.segment.start_seq))
            self._last[client] = last
        return None
