"""Files of a drop folder on disk: whole or absent for every reader, durable when ``write_file`` returns."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PART: Final = ".part"
"""Ends the name of a file that is being written; every reader ignores such files."""
GROUP_MAY_READ: Final = 0o640
"""Mode of files, whatever the umask, which is 077 for a hub in the background."""


def write_file(folder: Path, name: str, content: bytes) -> None:
    """Write a file: content, sync, rename, sync of the folder. The folder's group may read the file."""
    part = folder / f"{name}{PART}"
    part.unlink(missing_ok=True)  # of a crash; or another user's pipe or link, which must not be opened
    descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.fchmod(descriptor, GROUP_MAY_READ)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.rename(folder / name)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_file(path: Path, max_bytes: int) -> bytes | None:
    """Return the content of a regular file; None if it is another kind of file or larger than it may be.

    Raises OSError if there is none, or if it cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.ENXIO):  # a symbolic link, or a socket
            return None
        raise
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > max_bytes:
            return None
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(max_bytes + 1)
    finally:
        os.close(descriptor)
    return content if len(content) <= max_bytes else None


def names_in(folder: Path) -> Iterator[str]:
    """Yield the names of files that are not being written."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.endswith(PART):
                yield entry.name
