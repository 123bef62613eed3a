"""The outbox journal: records that must be durable before a message leaves are appended to one file.

Replacing a file costs two syncs and a rename. Appending to a journal costs one sync, for all records that are
written together. Each process has its own journal of a hub, a file ``<owner>-<number>.journal`` that it keeps
locked. A record in the journal supersedes the record's file. When the record is released, it is written to
its file (``take_out``); if the process dies, the next one does that (``recover``). A journal that has grown
large continues in a new file, which begins with the current records.

A frame is the length of its payload (u32be), the payload's CRC-32 (u32be), and the payload. A frame that was
not written completely ends the journal: nobody was told that it is durable.
"""

from __future__ import annotations

import fcntl
import os
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen_core.errors import DecodeError, StateError
from veen_core.hashing import u32be
from veen_core.wire import Wire, int_map
from veen_hub.client.state.atomic_files import FOLDER_MODE, SECRET_MODE, replace, sync_folder, write_all

SUFFIX: Final = ".journal"
FOLDER_LOCK: Final = "journals.lock"
FRAME_HEADER: Final = 8
COMPACT_BYTES: Final = 8 * 1_048_576
"""Size at which a journal continues in a new file."""


@int_map("journal_record", section="RESYNC0.4")
@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRecord(Wire):
    """A record's new content; without content, the record's file is current again."""

    name: str
    content: bytes | None = None

    def frame(self) -> bytes:
        payload = self.encode()
        return u32be(len(payload)) + u32be(zlib.crc32(payload)) + payload


def _frames(records: Mapping[str, bytes]) -> bytes:
    return b"".join(JournalRecord(name=name, content=records[name]).frame() for name in records)


def replay(data: bytes, path: Path, records: dict[str, bytes]) -> None:
    """Bring ``records`` up to date with a journal's file; raises if a frame before its end is damaged."""
    at = 0
    while (payload := _payload_at(data, at)) is not None:
        try:
            found = JournalRecord.decode(payload)
        except DecodeError as exc:
            raise _damaged(path, at) from exc
        if found.content is None:
            records.pop(found.name, None)
        else:
            records[found.name] = found.content
        at += FRAME_HEADER + len(payload)
    _check_end(data, at, path)


def _payload_at(data: bytes, at: int) -> bytes | None:
    """Return the payload of the frame at ``at``; None if no whole frame begins there."""
    start = at + FRAME_HEADER
    length = int.from_bytes(data[at : at + 4], "big")
    payload = data[start : start + length]
    if not length or len(payload) < length:
        return None
    return payload if zlib.crc32(payload) == int.from_bytes(data[at + 4 : start], "big") else None


def _check_end(data: bytes, at: int, path: Path) -> None:
    """Raise if a whole frame follows what was taken for an incomplete last one: then that one is damaged."""
    length = int.from_bytes(data[at : at + 4], "big")
    if length and _payload_at(data, at + FRAME_HEADER + length) is not None:
        raise _damaged(path, at)


def _damaged(path: Path, at: int) -> StateError:
    return StateError(
        f"{path}: the journal is damaged at byte {at}",
        action="restore the state folder from a backup; if you move the journal away instead, messages that "
        "were pending are not settled",
    )


class Journal:
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

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def get(self, name: str) -> bytes | None:
        """Return a record that is in the journal."""
        return self._records.get(name)

    def append(self, records: Mapping[str, bytes], *, durable: bool) -> None:
        """Append records in one write. If this raises, none of them is in the journal."""
        frames = _frames(records)
        with self._guard, _state_errors(self._folder):
            self._write(frames, durable=durable)
            self._records |= records
            if self._size >= COMPACT_BYTES:
                self._begin(_frames(self._records))

    def take_out(self, name: str) -> None:
        """Write a record to its file, durably; the journal then no longer supersedes the file."""
        with self._guard, _state_errors(self._folder):
            if name not in self._records:
                return
            replace(record_file(self._folder, name), self._records[name])
            self._write(JournalRecord(name=name).frame(), durable=True)
            del self._records[name]
            if not self._records:
                self._end()

    def _write(self, frames: bytes, *, durable: bool) -> None:
        if self._fd < 0:
            self._begin(b"")
        try:
            write_all(self._fd, frames)
            if durable:
                os.fdatasync(self._fd)
        except OSError:
            os.ftruncate(self._fd, self._size)  # the file is open for appending
            raise
        self._size += len(frames)

    def _begin(self, frames: bytes) -> None:
        """Begin the next file of this journal with these frames, durably, and remove the one before."""
        folder = journal_folder(self._folder)
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        path = folder / f"{self._owner}-{self._number + 1:08d}{SUFFIX}"
        fd = _create_locked(path)
        try:
            write_all(fd, frames)
            os.fdatasync(fd)
            sync_folder(folder)
        except OSError:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        self._end()
        self._fd, self._path, self._size = fd, path, len(frames)
        self._number += 1

    def _end(self) -> None:
        """Close and remove the file; its records are elsewhere, durably."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd, self._path = -1, None


def journal_folder(folder: Path) -> Path:
    return folder / "journal"


def record_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.state"


def recover(folder: Path) -> None:
    """Write the records of processes that have died to their files, durably, and remove their journals."""
    journals = journal_folder(folder)
    if not journals.is_dir():
        return
    with _state_errors(folder), _journals_locked(journals):
        dead = [path for path in sorted(journals.glob(f"*{SUFFIX}")) if _is_abandoned(path)]
        records: dict[str, bytes] = {}
        for path in dead:  # in the order in which each process wrote them
            replay(path.read_bytes(), path, records)
        for name, content in records.items():
            replace(record_file(folder, name), content)
        for path in dead:
            path.unlink(missing_ok=True)
        if dead:
            sync_folder(journals)


def _create_locked(path: Path) -> int:
    """Create a journal's file and lock it, before anybody can take it for an abandoned one."""
    with _journals_locked(path.parent):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, SECRET_MODE)
        fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


@contextmanager
def _journals_locked(journals: Path) -> Iterator[None]:
    """Let one process create or recover journals at a time: whoever locks a journal meanwhile uses it."""
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
