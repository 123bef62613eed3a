"""The heads of hub logs, against the labels that were verified (RESOLUTIONS P1).

1. Tasks read the entries of the hub logs and send each head to the task that reads the part of its label with
   that entry (``placement``). That task compares root and hub_ts with the RECEIPT (``comparison``).
2. A head whose entry is in no part shows that its label is missing or too short.
3. Within a label, later heads name later entries. An entry after a label's newest head must not be older than
   the newest head of the hub log (``veen_core.hub_log.check_uncovered``).

A label that has a fault already is not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from veen_core.errors import InvariantError
from veen_core.hub_log import check_uncovered
from veen_core.ids import Label, StreamSeq, UnixTime
from veen_spark.read.plan import group_by_size
from veen_spark.verify.hub_log.comparison import PartHeads, compare_heads, goes_back
from veen_spark.verify.hub_log.folder import HubLogFolder
from veen_spark.verify.hub_log.placement import (
    LabelPart,
    LostHead,
    Placement,
    PlacementRow,
    collect_lost,
    send_heads,
)
from veen_spark.verify.report import LabelReport, PartKey, part_key
from veen_spark.verify.segment_verifier import LabelFault, SegmentVerdict
from veen_spark.verify.tasks import Records, TaskExchange

_MAX_SEQ: Final = 2**63 - 1
Found = list[PartHeads] | list[LostHead]


@dataclass(slots=True)
class CheckedLabel:
    """A label in the folder of a hub log, and its parts with entries."""

    hub_log: int
    """The number of the hub log."""
    label: Label
    report: LabelReport
    parts: Sequence[SegmentVerdict]


@dataclass(slots=True)
class Coverage:
    """The number of labels that a hub log covers, and of those with later entries."""

    covered: int = 0
    uncovered: int = 0


@dataclass(slots=True)
class HeadsResult:
    """The outcome of the comparison; faults of labels are in their reports."""

    coverage: list[Coverage]
    """By the number of the hub log."""
    missing: list[LostHead] = field(default_factory=list)
    """The newest head of each label that has no entries."""


def compare_labels(
    exchange: TaskExchange, folders: Sequence[HubLogFolder], labels: Sequence[CheckedLabel], max_bytes: int
) -> HeadsResult:
    """Compare the heads of all hub logs with the labels; set ``fault`` of the reports."""
    compared = [label for label in labels if label.report.fault is None]
    ignored = [label for label in labels if label.report.fault is not None]
    parts = [
        LabelPart(part.segment, part.entries, part.root or b"", part.last_ts)
        for label in compared
        for part in label.parts
    ]
    tasks = group_by_size(parts, lambda part: part.segment.size, max_bytes)
    entries = [part for folder in folders for part in folder.parts]
    placement = Placement(_rows(compared, ignored, tasks), len(tasks), max(1, len(entries)))
    receivers: list[list[LabelPart] | None] = [*tasks, *([None] * len(entries))]
    found = exchange(partial(send_heads, placement), entries, receive_heads, receivers)
    heads: dict[PartKey, PartHeads] = {}
    lost: dict[tuple[int, Label], LostHead] = {}
    for one in (one for results in found.values() for one in results):
        if isinstance(one, LostHead):
            lost[one.hub_log, one.label] = one
        else:
            heads[one.key] = one
    result = HeadsResult([Coverage() for _ in folders])
    for label in compared:
        shown = lost.pop((label.hub_log, label.label), None)
        _conclude(label, folders[label.hub_log], heads, shown, result.coverage[label.hub_log])
    result.missing = [head for _, head in sorted(lost.items())]
    return result


def _rows(
    compared: Iterable[CheckedLabel],
    ignored: Iterable[CheckedLabel],
    tasks: Iterable[Sequence[LabelPart]],
) -> Iterator[PlacementRow]:
    """Yield the rows of the placement: one per part, and one per label whose heads are ignored."""
    owner = {part_key(part.segment): label for label in compared for part in label.parts}
    for receiver, parts in enumerate(tasks):
        for number, part in enumerate(parts):
            label = owner[part_key(part.segment)]
            yield PlacementRow(
                label.hub_log, label.label, part.segment.start_seq, part.last_seq, receiver, number
            )
    for label in ignored:
        yield PlacementRow(label.hub_log, label.label, 0, _MAX_SEQ, None)


def _conclude(
    label: CheckedLabel,
    folder: HubLogFolder,
    heads: Mapping[PartKey, PartHeads],
    lost: LostHead | None,
    coverage: Coverage,
) -> None:
    """Join the comparisons of one label's parts; set the fault of its report."""
    report, last = label.report, None
    next_ts = label.parts[0].first_ts if label.parts else None
    for number, part in enumerate(label.parts):
        found = heads.get(part_key(part.segment))
        if found is None:
            continue
        fault = found.fault
        if fault is None and last is not None and found.first_index < last.last_index:
            fault = goes_back(found.first_seq, last.last_seq, last.last_offset)
        if fault is not None:
            report.fault = LabelFault(
                seq=fault.seq, file=folder.entries, offset=fault.offset, reason=fault.reason
            )
            return
        last, next_ts = found, found.next_ts
        if next_ts is None and number + 1 < len(label.parts):
            next_ts = label.parts[number + 1].first_ts
    if lost is not None:
        report.fault = missing_entries(lost, folder, report.to_seq)
        return
    if next_ts is not None and not folder.faults:
        report.fault = _uncovered(label.label, last.last_seq if last else 0, next_ts, folder)
    if report.fault is None and not folder.faults:
        coverage.covered += last is not None
        coverage.uncovered += next_ts is not None


def _uncovered(label: Label, newest: int, next_ts: int, folder: HubLogFolder) -> LabelFault | None:
    """Return a fault if the hub log must cover the entry after a label's newest head."""
    newest_ts = UnixTime(folder.trees[folder.size].newest_ts)
    try:
        check_uncovered(label, StreamSeq(newest + 1), UnixTime(next_ts), newest_ts)
    except InvariantError as exc:
        return LabelFault(seq=newest + 1, file=folder.entries, offset=0, reason=str(exc))
    return None


def missing_entries(head: LostHead, folder: HubLogFolder, to_seq: int) -> LabelFault:
    """Return the fault of a label that ends before its newest head, or has no entries at all."""
    found, missing = (f"ends at entry {to_seq}", "rest") if to_seq else ("has no entries", "whole label")
    reason = (
        f"P1: the label {found}, but the hub log has its head at entry {head.seq}; the {missing} is missing"
    )
    return LabelFault(seq=to_seq + 1, file=folder.entries, offset=head.offset, reason=reason)


# --- on executors


def receive_heads(parts: list[LabelPart] | None, batches: Iterator[Records]) -> Found:
    """Compare heads with parts of labels; without parts, collect the newest head of each label."""
    return collect_lost(batches) if parts is None else compare_heads(parts, batches)
