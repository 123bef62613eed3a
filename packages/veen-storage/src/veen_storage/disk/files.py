"""The file-system boundary: every write, sync, rename and removal in a data directory goes through ``Files``.

Tests replace ``Files`` by one that makes each call fail, before or after it takes effect, or that forgets
what was never synced. Reads cannot lose data and use ``os`` directly.

Two rules: data is synced before a name points at it, and a folder is synced after a name in it changed.
``replace`` follows both, so that a reader finds the old content or the new, never a part.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SECRET_MODE: Final = 0o600
PUBLIC_MODE: Final = 0o644
MIN_FILES_FOR_SYNCFS: Final = 17
"""Syncing one file costs about 0.3 ms, syncing a whole file system about 3 ms (measured on ext4)."""
SYNCFS_FILE_SYSTEMS: Final = {
    0xEF53: "ext2, ext3, ext4",
    0x58465342: "xfs",
    0x9123683E: "btrfs",
    0xF2F52010: "f2fs",
}
"""File systems on which syncfs returns only after the data is on disk, by their statfs magic number.

On FUSE, and possibly on network file systems, syncfs returns success without reaching the disk.
"""


def reports_sync_errors(system: str, release: str) -> bool:
    """Return whether this kernel's syncfs reports write errors: Linux does since 5.8."""
    version = re.match(r"(\d+)\.(\d+)", release)
    return system == "Linux" and version is not None and (int(version[1]), int(version[2])) >= (5, 8)


_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_SYSTEM: Final = os.uname()
_HAS_SYNCFS: Final = (
    hasattr(_LIBC, "syncfs")
    and reports_sync_errors(_SYSTEM.sysname, _SYSTEM.release)
    and _SYSTEM.machine in ("x86_64", "aarch64")  # where f_type is the first 8 bytes of struct statfs
)


def _file_system_magic(fd: int) -> int:
    """Return the statfs magic number of the file system that holds an open file; 0 if it is unknown."""
    result = ctypes.create_string_buffer(256)
    if _LIBC.fstatfs(fd, result) != 0:
        return 0
    return int.from_bytes(result.raw[:8], "little")


def syncfs_is_reliable(fd: int) -> bool:
    """Return whether one syncfs call makes every file durable on the file system of this open file."""
    return _HAS_SYNCFS and _file_system_magic(fd) in SYNCFS_FILE_SYSTEMS


class Files:
    """The real file system."""

    def open_append(self, path: Path, mode: int = PUBLIC_MODE) -> int:
        """Open a file for reading and writing, created if missing; the caller closes the descriptor."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)

    def write(self, fd: int, data: bytes, offset: int) -> None:
        """Write all of ``data`` at ``offset``."""
        view = memoryview(data)
        with _naming(fd):
            while view:
                written = os.pwrite(fd, view, offset)
                view, offset = view[written:], offset + written

    def sync(self, fd: int) -> None:
        with _naming(fd):
            os.fdatasync(fd)

    def sync_many(self, fds: list[int]) -> None:
        """Make the content of many open files durable, with one syncfs where that is faster and reliable."""
        by_device: defaultdict[int, list[int]] = defaultdict(list)
        for fd in fds:
            by_device[os.fstat(fd).st_dev].append(fd)
        for same_device in by_device.values():
            if len(same_device) >= MIN_FILES_FOR_SYNCFS and syncfs_is_reliable(same_device[0]):
                self.sync_file_system(same_device[0])
            else:
                for fd in same_device:
                    self.sync(fd)

    def sync_file_system(self, fd: int) -> None:
        """Make everything durable on the file system of an open file (``syncfs_is_reliable``)."""
        if _LIBC.syncfs(fd) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def truncate(self, fd: int, length: int) -> None:
        with _naming(fd):
            os.ftruncate(fd, length)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def make_directory(self, path: Path, mode: int = 0o755) -> None:
        path.mkdir(mode=mode, parents=True, exist_ok=True)

    def make_directories(self, path: Path, mode: int = 0o755) -> None:
        """Create a folder and its missing parents durably; a folder that exists keeps its permissions."""
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        self.make_directory(path, mode)
        for folder in missing:
            self.sync_directory(folder.parent)

    def sync_directory(self, path: Path) -> None:
        """Make the names in a folder durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace(
        self, path: Path, content: bytes, mode: int = PUBLIC_MODE, *, sync_directory: bool = True
    ) -> None:
        """Replace a file atomically: write a temporary file, sync it, rename it, sync the folder."""
        temporary = path.with_name(path.name + ".tmp")
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        fd = self.open_append(temporary, mode)
        try:
            self.write(fd, content, 0)
            self.sync(fd)
        finally:
            os.close(fd)
        self.rename(temporary, path)
        if sync_directory:
            self.sync_directory(path.parent)


@contextlib.contextmanager
def _naming(fd: int) -> Iterator[None]:
    """Add the file's name to an ``OSError`` of the block, where /proc knows it."""
    try:
        yield
    except OSError as exc:
        with contextlib.suppress(OSError):
            exc.filename = os.readlink(f"/proc/self/fd/{fd}")
        raise


def read_exactly(fd: int, length: int, offset: int) -> bytes:
    """Read ``length`` bytes at ``offset``; fewer only at the end of the file."""
    parts = []
    while length > 0 and (part := os.pread(fd, length, offset)):
        parts.append(part)
        length, offset = length - len(part), offset + len(part)
    return b"".join(parts)
