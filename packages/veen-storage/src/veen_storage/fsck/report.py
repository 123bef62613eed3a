"""What fsck has to say: faults with a place and a remedy, notes, and how much was looked at."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from veen_core.ids import Label, StreamSeq

REPAIR: Final = "run `veen hub repair`"
"""The remedy where everything that is wrong follows from files that are right."""
RESTORE: Final = "restore it from a clone"
"""The remedy where something is gone that only a copy can bring back."""


class Level(enum.Enum):
    """How much is verified; everything else is looked at on both levels."""

    FULL = "full"
    QUICK = "quick"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is not as it must be."""

    file: str
    what: str
    remedy: str = RESTORE
    offset: int | None = None
    label: Label | None = None
    seq: StreamSeq | None = None

    @property
    def is_repairable(self) -> bool:
        """Whether repair is the remedy, at least where nothing better is at hand."""
        return "`veen hub repair`" in self.remedy

    def __str__(self) -> str:
        place = self.file if self.offset is None else f"{self.file} at byte {self.offset}"
        if self.label is not None:
            place += f", label {self.label.hex()[:16]}…"
        if self.seq is not None:
            place += f", entry {self.seq}"
        return f"{place}: {self.what}; {self.remedy}"


@dataclass(slots=True)
class Counters:
    """What was looked at."""

    labels: int = 0
    entries: int = 0
    signatures: int = 0
    checkpoints: int = 0
    attachments: int = 0
    bytes: int = 0
    """Of chunks (uncompressed), of the journal and of attachments."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is; handed out between labels and every few thousand entries."""

    doing: str
    labels: int
    labels_total: int
    entries: int
    bytes: int


@dataclass(slots=True)
class Report:
    """Everything that was found. ``ok`` says that there is no fault, and ``notes`` what that covers."""

    level: Level
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)

    @property
    def ok(self) -> bool:
        return not self.faults

    def lines(self) -> Iterator[str]:
        """For people: faults first, then notes, then the sum."""
        yield from (f"fault: {fault}" for fault in self.faults)
        yield from (f"note: {note}" for note in self.notes)
        seen = self.counters
        yield (
            f"{'clean' if self.ok else f'{len(self.faults)} faults'} ({self.level.value}): "
            f"{seen.entries} entries in {seen.labels} labels, {seen.signatures} of their signatures, "
            f"{seen.checkpoints} checkpoints, {seen.attachments} attachments, {seen.bytes} bytes"
        )

    def __str__(self) -> str:
        return "\n".join(self.lines())
