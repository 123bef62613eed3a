"""The data files of an open view: checked before they are read, and kept while a snapshot uses them.

A file is hashed when the view opens and after it is written. Before a query reads it, its inode, size and
times are compared with those of the last check; if they differ, it is hashed again. Files that a merge
replaced are deleted when every snapshot in use is of a later version.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from veen_overlays.live.query_view.files.data_files import check_file, path_of, subjects_path
from veen_overlays.live.query_view.files.manifest import DamagedViewError, DataFile


class KeptFiles:
    """The last check of each file, and the versions of the view in use. Threads may share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._checked: dict[str, tuple[int, ...]] = {}
        self._filters: dict[str, bytes] = {}
        self._in_use: Counter[int] = Counter()
        self._retired: list[tuple[int, DataFile]] = []
        self._guard = threading.Lock()

    def check(self, file: DataFile) -> None:
        """Check a data file and its subject filter by hash; raise ``DamagedViewError`` if one differs."""
        path = path_of(self._folder, file)
        facts = _facts(path)
        check_file(path, file.size, file.hash)
        subjects = check_file(subjects_path(self._folder, file), None, file.subjects)
        with self._guard:
            self._checked[file.name], self._filters[file.name] = facts, subjects

    def verify(self, file: DataFile) -> None:
        """Raise ``DamagedViewError`` if a file was altered since it was checked."""
        if _facts(path_of(self._folder, file)) != self._checked.get(file.name):
            self.check(file)

    def subjects_of(self, file: DataFile) -> bytes:
        """Return the subject filter of a checked file."""
        return self._filters[file.name]

    def use(self, version: int) -> None:
        """Keep the files of a version until ``release``."""
        with self._guard:
            self._in_use[version] += 1

    def release(self, version: int) -> None:
        """End one use of a version."""
        with self._guard:
            self._in_use[version] -= 1
            if not self._in_use[version]:
                del self._in_use[version]
        self.retire(version, ())

    def retire(self, version: int, files: Iterable[DataFile]) -> None:
        """Note files that ``version`` replaced; delete all replaced files that no snapshot uses."""
        with self._guard:
            self._retired.extend((version, file) for file in files)
            oldest = min(self._in_use, default=None)
            free = [file for since, file in self._retired if oldest is None or since <= oldest]
            self._retired = [each for each in self._retired if each[1] not in free]
            for file in free:
                self._checked.pop(file.name, None)
                self._filters.pop(file.name, None)
        for file in free:
            path_of(self._folder, file).unlink(missing_ok=True)
            subjects_path(self._folder, file).unlink(missing_ok=True)


def _facts(path: Path) -> tuple[int, ...]:
    """Return inode, size and times of a file; they change when it is altered or replaced."""
    try:
        facts = path.stat()
    except FileNotFoundError:
        raise DamagedViewError(f"{path}: the file is missing") from None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
