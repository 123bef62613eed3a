"""Results on disk: the rows for paging, and the result file with its evidence.

Each result has three files, named by its result_id: ``.rows`` (canonical JSON, one row per line), ``.index``
(the offset of each line as 8 bytes, big-endian, and the offset of the end) and ``.veenq`` (the file that
``veen query verify`` reads). They are written to temporary names, synced, and renamed; ``.veenq`` comes last.
Only a job that is COMPLETED makes a result visible, so a result is never seen in part.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from veen_core.errors import StateError
from veen_overlays.live.private_files import replace, sync_folder

ENTRY_BYTES: Final = 8
SUFFIXES: Final = (".rows", ".index", ".veenq")
_RESULT_ID: Final = re.compile(r"r-[0-9a-f]{32}")


def is_result_id(text: str) -> bool:
    """Return whether a text has the form of a result_id (RESOLUTIONS P11)."""
    return _RESULT_ID.fullmatch(text) is not None


class ResultTooLargeError(StateError):
    """A result has more rows or bytes than its principal may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPage:
    """A page of rows: the lines joined by commas, and the number of rows of the whole result."""

    rows: bytes
    count: int
    total: int


class RowWriter:
    """Writes the rows of one result within its bounds."""

    def __init__(self, rows: BinaryIO, index: BinaryIO, *, max_rows: int, max_bytes: int) -> None:
        self._rows, self._index = rows, index
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self.count = 0
        self.size = 0

    def add(self, row: bytes) -> None:
        """Add one row as canonical JSON."""
        if self.count == self._max_rows:
            raise ResultTooLargeError(f"the result has more than {self._max_rows} rows", action=_SMALLER)
        if self.size + len(row) + 1 > self._max_bytes:
            raise ResultTooLargeError(f"the rows have more than {self._max_bytes} bytes", action=_SMALLER)
        self._index.write(self.size.to_bytes(ENTRY_BYTES, "big"))
        self._rows.write(row + b"\n")
        self.size += len(row) + 1
        self.count += 1

    def finish(self) -> None:
        """Write the end of the index and make both files durable."""
        self._index.write(self.size.to_bytes(ENTRY_BYTES, "big"))
        for file in (self._rows, self._index):
            file.flush()
            os.fdatasync(file.fileno())


class ResultFiles:
    """The folder of results."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        self._folder = folder

    def path(self, result_id: str, suffix: str) -> Path:
        if not is_result_id(result_id):
            raise StateError(f"{result_id!r} is not a result_id")
        return self._folder / f"{result_id}{suffix}"

    @contextlib.contextmanager
    def rows(self, result_id: str, *, max_rows: int, max_bytes: int) -> Iterator[RowWriter]:
        """Write the rows of a result; they are durable at the end of the block, and gone if it raises."""
        names = [self.path(result_id, suffix) for suffix in (".rows", ".index")]
        temporaries = [name.with_suffix(f"{name.suffix}.tmp") for name in names]
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(_create(name)) for name in temporaries]
            writer = RowWriter(files[0], files[1], max_rows=max_rows, max_bytes=max_bytes)
            try:
                yield writer
                writer.finish()
            except BaseException:
                for name in temporaries:
                    name.unlink(missing_ok=True)
                raise
        for temporary, name in zip(temporaries, names, strict=True):
            temporary.rename(name)
        sync_folder(self._folder)

    def write_evidence(self, result_id: str, content: bytes) -> None:
        """Write the result file; it is durable when this returns."""
        replace(self.path(result_id, ".veenq"), content)

    def page(self, result_id: str, offset: int, limit: int) -> RowPage:
        """Read rows ``offset`` to ``offset + limit``; reads no other row."""
        with self.path(result_id, ".index").open("rb") as index:
            entries, odd = divmod(os.fstat(index.fileno()).st_size, ENTRY_BYTES)
            total = entries - 1
            if total < 0 or odd:
                raise StateError(f"the index of {result_id} is damaged", action="submit the query again")
            first, last = min(offset, total), min(offset + limit, total)
            start, end = _offset(index, first), _offset(index, last)
        with self.path(result_id, ".rows").open("rb") as rows:
            rows.seek(start)
            lines = rows.read(end - start)
        if len(lines) != end - start or lines.count(b"\n") != last - first:
            raise StateError(f"the rows of {result_id} are damaged", action="submit the query again")
        return RowPage(rows=lines[:-1].replace(b"\n", b","), count=last - first, total=total)

    def delete(self, result_id: str) -> None:
        """Delete the files of a result."""
        for suffix in reversed(SUFFIXES):
            self.path(result_id, suffix).unlink(missing_ok=True)

    def delete_all_but(self, kept: set[str]) -> int:
        """Delete the files of all other results, which a killed process left; return their number."""
        stray = [file for file in self._folder.iterdir() if file.name.partition(".")[0] not in kept]
        stray += [file for file in self._folder.glob("*.tmp") if file not in stray]
        for file in stray:
            file.unlink(missing_ok=True)
        return len(stray)

    def size(self) -> int:
        """Bytes of all files."""
        total = 0
        for file in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                total += file.stat().st_size
        return total


def _create(path: Path) -> BinaryIO:
    """Create a file with mode 0600, or empty the one that a killed process left."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def _offset(index: BinaryIO, row: int) -> int:
    index.seek(row * ENTRY_BYTES)
    return int.from_bytes(index.read(ENTRY_BYTES), "big")


_SMALLER: Final = "narrow the filter or the time, or aggregate"
