"""Kept segments: applied journal segments that replicas may still have to read (RESOLUTIONS P9, ADR 0019).

Nothing in its own directory needs an applied segment. It is moved to ``journal-kept/`` instead of being
removed, so that a replica that was away for a while continues where it stopped. The folder is bounded by
bytes and by age: the segments hold payloads that retention may have pruned from the log meanwhile.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalKeeping:
    """How much of the applied journal a hub keeps for its replicas; 0 bytes keep nothing."""

    max_bytes: int = 0
    max_age_sec: int = 86_400


@dataclass(frozen=True, slots=True)
class KeptSegments:
    """The folder of kept segments. Called by one thread at a time: recovery, then the applier."""

    files: Files
    directory: Path
    keeping: JournalKeeping
    now: Callable[[], float] = time.time

    def retire(self, segment: Path) -> None:
        """Move an applied segment here, or remove it if nothing is kept."""
        if not self.keeping.max_bytes:
            self.files.remove(segment)
            return
        self.files.make_directory(self.directory)
        with contextlib.suppress(FileNotFoundError):  # a crash came after the rename
            self.files.rename(segment, self.directory / segment.name)

    def trim(self) -> None:
        """Remove the oldest segments beyond the bounds; the newest may exceed them only by itself."""
        if not self.directory.is_dir():
            return
        size, oldest = 0, self.now() - self.keeping.max_age_sec
        for path in sorted(self.directory.glob(SEGMENTS), reverse=True):
            found = path.stat()
            size += found.st_size
            if size > self.keeping.max_bytes or found.st_mtime < oldest:
                self.files.remove(path)
