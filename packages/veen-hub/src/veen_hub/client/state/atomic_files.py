"""Small files that are replaced whole and survive a crash: the old content or the new, never a part."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import time
from pathlib import Path
from typing import Final

from veen_core.errors import ConfigError, StateError

SECRET: Final = 0o600
FOLDER: Final = 0o700
ABANDONED: Final = 600.0
"""Seconds; writing takes milliseconds."""
NO_LINKS: Final = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
"""What file systems that have none say when asked for one."""


def expand_user(path: Path | str) -> Path:
    """As the user wrote it, ``~`` included."""
    try:
        return Path(path).expanduser()
    except RuntimeError as exc:
        raise ConfigError(f"{path}: whose home is meant? {exc}") from None


def replace(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write beside, sync, rename, sync the folder. Not ``durable``: a power cut may bring back the old one.

    The content is synced before the rename in either case: else a power cut could leave a name without
    content, and what had been durable would be gone. Several processes may do so at once: each writes a file
    of its own, and the last rename counts.
    """
    beside: str | None = None
    try:
        path.parent.mkdir(mode=FOLDER, parents=True, exist_ok=True)
        fd, beside = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".tmp", dir=path.parent)  # 0600
        try:
            _write(fd, content)
            os.fdatasync(fd)
        finally:
            os.close(fd)
        os.rename(beside, path)
        if durable:
            _sync_folder(path.parent)
    except OSError as exc:
        if beside is not None:
            with contextlib.suppress(OSError):
                os.unlink(beside)
        raise StateError(f"{path}: the state cannot be written: {exc.strerror or exc}") from exc


def create(path: Path, content: bytes) -> bool:
    """Like ``replace``, if nothing is there; False if somebody else was first."""
    beside = path.with_name(f"{path.name}.{os.urandom(8).hex()}.new")
    try:
        replace(beside, content)
        _link(beside, path)
        _sync_folder(path.parent)
    except FileExistsError:
        return False
    except OSError as exc:
        raise StateError(f"{path}: cannot be written: {exc.strerror or exc}") from exc
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()
    return True


def _link(beside: Path, path: Path) -> None:
    """``path`` gets the content of ``beside``, unless it is taken.

    FAT has no links, nor have some network file systems: there the name is taken first, and for a moment
    there is nothing behind it, which no reader takes for content.
    """
    try:
        os.link(beside, path)
    except OSError as exc:
        if exc.errno not in NO_LINKS:
            raise
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, SECRET))
        os.rename(beside, path)


def remove_stale_temporaries(root: Path, pattern: str) -> None:
    """What writers left beside that were killed before their rename; not what one may still be writing."""
    with contextlib.suppress(OSError):
        for beside in root.glob(f"{pattern}.*.tmp"):
            if time.time() - beside.stat().st_mtime > ABANDONED:
                beside.unlink()


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
