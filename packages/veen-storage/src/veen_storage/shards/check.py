"""fsck and repair of a sharded hub: every part as a directory of its own, then what joins them.

1. Each part is checked in full, as a hub with one shard is: entries, receipts, its own hub log, its index.
2. Each shard holds only its own labels, and its copy of the control label is a prefix of the control label.
3. Every entry of the joined hub log has root and time of the RECEIPT in the part that owns the label. The
   tree over all entries has the root that the hub signed.
4. The joined hub log continues what each shard has seen of it, so it was not restored alone.
5. Every entry after a label's newest head in the joined hub log is as young as the newest head of any
   label (P1).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from veen_core.errors import InvariantError, VeenError
from veen_core.hub_log import HeadTable, LabelHead, check_uncovered
from veen_core.ids import Label, StreamSeq
from veen_storage.disk.directory_lock import DirectoryLock
from veen_storage.disk.files import Files
from veen_storage.disk.layout import HUB_LOG_ENTRIES, Layout
from veen_storage.errors import FSCK, REPAIR, DamageError
from veen_storage.fsck import fsck
from veen_storage.fsck.repair import RepairReport, repair
from veen_storage.fsck.report import FsckLevel, Report, ReportProgress
from veen_storage.index.view_store import ViewStore
from veen_storage.shards.joined_hub_log import JoinedHubLog, create_joined, read_entries
from veen_storage.shards.merged_order import order_file
from veen_storage.shards.seen_hub_log import read_seen
from veen_storage.shards.sharded_layout import (
    CONTROL,
    ShardedLayout,
    ShardMap,
    control_label_of,
    owner_of,
    part_name,
    part_numbers,
    read_shard_map,
)
from veen_storage.store import Store


def fsck_sharded(
    root: Path,
    *,
    level: Literal["full", "quick"] = "full",
    progress: ReportProgress | None = None,
    processes: int | None = None,
) -> Report:
    """Check the directory of a sharded hub that no process has open."""
    layout = ShardedLayout(root)
    shards = read_shard_map(layout)
    lock = DirectoryLock(Layout(root))
    try:
        report = Report(FsckLevel(level))
        for number in part_numbers(shards.count):
            found = fsck(
                layout.part(number).root, level=level, progress=progress, processes=processes, part=True
            )
            _add(report, found, part_name(number))
        if report.ok:
            _check_joined(layout, shards, report)
        else:
            report.notes.append("the joined hub log was not checked, because a part is damaged")
        return report
    finally:
        lock.release()


def _add(report: Report, found: Report, name: str) -> None:
    """Add the report of a part; files are named with their part."""
    report.faults += [dataclasses.replace(fault, file=f"parts/{name}/{fault.file}") for fault in found.faults]
    report.notes += [f"parts/{name}: {note}" for note in found.notes]
    report.counters.add(found.counters)


def _check_joined(layout: ShardedLayout, shards: ShardMap, report: Report) -> None:
    """Do steps 2 to 5; opening a part applies its journal."""
    with ExitStack() as opened:
        parts = {
            number: opened.enter_context(
                Store(layout.part(number).root, keys_directory=layout.keys, part=True)
            )
            for number in part_numbers(shards.count)
        }
        for store in parts.values():
            store.settle()
        try:
            _JoinedCheck(parts, shards, report).run(layout)
        except VeenError as exc:
            report.fault_of(exc, "joined", exc.action or FSCK)


class _JoinedCheck:
    def __init__(self, parts: dict[int, Store], shards: ShardMap, report: Report) -> None:
        self._parts = parts
        self._count = shards.count
        self._report = report
        self._control_label = control_label_of(parts[CONTROL].registry.hub_id)
        self._table = HeadTable()

    def run(self, layout: ShardedLayout) -> None:
        self._check_owners()
        joined = JoinedHubLog(layout.joined, self._parts[CONTROL].identity)
        try:
            size = 0
            self._report.counters.hub_log_entries = 0  # those of the parts' own hub logs were counted
            for data, head in read_entries(layout.joined):
                self._check_entry(size, data, head, joined)
                size += 1
            self._report.counters.hub_log_entries += size
            if size != joined.reader.size:
                self._fault(f"has {size} entries, but the index has {joined.reader.size}")
            self._check_seen(joined)
        finally:
            joined.close()
        self._check_uncovered()

    def _owner(self, label: Label) -> int:
        return CONTROL if label == self._control_label else owner_of(label, self._count)

    def _fault(self, what: str, label: Label | None = None, seq: StreamSeq | None = None) -> None:
        self._report.fault(f"joined/{HUB_LOG_ENTRIES}", what, label=label, seq=seq)

    def _check_owners(self) -> None:
        """Check that each label is in the part that owns it, and the copies of the control label."""
        for number, store in self._parts.items():
            for label in store.read.all_labels():
                if label == self._control_label:
                    self._check_copy(number, store)
                elif self._owner(label) != number:
                    what = f"belongs into {part_name(self._owner(label))}"
                    file = f"parts/{part_name(number)}/log"
                    self._report.fault(file, what, label=label)

    def _check_copy(self, number: int, store: Store) -> None:
        head, label = store.read.head(self._control_label), self._control_label
        original = self._parts[CONTROL].read.head(label)
        if head is None or number == CONTROL:
            return
        self._report.counters.labels -= 1  # the hub has this label once
        self._report.counters.entries -= head.stream_seq
        if original is None or original.stream_seq < head.stream_seq:
            self._fault(f"{part_name(number)} has tokens that the control part lost", label, head.stream_seq)
        elif self._parts[CONTROL].read.root(label, head.stream_seq) != head.mmr_root:
            self._fault(f"{part_name(number)} has another control label", label, head.stream_seq)

    def _check_entry(self, index: int, data: bytes, head: LabelHead, joined: JoinedHubLog) -> None:
        """Check one entry of the joined hub log against the owner's own receipt, and against the index."""
        self._table.add(head)
        read = self._parts[self._owner(head.label)].read
        try:
            receipt = read.receipt(head.label, head.upto_seq)
        except VeenError as exc:
            self._fault(f"entry {index}: {exc}", head.label, head.upto_seq)
            return
        if (receipt.mmr_root, receipt.hub_ts) != (head.mmr_root, head.hub_ts):
            self._fault("root or time is not that of the label's RECEIPT", head.label, head.upto_seq)
        found, place = joined.reader.head_of(head.label, head.upto_seq)
        if (found.encode(), place) != (data, index):
            raise DamageError("joined/index", None, f"does not find entry {index}", REPAIR)

    def _check_seen(self, joined: JoinedHubLog) -> None:
        for number, store in self._parts.items():
            path = store.layout.view("hub")
            if number == CONTROL or not path.exists():
                continue
            with ViewStore(path) as state:
                seen = read_seen(state)
            if not seen.is_continued_by(joined.reader):
                self._fault(f"does not continue the {seen.size} entries that {part_name(number)} has seen")

    def _check_uncovered(self) -> None:
        for label, seq in self._first_uncovered():
            receipt = self._parts[self._owner(label)].read.receipt(label, seq)
            try:
                check_uncovered(label, seq, receipt.hub_ts, self._table.hub_ts)
            except InvariantError as exc:
                self._fault(str(exc), label, seq)

    def _first_uncovered(self) -> Iterator[tuple[Label, StreamSeq]]:
        """Yield the first entry of each label that no head covers."""
        for number, store in self._parts.items():
            for label in store.read.all_labels():
                if self._owner(label) != number:
                    continue
                newest, head = self._table.newest.get(label), store.read.head(label)
                covered = newest.upto_seq if newest is not None else 0
                if head is not None and head.stream_seq > covered:
                    yield label, StreamSeq(covered + 1)


def repair_sharded(root: Path, progress: ReportProgress | None = None) -> RepairReport:
    """Rebuild the index of every part, and of the joined hub log, from the files."""
    layout = ShardedLayout(root)
    shards = read_shard_map(layout)
    lock = DirectoryLock(Layout(root))
    result = RepairReport()
    try:
        for number in part_numbers(shards.count):
            found = repair(layout.part(number).root, progress, part=True)
            name = part_name(number)
            result.rewritten += [f"parts/{name}/{file}" for file in found.rewritten]
            result.notes += [f"parts/{name}: {note}" for note in found.notes]
            result.counters.add(found.counters)
        with Store(layout.part(CONTROL).root, keys_directory=layout.keys, part=True) as control:
            identity = control.identity
        create_joined(layout.joined, identity, Files())
        order_file(layout.joined).unlink(missing_ok=True)  # parts may count their batches anew
        result.rewritten.append("joined/index")
    finally:
        lock.release()
    return result
