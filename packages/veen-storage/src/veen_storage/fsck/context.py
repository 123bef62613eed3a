"""The state that the checks of all labels share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from veen_core.ids import AuthRef, Label, StreamSeq
from veen_storage.commit.applier import encode_finishing
from veen_storage.commit.changes import Changes, Step
from veen_storage.disk.layout import Layout
from veen_storage.errors import REPAIR, RESTORE, DamageError, read_file
from veen_storage.fsck.derived_index import DerivedIndex
from veen_storage.fsck.entries import LogTrust
from veen_storage.fsck.files.log_files import LogFiles
from veen_storage.fsck.index_check import Survey
from veen_storage.fsck.journal_items import HubItem, JournalItem, JournalItems
from veen_storage.fsck.report import Report
from veen_storage.index.tables import FORMAT


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
    survey: Survey | None = None
    """What only the existing index tells; None if it cannot be read."""

    binding_lines: dict[bytes, None] = field(default_factory=dict)
    """Lines of checkpoint-binding.cbor, one for each checkpoint that the index has applied (core §8.4)."""
    rewrites: dict[Path, bytes] = field(default_factory=dict)
    """Derived files that are damaged, with their right content: for repair to write."""
    damaged: set[Label] = field(default_factory=set)
    """Labels whose log is damaged: nothing that follows from the whole log is compared then."""
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

    @property
    def index_format(self) -> bytes | None:
        """Format of the existing index."""
        return self.survey.meta.get(FORMAT) if self.survey is not None else None

    @property
    def known_sizes(self) -> dict[Label, int]:
        """Number of entries of each label according to the existing index."""
        return self.survey.sizes if self.survey is not None else {}

    @property
    def finishing(self) -> bytes:
        """The row of the index that lists the renames and removals of ``unfinished``."""
        return encode_finishing([Changes(steps=self.unfinished)])

    def is_pending(self, item: JournalItem | HubItem) -> bool:
        """Return whether the index has yet to apply this journal item."""
        return item.batch > self.derived.applied

    def damage(
        self,
        label: Label,
        file: str,
        what: str,
        remedy: str = RESTORE,
        *,
        offset: int | None = None,
        seq: StreamSeq | None = None,
    ) -> None:
        """Add a fault, and count the log of its label as damaged."""
        self.report.fault(file, what, remedy, offset=offset, label=label, seq=seq)
        self.damaged.add(label)

    def read(self, path: Path, label: Label, seq: StreamSeq, remedy: str = RESTORE) -> bytes | None:
        """Return the content of a label's file; None, and a fault, if it is missing or cannot be read."""
        try:
            return read_file(path)
        except DamageError as exc:
            self.report.fault(path.name, exc.what, remedy, label=label, seq=seq)
            return None

    def compare(
        self,
        path: Path,
        right: bytes,
        label: Label,
        seq: StreamSeq,
        *,
        rewrite: bool = True,
        grows: bool = False,
    ) -> bytes:
        """Report a file that is not what follows from the log (core §4.8); keep its content for repair.

        Return what follows in a file that ``grows``.
        """
        remedy = REPAIR if rewrite else RESTORE
        held = self.read(path, label, seq, remedy)
        if held is not None:
            if held == right or (grows and held.startswith(right)):
                return held[len(right) :]
            at = next(
                (n for n, pair in enumerate(zip(held, right, strict=False)) if pair[0] != pair[1]), None
            )
            at, what = min(len(held), len(right)) if at is None else at, "does not follow from the log"
            self.report.fault(path.name, what, remedy, offset=at, label=label, seq=seq)
        if rewrite:
            self.rewrites[path] = right
        return b""
