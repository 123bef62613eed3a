"""The check of all hub logs: which there are, their trees, and their labels (RESOLUTIONS P1)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from veen_core.errors import DecodeError
from veen_core.hub_export import HUB_EXPORT, HUB_LOG, LABELS
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, Label
from veen_spark.errors import DamagedLog
from veen_spark.read.log_files import LOG, FoundLogs
from veen_spark.verify.hub_log.folder import (
    HubLogFolder,
    check_label_heads,
    read_folder,
    read_hub_export,
)
from veen_spark.verify.hub_log.heads import CheckedLabel, compare_labels, missing_entries
from veen_spark.verify.hub_log.tree import check_trees
from veen_spark.verify.origin import LogOrigin
from veen_spark.verify.report import HubLogReport, LabelReport, empty_label, key_of
from veen_spark.verify.segment_verifier import LabelFault, SegmentVerdict
from veen_spark.verify.tasks import TaskExchange, TaskRunner


@dataclass(slots=True)
class SparkHubLogs:
    """The hub logs under some paths."""

    folders: list[HubLogFolder] = field(default_factory=list)
    owner: dict[str, int] = field(default_factory=dict)
    """The number of the hub log for each folder of labels that it covers."""
    damaged: list[LabelReport] = field(default_factory=list)
    """Hub logs that cannot be checked."""
    without: list[str] = field(default_factory=list)
    """Folders that have no hub log."""

    def add(self, origin: str, hub_log: HubLogFolder | None, covered: Iterable[str]) -> None:
        """Add a hub log that covers the labels in these folders, or note that ``origin`` has none."""
        if hub_log is None:
            self.without.append(origin)
            return
        self.owner |= dict.fromkeys(covered, len(self.folders))
        self.folders.append(hub_log)

    @contextmanager
    def reporting(self, origin: str) -> Iterator[None]:
        """Report a hub log that cannot be checked as a fault of ``origin``."""
        try:
            yield
        except DamagedLog as exc:
            self.damaged.append(empty_label(origin, _fault_of(exc)))


def find_hub_logs(
    found: FoundLogs, origins: Mapping[str, LogOrigin], pinned: Collection[HubId], given: HubIdentity | None
) -> SparkHubLogs:
    """Find the hub logs of data directories that were searched completely, and of exports of whole hubs."""
    logs, exported, in_folder = SparkHubLogs(), set[str](), dict[str, list[str]]()
    for folder in found.whole:
        in_folder.setdefault(os.path.dirname(folder), []).append(folder)
    for home in sorted(found.hub_exports):
        inside = in_folder.get(str(Path(home, LABELS)), [])
        exported.update(inside)
        with logs.reporting(home):
            identity, manifest = read_hub_export(Path(home), pinned, given)
            hub_log = read_folder(Path(home), identity, manifest)
            logs.add(home, hub_log, inside)
            check_label_heads(inside, hub_log)
            if manifest.labels != len(inside):
                reason = f"states {manifest.labels} labels, but there are {len(inside)}"
                raise DamagedLog(str(Path(home, HUB_EXPORT)), 0, reason)
    for folder in sorted(origins.keys() - exported):
        origin = origins[folder]
        if folder in found.whole and origin.folder.name == LOG:
            with logs.reporting(str(origin.home / HUB_LOG)):
                logs.add(folder, read_folder(origin.home, origin.identity), [folder])
        else:
            logs.without.append(folder)
    return logs


def check_hub_logs(
    run: TaskRunner,
    exchange: TaskExchange,
    logs: SparkHubLogs,
    reports: Sequence[LabelReport],
    verdicts: Iterable[SegmentVerdict],
    *,
    max_bytes: int,
) -> tuple[list[LabelReport], list[HubLogReport]]:
    """Check the hub logs; set ``fault`` of reports, and return further reports with faults.

    ``reports`` are those of all labels, ``verdicts`` those of all their parts.
    """
    folders = logs.folders
    check_trees(run, folders, max_bytes)
    found = compare_labels(exchange, folders, list(_labels(logs, reports, verdicts)), max_bytes)
    rows = [*logs.damaged]
    for folder in folders:
        hub_id = bytes(folder.identity.hub_id)
        rows += (empty_label(folder.origin, _fault_of(fault), hub_id=hub_id) for fault in folder.faults)
    for head in found.missing:
        folder = folders[head.hub_log]
        hub_id, fault = bytes(folder.identity.hub_id), missing_entries(head, folder, 0)
        rows.append(empty_label(folder.folder_of(head.label), fault, hub_id=hub_id, label=bytes(head.label)))
    checked = [
        HubLogReport(
            origin=folder.origin,
            hub_id=bytes(folder.identity.hub_id),
            size=folder.size,
            published=folder.published.head.size if folder.published is not None else None,
            covered=coverage.covered,
            uncovered=coverage.uncovered,
        )
        for folder, coverage in zip(folders, found.coverage, strict=True)
    ]
    return rows, checked


def _labels(
    logs: SparkHubLogs, reports: Iterable[LabelReport], verdicts: Iterable[SegmentVerdict]
) -> Iterator[CheckedLabel]:
    """Yield the labels that hub logs cover, with their parts in order."""
    owned = (verdict for verdict in verdicts if verdict.segment.origin in logs.owner)
    ordered = sorted(owned, key=lambda one: (*key_of(one.segment), one.segment.start_seq))
    parts = {key: list(group) for key, group in groupby(ordered, key=lambda one: key_of(one.segment))}
    for report in reports:
        if (number := logs.owner.get(report.origin)) is None:
            continue
        folder = logs.folders[number]
        if (label := _label_of(report)) is None:
            continue  # the whole folder has a fault
        if folder.manifest is not None and report.fault is None:
            report.fault = _exported_fault(folder, label, report)
        key = (report.hub_id or b"", bytes(label), report.origin)
        yield CheckedLabel(number, label, report, [part for part in parts.get(key, ()) if part.entries])


def _exported_fault(folder: HubLogFolder, label: Label, report: LabelReport) -> LabelFault | None:
    """Return a fault unless an exported label is of the export's hub, in its own folder, and from entry 1."""
    expected = (folder.identity.hub_id, folder.folder_of(label), 1)
    if (report.hub_id, report.origin, report.from_seq) == expected:
        return None
    reason = (
        "the folder must hold this hub's export of the label in its name, from entry 1 on, and it does not"
    )
    return LabelFault(seq=report.from_seq, file=report.origin, offset=0, reason=reason)


def _label_of(report: LabelReport) -> Label | None:
    """Return the label of a report; if it is unknown, that of the folder's name."""
    if report.label is not None:
        return Label(report.label)
    try:
        return Label.from_hex(Path(report.origin).name)
    except DecodeError:
        return None


def _fault_of(damage: DamagedLog) -> LabelFault:
    return LabelFault(seq=0, file=damage.file, offset=damage.offset, reason=damage.reason)
