"""The outbox journal: records that must be durable before a message leaves are appended to one file.

Replacing a file costs two syncs and a rename. Appending to a journal costs one sync, for all records that are
written together. Each process has its own journal of a hub, a file ``<owner>-<number>.journal`` that it keeps
locked. A record in the journal supersedes the record's file. When the record is released, it is written to
its file (``take_out``); if the process dies, the next one does that (``recover``). A journal that has grown
large continues in a new file, which begins with the current records.

A frame holds the records of one write: a magic number, the length of the payload, the CRC-32 of all that
follows it (u32be each), how many bytes of the file were synced before (u64be), and the payload. A frame that
is not whole is damaged if a later frame says that it was synced. Otherwise it is torn and ends the journal:
the client that wrote it was never told that it is durable, and no message left. Space that was allocated
ahead follows the last frame; it has no frames.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from veen_core.errors import DecodeError, StateError
from veen_core.wire import Wire, int_map
from veen_hub.client.atomic_files import SECRET_MODE, make_folder, replace_file, sync_folder, write_all

SUFFIX: Final = ".journal"
FOLDER_LOCK: Final = "journals.lock"
MAGIC: Final = b"VEJ1"
HEADER: Final = struct.Struct(">4sII")
SYNCED: Final = struct.Struct(">Q")
ALLOCATED_BYTES: Final = 1_048_576
"""Space that a file is given ahead, as zeros: a sync that does not have to write the file's size takes 40 µs
less (ADR 0006)."""
COMPACT_BYTES: Final = 8 * 1_048_576
"""Growth after which a journal continues in a new file."""


@int_map("journal_record", section="RESYNC0.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRecord(Wire):
    """A record's new content; without content, the record's file is current again."""

    name: str
    content: bytes | None = None


@int_map("journal_group", section="RESYNC0.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class JournalGroup(Wire):
    """The records of one write."""

    records: tuple[JournalRecord, ...]

    def frame(self, synced: int) -> bytes:
        """Encode the frame; the first ``synced`` bytes of the file are durable."""
        content = SYNCED.pack(synced) + self.encode()
        return HEADER.pack(MAGIC, len(content), zlib.crc32(content)) + content


def group_of(records: Mapping[str, bytes]) -> JournalGroup:
    return JournalGroup(
        records=tuple(JournalRecord(name=name, content=content) for name, content in records.items())
    )


class Frame(NamedTuple):
    """A whole frame of a journal's file."""

    end: int
    synced: int
    payload: bytes


def frame_at(data: bytes, at: int) -> Frame | None:
    """Return the frame at ``at``; None if no whole frame begins there."""
    start = at + HEADER.size
    if len(data) < start:
        return None
    magic, length, crc = HEADER.unpack_from(data, at)
    content = data[start : start + length]
    if magic != MAGIC or len(content) < max(length, SYNCED.size) or zlib.crc32(content) != crc:
        return None
    return Frame(start + length, SYNCED.unpack_from(content)[0], content[SYNCED.size :])


def replay(data: bytes, path: Path, records: dict[str, bytes]) -> None:
    """Bring ``records`` up to date with a journal's file; raises if a synced frame is damaged."""
    at = 0
    while (frame := frame_at(data, at)) is not None:
        try:
            group = JournalGroup.decode(frame.payload)
        except DecodeError as exc:
            raise _damaged(path, at) from exc
        for record in group.records:
            if record.content is None:
                records.pop(record.name, None)
            else:
                records[record.name] = record.content
        at = frame.end
    if any(frame.synced > at for frame in _frames_after(data, at)):
        raise _damaged(path, at)


def _frames_after(data: bytes, at: int) -> Iterator[Frame]:
    while (at := data.find(MAGIC, at + 1)) >= 0:
        if (frame := frame_at(data, at)) is not None:
            yield frame


def _damaged(path: Path, at: int) -> StateError:
    return StateError(
        f"{path}: the journal is damaged at byte {at}",
        action="restore the state folder from a backup; if you move the journal away instead, messages that "
        "were pending are not settled",
    )


