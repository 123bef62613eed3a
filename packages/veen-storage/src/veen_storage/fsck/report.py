"""The report of fsck: faults with file, offset and remedy; notes; and how much was checked."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from veen_core.ids import Label, StreamSeq
from veen_storage.errors import RESTORE

MOVE_AWAY: Final = "move it out of the data directory"


class FsckLevel(enum.Enum):
    """How many signatures fsck verifies; both levels check everything else."""

    FULL = "full"
    QUICK = "quick"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One place where the data directory is damaged."""

    file: str
    what: str
    remedy: str = RESTORE
    offset: int | None = None
    label: Label | None = None
    seq: StreamSeq | None = None

    @property
    def is_repairable(self) -> bool:
        """Whether the remedy names `veen hub repair`."""
        return "`veen hub repair`" in self.remedy

    def __str__(self) -> str:
        place = self.file if self.offset is None else f"{self.file} at byte {self.offset}"
        if self.label is not None:
            place += f", label {self.label.hex()[:16]}…"
        if self.seq is not None:
            place += f", entry {self.seq}"
        return f"{place}: {self.what}; {self.remedy}"


@dataclass(slots=True)
class FsckCounters:
    """How much was checked."""

    labels: int = 0
    entries: int = 0
    signatures: int = 0
    checkpoints: int = 0
    hub_log_entries: int = 0
    attachments: int = 0
    bytes: int = 0
    """Bytes of chunks (uncompressed), of the journal and of attachments."""


ReportProgress = Callable[[int], None]
"""Is called with the number of checked entries, after every few thousand."""


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Return the number with its noun: "1 checkpoint", "2 checkpoints"."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


@dataclass(slots=True)
class Report:
    """The result of a check. ``notes`` says what the check left out and what the next start will finish."""

    level: FsckLevel
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counters: FsckCounters = field(default_factory=FsckCounters)

    @property
    def ok(self) -> bool:
        """Whether no fault was found."""
        return not self.faults

    def lines(self) -> Iterator[str]:
        """Yield the report as text: faults, then notes, then totals."""
        yield from (f"fault: {fault}" for fault in self.faults)
        yield from (f"note: {note}" for note in self.notes)
        seen = self.counters
        parts = (
            f"{counted(seen.entries, 'entry', 'entries')} in {counted(seen.labels, 'label')}",
            counted(seen.signatures, "signature"),
            counted(seen.checkpoints, "checkpoint"),
            *(
                [counted(seen.hub_log_entries, "hub log entry", "hub log entries")]
                if seen.hub_log_entries
                else []
            ),
            counted(seen.attachments, "attachment"),
            counted(seen.bytes, "byte"),
        )
        verdict = "clean" if self.ok else counted(len(self.faults), "fault")
        yield f"{verdict} ({self.level.value}): {', '.join(parts)}"

    def __str__(self) -> str:
        return "\n".join(self.lines())
