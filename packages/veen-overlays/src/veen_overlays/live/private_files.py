"""Files of views and results: readable by their owner only, and replaced atomically and durably.

``veen_hub.client.atomic_files`` does the same for the other packages, but overlays depend on no hub. A view
has one writer, so its temporary file has a fixed name: opening the view removes the one that a crash left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from veen_core.errors import StateError

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
TEMPORARY: Final = ".tmp"
"""The suffix of a file that is not complete yet. A crash may leave one; opening the view removes it."""


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, each readable by its owner only, durably."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=FOLDER_MODE, exist_ok=True)
    sync_folder(path.parent)


def create(path: Path, content: bytes) -> None:
    """Write a new file and sync its content. The name is durable after ``sync_folder`` of its folder."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        write_all(fd, content)
        os.fdatasync(fd)
    finally:
        os.close(fd)


def replace(path: Path, content: bytes) -> None:
    """Replace a file: after a crash it has its old or its new content."""
    temporary = path.with_name(path.name + TEMPORARY)
    temporary.unlink(missing_ok=True)
    create(temporary, content)
    os.rename(temporary, path)  # commit point
    sync_folder(path.parent)


def write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file of a view; raise if another process holds it. The kernel frees it after a crash."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateError(
                f"{path.parent}: another process uses this view", action="stop it, or use another folder"
            ) from None
        yield
    finally:
        os.close(fd)
