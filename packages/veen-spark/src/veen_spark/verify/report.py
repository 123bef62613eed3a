"""What a verification found: a row for each label of each origin, and a summary.

Segments are put together in order here, on the driver: numbers, times and writers continue, no token is
authorized twice, and the peaks that one segment ends with are those that the next was judged from. Whether
the origins of one label agree is for ``histories``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from veen_core.errors import VeenError
from veen_core.mmr import Mmr
from veen_spark.read.segment import Segment
from veen_spark.verify.judge import Fault, Verdict, authorized_before, check_summary, summary_of
from veen_spark.verify.origin import Peaks

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
    """One label in one origin."""

    hub_id: bytes | None
    label: bytes | None
    """None if the folder does not even tell which labels it holds."""
    origin: str
    from_seq: int
    to_seq: int
    """The last entry up to which everything holds."""
    root: bytes | None
    """That the hub signed there."""
    entries: int
    pruned: int
    fault: Fault | None = None
    roots: dict[int, bytes] = field(default_factory=dict)
    """By tree size, where segments begin and end."""

    def row(self) -> dict[str, Any]:
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


def _too_large(value: Any) -> bool:
    return isinstance(value, int) and value >= 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All labels, and what they add up to."""

    labels: tuple[LabelReport, ...]
    hubs: dict[bytes, bool]
    """Every hub whose logs were judged, and whether it was pinned."""
    unsigned: tuple[str, ...]
    """Exports that the hub did not sign: that they are whole, and their registry, is their own word."""
    partly_followed: int
    """Labels with more writers or tokens than are followed from one segment to the next."""

    @property
    def ok(self) -> bool:
        return not self.faults

    @property
    def faults(self) -> list[LabelReport]:
        return [label for label in self.labels if label.fault is not None]

    def frame(self, spark: SparkSession) -> DataFrame:
        """The report table."""
        return spark.createDataFrame(self.table())

    def table(self) -> pa.Table:
        """The same in Arrow. A number too large for a column, which a file's name may have, is null there."""
        rows = [label.row().items() for label in self.labels]
        held = [{name: None if _too_large(value) else value for name, value in row} for row in rows]
        return pa.Table.from_pylist(held, schema=SCHEMA)

    def as_object(self) -> dict[str, Any]:
        """For ``--json``: the summary, and every label that has a fault."""
        return {
            "ok": self.ok,
            "labels": sum(label.label is not None for label in self.labels),
            "entries": sum(label.entries for label in self.labels),
            "pruned": sum(label.pruned for label in self.labels),
            "faults": [_shown(label.row()) for label in self.faults],
            "hubs": [{"hub_id": hub.hex(), "pinned": pinned} for hub, pinned in sorted(self.hubs.items())],
            "unsigned": list(self.unsigned),
            "partly_followed": self.partly_followed,
        }


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in row.items()}


def key_of(segment: Segment) -> tuple[bytes, bytes, str]:
    return (segment.hub_id or b"", segment.label, segment.origin)


Conclude = Callable[[LabelReport, Sequence[Verdict]], Fault | None]
"""What keeps a label that holds by itself from being all that was promised of it."""


def put_together(
    verdicts: Iterable[Verdict], before: dict[tuple[str, int], Peaks | None], conclude: Conclude
) -> tuple[list[LabelReport], int]:
    """Labels from segments; also of how many not all writers and tokens could be followed."""
    ordered = sorted(verdicts, key=lambda v: (*key_of(v.segment), v.segment.start_seq, v.segment.begin))
    reports, partly = [], 0
    for _, group in groupby(ordered, key=lambda v: key_of(v.segment)):
        parts = list(group)
        partly += any(part.writers is None or part.tokens is None for part in parts)
        report = _label(parts, before)
        if report.fault is None:
            report.fault = _summed_up(parts) or conclude(report, parts)
        reports.append(report)
    return reports, partly


def _label(parts: Sequence[Verdict], before: dict[tuple[str, int], Peaks | None]) -> LabelReport:
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
    followed, tokens = _Writers(from_start=first.start_seq == 1), dict[bytes, tuple[int, int]]()
    last: Verdict | None = None
    for part in parts:
        peaks = before[part.segment.path, part.segment.begin]
        reason = _continues(last, part, peaks) or followed.fault(part)
        if reason is not None:
            at = part.segment
            report.fault = Fault(seq=at.start_seq, file=at.path, offset=at.begin, reason=reason)
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


def nothing_of(
    origin: str, fault: Fault | None, *, hub_id: bytes | None = None, label: bytes | None = None
) -> LabelReport:
    """Of a folder, or a label in one, that has no entries to judge."""
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


def _summed_up(parts: Sequence[Verdict]) -> Fault | None:
    """Chunks that were cut, held against their summaries; tasks did so with the others."""
    cut = (part for part in parts if not part.segment.whole)
    for file, group in groupby(cut, key=lambda part: part.segment.path):
        pieces = list(group)
        root, summary = pieces[-1].root, summary_of(pieces[-1].segment)
        if summary is None or root is None:
            continue
        try:
            check_summary(summary, pieces[0].segment.label, root, pieces)
        except (VeenError, OSError) as exc:
            return Fault(seq=pieces[-1].last_seq, file=file, offset=0, reason=str(exc))
    return None


def _continues(last: Verdict | None, part: Verdict, peaks: Peaks | None) -> str | None:
    """What keeps a segment from following the one before it."""
    start = part.segment.start_seq
    if last is not None:
        if start != last.last_seq + 1:
            return f"I3: entry {start} follows entry {last.last_seq}: what was between them is missing"
        if part.entries and part.first_ts < last.last_ts:
            return f"H3: hub_ts {part.first_ts} follows {last.last_ts}"
        if peaks is not None and peaks != last.peaks:
            return f"§5.1: the peaks before entry {start} are not those of the log up to there"
    if peaks is None and part.fault is None:
        return f"§5.1: nothing tells the peaks before entry {start}, so that no root can be checked"
    return None


def _authorized_again(tokens: dict[bytes, tuple[int, int]], part: Verdict) -> Fault | None:
    """H5 from one segment to the next; ``tokens`` are those of the segments before, and learn this one's."""
    found = part.tokens or {}
    for auth_ref, (seq, offset) in found.items():  # in order of entries
        if (before := tokens.get(auth_ref)) is not None:
            reason = f"H5: {authorized_before(auth_ref, before[0])}"
            return Fault(seq=seq, file=part.segment.path, offset=offset, reason=reason)
    tokens |= found
    return None


class _Writers:
    """I9 from one segment to the next."""

    def __init__(self, *, from_start: bool) -> None:
        self._last: dict[bytes, int] = {}
        self._all = from_start
        """Whether a writer that was not seen yet must begin with 1."""

    def fault(self, part: Verdict) -> str | None:
        if part.writers is None:
            self._last, self._all = {}, False
            return None
        for client, (first, last) in part.writers.items():
            expected = self._last.get(client, 0 if self._all else first - 1) + 1
            if first != expected:
                return f"I9: client_seq {first} of {client.hex()} does not follow {expected - 1}"
            self._last[client] = last
        return None
