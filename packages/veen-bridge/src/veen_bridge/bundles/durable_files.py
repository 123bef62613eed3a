"""Files that are durable under their name, or absent: write, sync, rename, sync the folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

TEMPORARY: Final = ".tmp"
"""Suffix of a file that is not complete."""


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_file(path: Path, content: bytes) -> None:
    """Write a small file durably; after a crash it has its old content, its new content, or is absent."""
    temporary = path.with_name(path.name + TEMPORARY)
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    rename(temporary, path)


def rename(source: Path, target: Path) -> None:
    """Rename a synced file and make its new name durable."""
    os.rename(source, target)
    sync_folder(target.parent)
    if source.parent != target.parent:
        sync_folder(source.parent)
