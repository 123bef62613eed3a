"""The report of fsck: faults with file, offset and remedy; notes; and how much was checked."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from veen_core.ids import Label, StreamSeq
from veen_storage.errors import REPAIRABLE, RESTORE, DamageError

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
        """Whether `veen hub repair` mends it, or continues without it."""
        return self.remedy in REPAIRABLE

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

    def add(self, other: FsckCounters) -> None:
        """Add what was checked in another part of the hub."""
        for each in dataclasses.fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


ReportProgress = Callable[[int], None]
"""Is called with the number of checked entries, after every few thousand."""


def no_progress(_entries: int) -> None:
    """Do nothing."""


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Return the number with its noun: "1 checkpoint", "2 checkpoints"."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def describe(exc: Exception) -> str:
    """Return the text of an error, without the file name that a ``DamageError`` puts before it."""
    return exc.what if isinstance(exc, DamageError) else str(exc)


@dataclass(slots=True)
class Report:
    """The result of a check. ``notes`` says what the check left out and what the next start will finish."""

    level: FsckLevel
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counters: FsckCounters = field(default_factory=FsckCounters)
    leftovers: list[str] = field(default_factory=list)
    """Those of the notes that are about temporary files."""

    @property
    def ok(self) -> bool:
        """Whether no fault was found."""
        return not self.faults

    def fault(
        self,
        file: str,
        what: str,
        remedy: str = RESTORE,
        *,
        offset: int | None = None,
        label: Label | None = None,
        seq: StreamSeq | None = None,
    ) -> None:
        self.faults.append(Fault(file=file, what=what, remedy=remedy, offset=offset, label=label, seq=seq))

    def fault_of(self, exc: Exception, file: str, remedy: str = RESTORE) -> None:
        """Add an error as a fault; a ``DamageError`` brings its own file and offset."""
        offset = None
        if isinstance(exc, DamageError):
            file, offset = exc.file, exc.offset
        self.fault(file, describe(exc), remedy, offset=offset)

    def note_leftover(self, file: str, interrupted: str) -> None:
        """Note a temporary file; repair says nothing about it."""
        self.leftovers.append(f"{file} is left over from an interrupted {interrupted} and may be removed")
        self.notes.append(self.leftovers[-1])

    def lines(self) -> Iterator[str]:
        """Yield the report as text: faults, then notes, then totals."""
        yield from (f"fault: {fault}" for fault in self.faults)
        yield from (f"note: {note}" for note in self.notes)
        seen = self.counters
        parts = [
            f"{counted(seen.entries, 'entry', 'entries')} in {counted(seen.labels, 'label')}",
            counted(seen.signatures, "signature"),
            counted(seen.checkpoints, "checkpoint"),
            counted(seen.hub_log_entries, "hub log entry", "hub log entries"),
            counted(seen.attachments, "attachment"),
            counted(seen.bytes, "byte"),
        ]
        if not seen.hub_log_entries:
            del parts[3]
        verdict = "clean" if self.ok else counted(len(self.faults), "fault")
        yield f"{verdict} ({self.level.value}): {', '.join(parts)}"

    def __str__(self) -> str:
        return "\n".join(self.lines())
