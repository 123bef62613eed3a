"""The lock that keeps a second process out of a data directory.

The lock is an flock on the data directory itself, which cannot be unlinked while it holds files. The file
``lock`` inside is only a note that says which process holds the lock; deleting it releases nothing, and the
kernel's list of locks still names the process.
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

        ``observable``: other processes may read the directory meanwhile (``opening.observer``).
        """
        self._fd = _open_directory(layout.root)
        try:
            if not _lock(self._fd, layout.root, fcntl.LOCK_EX):
                raise LockedError(layout.root, _owner(layout, self._fd))
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
    """Return the id of the process that has a data directory open, or None; 0 if the process is unknown."""
    try:
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return None if _lock(fd, root, fcntl.LOCK_SH) else _owner(Layout(root), fd).pid
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


def _owner(layout: Layout, fd: int) -> LockOwner:
    """Return the process that the note names, or else the one that the kernel names."""
    try:
        words = layout.lock.read_text(encoding="ascii", errors="replace").split()
    except OSError:
        words = []
    pid = int(words[0]) if words and words[0].isdecimal() else _kernel_owner(fd)
    return LockOwner(pid, observable=words[1:] == ["observable"])


def _kernel_owner(fd: int) -> int:
    """Return the process that holds the flock of an open folder, as Linux lists it; 0 if it does not."""
    found = os.fstat(fd)
    inode = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        rows = [line.split() for line in Path("/proc/locks").read_text(encoding="ascii").splitlines()]
    except OSError:
        return 0
    return next((int(row[4]) for row in rows if row[1] == "FLOCK" and row[5] == inode), 0)
