"""The state that the checks of all labels share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from veen_core.ids import AuthRef, Label, StreamSeq
from veen_storage.commit.changes import Step
from veen_storage.disk.layout import Layout
from veen_storage.fsck.derived_index import DerivedIndex
from veen_storage.fsck.entries import LogTrust
from veen_storage.fsck.files.derived_files import Bindings
from veen_storage.fsck.files.log_files import LogFiles
from veen_storage.fsck.journal_items import HubItem, JournalItem, JournalItems
from veen_storage.fsck.report import Fault, Report


@dataclass(slots=True)
class FoldContext:
    """Inputs and results of checking the log."""

    layout: Layout
    trust: LogTrust
    report: Report
    log: LogFiles
    """The files that the check has not accounted for yet; those left at the end belong to no entry or
    checkpoint."""
    journal: JournalItems
    derived: DerivedIndex
    index_format: bytes | None = None
    """Format of the existing index; None if it cannot be read."""
    known_sizes: Mapping[Label, int] = field(default_factory=dict)
    """Number of entries of each label according to the existing index, if it can be read."""
    bindings: Bindings = field(default_factory=Bindings)
    rewrites: dict[Path, bytes] = field(default_factory=dict)
    """Derived files that are damaged, with their right content: for repair to write."""
    damaged: set[Label] = field(default_factory=set)
    """Labels whose log is damaged: their rows in the index are not compared with the log."""
    unknown_anchors: set[tuple[Label, StreamSeq]] = field(default_factory=set)
    """Anchors whose row in the index does not follow from the files."""
    index_tails: dict[Label, tuple[int, bytes]] = field(default_factory=dict)
    """The bytes after the applied lines of a label's checkpoint index: offset and content."""
    unfinished: list[Step] = field(default_factory=list)
    """Chunks that were sealed or pruned, and whose old file is still there."""
    tokens: set[AuthRef] = field(default_factory=set)
    sizes: dict[Label, int] = field(default_factory=dict)
    """Number of entries of each label, without those that only the journal holds."""

    hub_log_damaged: bool = False
    """Whether the hub log could not be read as far as the index has applied it."""
    hub_checkpoint_known: bool = True
    """False if an interrupted round has replaced the hub checkpoint that the index has applied."""

    @property
    def zstd(self) -> bool:
        return self.trust.registry.zstd_level is not None

    def is_pending(self, item: JournalItem | HubItem) -> bool:
        """Return whether the index has yet to apply this journal item."""
        return item.batch > self.derived.applied

    def fault(self, file: str, what: str, **place: object) -> None:
        self.report.faults.append(Fault(file=file, what=what, **place))  # type: ignore[arg-type]  # Fault's fields
