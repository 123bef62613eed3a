"""The lock that keeps a second process out of a data directory.

The lock is an flock on the data directory itself, which cannot be unlinked while it holds files. The file
``lock`` inside is only a note that says which process holds the lock; deleting it releases nothing.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from veen_storage.disk.layout import Layout
from veen_storage.errors import LockedError, LockOwner, StorageError


class DirectoryLock:
    """Exclusive use of a data directory; the kernel releases it when the process dies."""

    def __init__(self, layout: Layout, *, observable: bool = False) -> None:
        """Take the lock or raise ``LockedError``.

        ``observable``: other processes may read the directory meanwhile (``read.observer``).
        """
        self._fd = _open_directory(layout.root)
        try:
            if not _lock(self._fd, layout.root, fcntl.LOCK_EX):
                raise LockedError(layout.root, _read_note(layout.lock))
            if not os.path.samestat(os.fstat(self._fd), os.stat(layout.root)):
                raise StorageError(f"{layout.root} was moved while it was being opened: try again")
            note = f"{os.getpid()}{' observable' if observable else ''}\n"
            _write_note(layout.lock, note.encode())
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1  # a second call must not close a file that got this number


def lock_owner(root: Path) -> int | None:
    """Return the id of the process that has a data directory open, or None; 0 if its note is missing."""
    try:
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return None if _lock(fd, root, fcntl.LOCK_SH) else _read_note(Layout(root).lock).pid
    finally:
        os.close(fd)


def _open_directory(root: Path) -> int:
    try:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise StorageError(f"{root} cannot be opened ({exc.strerror})") from exc


def _lock(fd: int, root: Path, kind: int) -> bool:
    """Take the lock if it is free; return whether it was."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as exc:
        raise StorageError(
            f"{root} cannot be locked ({exc.strerror}): put the data directory on a local file system"
        ) from exc
    return True


def _write_note(path: Path, content: bytes) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, content)
        finally:
            os.close(fd)
    except OSError as exc:
        raise StorageError(
            f"{path} cannot be written ({exc.strerror}): opening, checking or cloning a data directory needs "
            "write access to it"
        ) from exc


def _read_note(path: Path) -> LockOwner:
    try:
        words = path.read_text(encoding="ascii", errors="replace").split()
    except OSError:
        words = []
    pid = int(words[0]) if words and words[0].isdecimal() else 0
    return LockOwner(pid, observable=words[1:] == ["observable"])
