"""The lock that keeps a second process out of a data directory."""

from __future__ import annotations

import fcntl
import os

from veen_storage.errors import LockedError
from veen_storage.layout import Layout


class DirectoryLock:
    """Held while a directory is open; the kernel lets go of it when the process dies."""

    def __init__(self, layout: Layout) -> None:
        self._fd = os.open(layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise LockedError(
                f"{layout.root} is in use by process {holder or 'unknown'}: stop it first"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1  # a second call must not close what got this number since