class ClientJournal:
    """The journal of this process for one hub. Every method may be called from any thread."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is the hub's folder, with a file ``<name>.state`` per record."""
        self._folder = folder
        self._records: dict[str, bytes] = {}
        self._guard = threading.Lock()
        self._owner = os.urandom(8).hex()
        self._number = 0
        self._fd = -1
        self._path: Path | None = None
        self._size = 0
        """Where the next frame begins; also the position of ``_fd``."""
        self._allocated = 0
        """Size of the file with the space that was allocated ahead."""
        self._compact_at = COMPACT_BYTES
        self._synced = 0
        self._superseded: list[tuple[Path, int]] = []
        """Files before this one that are not removed yet; they stay locked, so that nothing recovers them."""
        self._failed = False
        """Whether a write failed and could not be undone."""

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def get(self, name: str) -> bytes | None:
        """Return a record that is in the journal."""
        return self._records.get(name)

    def append(self, records: Mapping[str, bytes], *, durable: bool) -> None:
        """Append records in one write. If this raises, none of them is in the journal."""
        with self._guard, _state_errors(self._folder):
            self._write(group_of(records), durable=durable)
            self._records |= records
            if self._size >= self._compact_at:
                with suppress(OSError):  # the records are written; compact at the next attempt
                    self._begin(group_of(self._records))
                self._compact_at = self._size + COMPACT_BYTES

    def take_out(self, name: str) -> None:
        """Write a record to its file, durably; the journal then no longer supersedes the file."""
        with self._guard, _state_errors(self._folder):
            if name not in self._records:
                return
            replace_file(record_file(self._folder, name), self._records[name])
            self._write(JournalGroup(records=(JournalRecord(name=name),)), durable=True)
            del self._records[name]
            if not self._records:
                with suppress(OSError):  # if the file stays, it says that it has no records
                    self._end()

    def _write(self, group: JournalGroup, *, durable: bool) -> None:
        if self._failed:
            raise StateError(
                f"{self._path}: an earlier write failed and could not be undone",
                action="free disk space or repair the disk, then connect again",
            )
        if self._fd < 0:
            self._begin(JournalGroup(records=()))
        frame = group.frame(self._synced)
        if self._size + len(frame) > self._allocated:
            self._allocated = _allocate(self._fd, self._size + len(frame))
        try:
            write_all(self._fd, frame)
            if durable:
                os.fdatasync(self._fd)
        except OSError:
            self._failed = True
            os.ftruncate(self._fd, self._size)
            os.lseek(self._fd, self._size, os.SEEK_SET)
            self._failed, self._allocated = False, self._size
            raise
        self._size += len(frame)
        self._synced = self._size if durable else self._synced

    def _begin(self, group: JournalGroup) -> None:
        """Begin the journal's next file with these records, durably, and remove the previous file."""
        folder, frame = journal_folder(self._folder), group.frame(0)
        make_folder(folder)
        self._number += 1
        path = folder / f"{self._owner}-{self._number:08d}{SUFFIX}"
        fd = _create_locked(path)
        try:
            write_all(fd, frame)
            allocated = _allocate(fd, len(frame))
            os.fdatasync(fd)
            sync_folder(folder)
        except OSError:
            self._discard(path, fd)
            raise
        if self._path is not None:
            self._superseded.append((self._path, self._fd))
        self._fd, self._path = fd, path
        self._size = self._synced = len(frame)
        self._allocated = allocated
        with suppress(OSError):  # tried again when the next file begins or this one ends
            self._remove_superseded()

    def _discard(self, path: Path, fd: int) -> None:
        """Remove a file that could not be begun: if it came back, it would supersede later records."""
        failed, self._failed = self._failed, True
        path.unlink(missing_ok=True)
        sync_folder(path.parent)
        os.close(fd)
        self._failed = failed

    def _remove_superseded(self) -> None:
        while self._superseded:
            path, fd = self._superseded[-1]
            path.unlink(missing_ok=True)
            sync_folder(path.parent)  # otherwise the old file could come back without the new one
            self._superseded.pop()
            os.close(fd)

    def _end(self) -> None:
        """Close and remove the file, which has no records any more."""
        self._remove_superseded()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd, self._path = -1, None


def _allocate(fd: int, size: int) -> int:
    """Allocate space after the first ``size`` bytes of a file; return where it ends."""
    if hasattr(os, "posix_fallocate"):
        with suppress(OSError):  # no room: the file grows with each write, as on systems without this call
            os.posix_fallocate(fd, 0, size + ALLOCATED_BYTES)
    return size + ALLOCATED_BYTES


def journal_folder(folder: Path) -> Path:
    return folder / "journal"


def record_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.state"


def recover(folder: Path) -> None:
    """Move all records from the journals of dead processes to the records' files, durably."""
    journals = journal_folder(folder)
    if not journals.is_dir():
        return
    with _state_errors(folder), _journals_locked(journals):
        dead = [path for path in sorted(journals.glob(f"*{SUFFIX}")) if _is_abandoned(path)]
        records: dict[str, bytes] = {}
        for path in dead:  # in the order in which each process wrote them
            replay(path.read_bytes(), path, records)
        for name, content in records.items():
            replace_file(record_file(folder, name), content)
        for path in dead:
            path.unlink(missing_ok=True)
        if dead:
            sync_folder(journals)


def _create_locked(path: Path) -> int:
    """Create a journal's file and lock it, before another process can take it for an abandoned one."""
    with _journals_locked(path.parent):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, SECRET_MODE)
        fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


@contextmanager
def _journals_locked(journals: Path) -> Iterator[None]:
    """Let one process at a time create or recover journals.

    During a recovery, a locked journal therefore belongs to a process that is alive.
    """
    fd = os.open(journals / FOLDER_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, SECRET_MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _is_abandoned(path: Path) -> bool:
    """Return whether no process has the journal open."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


@contextmanager
def _state_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise StateError(f"{folder}: the state cannot be written: {exc.strerror or exc}") from exc
