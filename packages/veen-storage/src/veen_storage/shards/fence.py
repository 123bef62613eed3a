"""Fencing: only the newest process of a part may commit.

The directory lock keeps a second process out of a part as long as the first one lives. The fence is the
second barrier: each start of a part's process writes a greater number into the part's fence file, and
``PartStore`` compares the file with its own number before every commit, and again before any receipt of the
commit leaves. A process that was replaced finds a greater number and acknowledges nothing more.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from veen_storage.commit.replicated_batch import ReplicatedBatch
from veen_storage.commit.writer import Batch
from veen_storage.disk.files import Files
from veen_storage.errors import DamageError, PoisonedError
from veen_storage.store import Store

NUMBER_DIGITS: Final = 19
REMOVE: Final = "stop the hub, and remove the file"


class FencedError(PoisonedError):
    """Another process owns this part now: this one must not acknowledge anything."""


def raise_fence(path: Path, files: Files) -> int:
    """Write the next number to a fence file durably, and return it.

    The number is replaced in place, so that a process with the file open sees it at once.
    """
    files.make_directories(path.parent)
    is_new = not path.exists()
    fd = files.open_append(path)
    try:
        number = (0 if is_new else _read(fd, path)) + 1
        files.write(fd, f"{number:0{NUMBER_DIGITS}d}\n".encode(), 0)
        files.sync(fd)
    finally:
        os.close(fd)
    if is_new:
        files.sync_directory(path.parent)
    return number


def _read(fd: int, path: Path) -> int:
    text = os.pread(fd, NUMBER_DIGITS + 2, 0)
    if len(text) != NUMBER_DIGITS + 1 or not text[:-1].isdigit():
        raise DamageError(f"{path.parent.name}/{path.name}", 0, "is not a fencing number", REMOVE)
    return int(text)


class Fence:
    """The fence of one part, as the process sees it that was started with ``number``."""

    def __init__(self, path: Path, number: int) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._number = number

    def check(self) -> None:
        """Raise ``FencedError`` unless this process is the newest one of its part."""
        found = _read(self._fd, self._path)
        if found != self._number:
            raise FencedError(
                f"{self._path.name} belongs to process {found} of this part, and this is process "
                f"{self._number}: nothing more is acknowledged here"
            )

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class PartStore(Store):
    """The open directory of a shard, whose commits are fenced."""

    def __init__(self, root: Path, fence: Fence, **opening: Any) -> None:
        self._fence = fence
        super().__init__(root, part=True, **opening)

    def commit(self, batch: Batch | ReplicatedBatch) -> None:
        """Commit as ``Store`` does; raise, before any receipt leaves, if this process was replaced."""
        self._fence.check()
        super().commit(batch)
        self._fence.check()

    @property
    def poisoned(self) -> str | None:
        """Why nothing is acknowledged any more: the journal's reason, or that another process took over."""
        if (why := super().poisoned) is not None:
            return why
        try:
            self._fence.check()
        except (FencedError, DamageError, OSError) as exc:
            return str(exc)
        return None

    def close(self) -> None:
        super().close()
        self._fence.close()
