"""Small files that are written atomically: after a crash a file has its old or its new content.

Client, bridge, Spark and command line use these functions. Several processes may write the same file at
once, each through a temporary file of its own. Two others exist: ``veen_storage.disk.files`` goes through an
injectable file system for its fault tests, and ``veen_overlays.live`` depends on no hub.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path
from typing import Final

from veen_core.errors import ConfigError, StateError

SECRET_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
SHARED_MODE: Final = 0o666
"""Mode of a shared file; the umask takes bits from it."""
STALE_SECONDS: Final = 600.0
"""Age after which a temporary file is taken to be left by a killed process; a write takes milliseconds."""
NO_HARD_LINKS: Final = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
"""Error numbers of file systems that have no hard links."""


def expand_user(path: Path | str) -> Path:
    """Expand a leading ``~`` or ``~user``."""
    try:
        return Path(path).expanduser()
    except RuntimeError as exc:
        raise ConfigError(
            f"{path}: the home folder is unknown: {exc}", action="write the whole path"
        ) from None


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, durably."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=FOLDER_MODE, exist_ok=True)
    sync_folder(path.parent)


def replace_file(path: Path, content: bytes, *, durable: bool = True, shared: bool = False) -> None:
    """Replace a file: write a temporary file, sync it, rename it, and sync the folder if ``durable``.

    Without ``durable`` a power cut may bring back the old content. The new content is synced before the
    rename in either case: otherwise a power cut could leave the name with no content at all. If several
    processes replace the file at once, the last rename wins. Only its owner may read the file, unless it is
    ``shared``: then the umask decides.
    """
    temporary = path.with_name(f"{path.name}.{os.urandom(8).hex()}.tmp")
    try:
        make_folder(path.parent)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _mode(shared=shared))
        try:
            write_all(fd, content)
            os.fdatasync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
        if durable:
            sync_folder(path.parent)
    except OSError as exc:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise StateError(f"{path}: cannot be written: {exc.strerror or exc}") from exc


def _mode(*, shared: bool) -> int:
    return SHARED_MODE if shared else SECRET_MODE


def create_file(path: Path, content: bytes, *, shared: bool = False) -> bool:
    """Create a file with its whole content; False if it exists, also if another process was first."""
    temporary = path.with_name(f"{path.name}.{os.urandom(8).hex()}.new")
    try:
        replace_file(temporary, content, shared=shared)
        _publish(temporary, path, _mode(shared=shared))
        sync_folder(path.parent)
    except FileExistsError:
        return False
    except OSError as exc:
        raise StateError(f"{path}: the file cannot be created: {exc.strerror or exc}") from exc
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return True


def _publish(temporary: Path, path: Path, mode: int) -> None:
    """Give ``path`` the content of ``temporary``; raises FileExistsError if ``path`` exists.

    FAT and some network file systems have no hard links. There an empty file reserves the name before the
    rename; readers treat an empty file as unreadable, never as content.
    """
    try:
        os.link(temporary, path)
    except OSError as exc:
        if exc.errno not in NO_HARD_LINKS:
            raise
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
        os.rename(temporary, path)


def remove_stale_temporaries(root: Path, pattern: str) -> None:
    """Remove temporary files that killed processes left, but none that a process may still be writing."""
    with contextlib.suppress(OSError):
        for temporary in root.glob(f"{pattern}.*.tmp"):
            if time.time() - temporary.stat().st_mtime > STALE_SECONDS:
                temporary.unlink()


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
