"""What the folds of all labels share: where they read, what they report, and what they derive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from veen_core.ids import AuthRef, Label, StreamSeq
from veen_storage.commit.changes import Step
from veen_storage.disk.layout import Layout
from veen_storage.fsck.artifacts import Bindings
from veen_storage.fsck.derive import Derivation
from veen_storage.fsck.entries import Trust
from veen_storage.fsck.files import JournalFiles, LogFiles
from veen_storage.fsck.index import Recorded
from veen_storage.fsck.report import REPAIR, Fault, Report

Unfinished = tuple[str, Label, StreamSeq, StreamSeq]


@dataclass(slots=True)
class Book:
    """What all labels share."""

    layout: Layout
    trust: Trust
    report: Report
    log: LogFiles
    journal: JournalFiles
    derivation: Derivation
    finishing: frozenset[Unfinished] | None
    """What the index says is still to be finished; None if no index says anything."""
    heads: Mapping[Label, Recorded] | None = None
    """Where the index says that labels stand; None likewise."""
    bindings: Bindings = field(default_factory=Bindings)
    rewrites: dict[Path, bytes] = field(default_factory=dict)
    broken: set[Label] = field(default_factory=set)
    """Labels whose rows in the index cannot be judged."""
    unsure: set[tuple[str, Label, StreamSeq]] = field(default_factory=set)
    """Single rows that cannot be judged."""
    unfinished: list[Step] = field(default_factory=list)
    """Chunks that are sealed or pruned, and whose files have not got there yet."""
    tokens: set[AuthRef] = field(default_factory=set)
    sizes: dict[Label, int] = field(default_factory=dict)
    """Entries of each label, those in the journal included."""

    @property
    def applied(self) -> int:
        return self.derivation.applied

    def fault(self, file: str, what: str, **place: object) -> None:
        self.report.faults.append(Fault(file=file, what=what, **place))  # type: ignore[arg-type]  # Fault's own

    def leave_open(self, step: Step, row: Unfinished, file: str) -> None:
        """The files of a sealed or pruned chunk are not as they will be: fine if the index says so."""
        self.unfinished.append(step)
        if self.finishing is not None and row not in self.finishing:
            kind, label, start, end = row
            what = f"should be gone: entries {start} to {end} are {'sealed' if kind == 'seal' else 'pruned'}"
            self.fault(file, what, label=label, seq=start, remedy=REPAIR)
