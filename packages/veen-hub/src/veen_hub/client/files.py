"""Small files that are replaced whole and survive a crash: the old content or the new, never a part."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from veen_core.errors import StateError

SECRET: Final = 0o600
FOLDER: Final = 0o700


def replace(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write beside, sync, rename, sync the folder. Not ``durable``: survives a kill, not a power cut."""
    beside = path.with_name(f"{path.name}.tmp")
    try:
        path.parent.mkdir(mode=FOLDER, parents=True, exist_ok=True)
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, SECRET)
        try:
            _write(fd, content)
            if durable:
                os.fdatasync(fd)
        finally:
            os.close(fd)
        beside.rename(path)
        if durable:
            _sync_folder(path.parent)
    except OSError as exc:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise StateError(f"{path}: the state cannot be written: {exc.strerror or exc}") from exc


def _write(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
