"""Kept segments: applied journal segments that replicas may still have to read (RESOLUTIONS P9, ADR 0019).

The hub itself needs no applied segment. An applied segment is moved to ``journal-kept/`` instead of being
removed, so that a replica that was away for a while continues where it stopped. The folder is bounded by
bytes and by age.

A payload that retention prunes from the log must not survive here (COMP0.1): all segments up to the one with
the newest pruned entry are removed. A segment that is still being written is removed once it is applied; if
the hub restarts before that, the bound on age removes the segment.

Opening, recovery and fsck do not read this folder. A replica verifies every batch that it receives.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen_storage.disk.files import Files

SEGMENTS: Final = "journal-*.wal"
CLOCK_SLACK_SEC: Final = 2
"""Difference between a segment's file time and the hub_ts of its entries, which are whole seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalKeeping:
    """How much of the applied journal a hub keeps for its replicas; 0 bytes keep nothing."""

    max_bytes: int = 0
    max_age_sec: int = 86_400


@dataclass(slots=True)
class KeptSegments:
    """The folder of kept segments. Called by one thread at a time: recovery, then the applier."""

    files: Files
    directory: Path
    keeping: JournalKeeping
    now: Callable[[], float] = time.time
    pruned_upto: int = 0
    """First batch of the newest segment that may hold a pruned payload."""

    def retire(self, segment: Path) -> None:
        """Move an applied segment here, or remove it if nothing is kept."""
        if not self.keeping.max_bytes:
            self.files.remove(segment)
            return
        self.files.make_directory(self.directory)
        with contextlib.suppress(FileNotFoundError):  # a crash came after the rename
            self.files.rename(segment, self.directory / segment.name)

    def forget_payloads(self, last_ts: int, journal: Path) -> None:
        """Remove the segments that may hold entries up to ``last_ts``, whose payloads were pruned.

        ``journal`` is the folder of segments that are not retired yet; these are removed instead of being
        retired.
        """
        folders = (self.directory, journal)
        segments = sorted((path for folder in folders for path in folder.glob(SEGMENTS)), key=_first_batch)
        for path in segments:
            self.pruned_upto = max(self.pruned_upto, _first_batch(path))
            if path.stat().st_mtime > last_ts + CLOCK_SLACK_SEC:
                break
        self.trim()

    def trim(self) -> None:
        """Remove pruned payloads, and the oldest segments beyond the bounds of bytes and age."""
        if not self.directory.is_dir():
            return
        size, oldest = 0, self.now() - self.keeping.max_age_sec
        for path in sorted(self.directory.glob(SEGMENTS), reverse=True):
            found = path.stat()
            size += found.st_size
            beyond = size > self.keeping.max_bytes or found.st_mtime < oldest
            if beyond or _first_batch(path) <= self.pruned_upto:
                self.files.remove(path)


def _first_batch(path: Path) -> int:
    return int(path.stem.removeprefix("journal-"))
