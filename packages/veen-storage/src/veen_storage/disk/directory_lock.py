"""The lock that keeps a second process out of a data directory."""

from __future__ import annotations

import fcntl
import os

from veen_storage.disk.layout import Layout
from veen_storage.errors import Holder, LockedError, StorageError


def read_holder(fd: int) -> Holder:
    """What the process that holds the lock says of itself."""
    told = os.pread(fd, 64, 0).decode("ascii", "replace").split()
    pid = int(told[0]) if told and told[0].isdecimal() else 0
    return Holder(pid, observable=told[1:] == ["observable"])


class DirectoryLock:
    """Held while a directory is open; the kernel lets go of it when the process dies."""

    def __init__(self, layout: Layout, *, observable: bool = False) -> None:
        """``observable``: others may read beside this process (``observer``)."""
        try:
            self._fd = os.open(layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as exc:
            raise StorageError(
                f"{layout.lock} cannot be written ({exc.strerror}): whoever opens, checks or clones a data "
                "directory locks it, and needs write access to it"
            ) from exc
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = read_holder(self._fd)
            os.close(self._fd)
            raise LockedError(layout.root, holder) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}{' observable' if observable else ''}\n".encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1  # a second call must not close what got this number since
