"""Attachments: ciphertexts by coid, streamed in and out, never whole in memory (H17, §4.6).

Order of a put: 1. the content beside its place, synced; 2. its name, and the folder's: it is durable; 3. the
index records coid and size, so that its loss would show; 4. ``put`` returns. A crash between 2 and 3 leaves
one that is there and not recorded: it is read like any other, and putting it again records it.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import count, islice
from pathlib import Path
from typing import BinaryIO, Final

from veen_core.ids import Coid
from veen_storage.disk.files import Files
from veen_storage.disk.layout import Layout
from veen_storage.errors import AbsentError, DamageError, StorageError, reading
from veen_storage.index.lmdb_index import Index
from veen_storage.index.records import U64
from veen_storage.index.tables import ATTACHMENTS

PART = 256 * 1_024
PAGE: Final = 1_024
"""Records that are read under one view."""
PUT_AGAIN: Final = "put it again from a copy"
GONE: Final = (
    "if it is gone for good, stop the hub and run `veen hub repair`, which records those that are there"
)


class TooLargeError(StorageError):
    """An attachment is over ``max_attachment_bytes`` (§14.1)."""


class ContentError(StorageError):
    """The bytes are not those the coid names (H17)."""


class LostError(DamageError):
    """An attachment was put and is not there any more; no other one is touched by that."""

    def __init__(self, coid: Coid) -> None:
        super().__init__(f"attachments/{coid.hex()}", None, "was put and is missing", f"{PUT_AGAIN}; {GONE}")
        self.coid = coid


class Attachments:
    """Content-addressed files. Durable before ``put`` returns; the same content again changes nothing."""

    def __init__(self, files: Files, layout: Layout, max_bytes: int, index: Index | None) -> None:
        """Without ``index`` for a directory in the making: ``rebuild_index`` records them all."""
        self._files = files
        self._layout = layout
        self._max_bytes = max_bytes
        self._index = index
        self._numbers = count()
        self._durable: set[str] = set()  # folders whose names this process has synced: at most 65,536
        self._lock = threading.Lock()

    def put(self, coid: Coid, parts: Iterable[bytes]) -> bool:
        """Store a stream of parts; False if it was there already. Nothing half-written stays.

        What is there is read first: a damaged attachment is no reason to turn a good one away.
        """
        path = self._layout.attachment(coid)
        self._make_directories(path.parent)
        if (size := _holds(path, coid)) is not None:
            self._files.sync_directory(path.parent)  # whoever put it may have been cut off before this
            self._record(coid, size)
            return False
        beside = path.with_name(f"{path.name}.{os.getpid()}-{next(self._numbers)}.tmp")
        try:
            size = self._write(beside, coid, parts)
            self._files.rename(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        self._files.sync_directory(path.parent)
        self._record(coid, size)
        return True

    def _record(self, coid: Coid, size: int) -> None:
        if self._index is not None and self._recorded(coid) != size:
            self._index.write(lambda txn: ATTACHMENTS.put(txn, coid, size))

    def _recorded(self, coid: Coid) -> int | None:
        if self._index is None:
            return None
        with self._index.reading() as view:
            return ATTACHMENTS.get(view, coid)

    def missing(self, coid: Coid) -> StorageError:
        """Never put, or lost: only the index can tell."""
        if self._recorded(coid) is None:
            return AbsentError(f"there is no attachment {coid.hex()}")
        return LostError(coid)

    def _make_directories(self, folder: Path) -> None:
        with self._lock:
            if (name := folder.parent.name + folder.name) not in self._durable:
                self._files.make_directory(folder)
                self._files.sync_directory(folder.parent)
                self._files.sync_directory(folder.parent.parent)
                self._durable.add(name)

    def _write(self, path: Path, coid: Coid, parts: Iterable[bytes]) -> int:
        """Returns the size."""
        digest, size = sha256(), 0
        fd = self._files.open_append(path)
        try:
            for part in parts:
                if size + len(part) > self._max_bytes:
                    raise TooLargeError(
                        f"attachment {coid.hex()} exceeds max_attachment_bytes = {self._max_bytes}"
                    )
                self._files.write(fd, part, size)
                digest.update(part)
                size += len(part)
            if digest.digest() != coid:
                raise ContentError(
                    f"the {size} bytes received are not attachment {coid.hex()}: H(body) differs (H17)"
                )
            self._files.sync(fd)
        finally:
            os.close(fd)
        return size

    def get(self, coid: Coid, part: int = PART) -> Iterator[bytes]:
        """The content in parts; raises ``DamageError`` at the end if it is not what the coid names."""
        path = self._layout.attachment(coid)
        try:
            file = path.open("rb")
        except FileNotFoundError:
            raise self.missing(coid) from None
        except IsADirectoryError:
            raise _no_file(coid) from None
        digest = sha256()
        with file:
            while data := _read(file, part, path.name):
                digest.update(data)
                yield data
        if digest.digest() != coid:
            raise DamageError(f"attachments/{path.name}", None, "is not the content its name says", PUT_AGAIN)

    def size(self, coid: Coid) -> int:
        try:
            found = self._layout.attachment(coid).stat()
        except FileNotFoundError:
            raise self.missing(coid) from None
        if stat.S_ISDIR(found.st_mode):
            raise _no_file(coid)
        return found.st_size

    def coids(self) -> Iterator[Coid]:
        """Every attachment there is, in order of coid; the names of one folder at a time are held."""
        for name in _names_below(self._layout.attachments, levels=2):
            if _COID.fullmatch(name):  # a put that was cut off, or a stray: fsck names them
                yield Coid.from_hex(name)

    def recorded(self) -> tuple[int, int]:
        """How many, and their bytes; reads every record."""
        if self._index is None:
            return 0, 0
        with self._index.reading() as view:
            size = sum(U64.unpack(row)[0] for _coid, row in view.rows(ATTACHMENTS.name))
            return view.count(ATTACHMENTS.name), size

    def lost(self) -> Iterator[Coid]:
        """Every attachment that is recorded and of which there is nothing."""
        after: bytes | None = b""
        while self._index is not None and after is not None:
            with self._index.reading() as view:
                some = [coid for coid, _size in islice(ATTACHMENTS.scan(view, after), PAGE)]
            yield from (coid for coid in some if not self._layout.attachment(coid).exists())
            after = some[-1] + b"\x00" if some else None


_COID: Final = re.compile(r"[0-9a-f]{64}")


def _names_below(folder: Path, levels: int) -> Iterator[str]:
    """The names in folders so many levels below, folder after folder, each in order."""
    names = sorted(os.listdir(folder))
    if levels == 0:
        yield from names
        return
    for name in names:
        if len(name) == 2 and (folder / name).is_dir():
            yield from _names_below(folder / name, levels - 1)


def _read(file: BinaryIO, part: int, name: str) -> bytes:
    with reading(f"attachments/{name}"):
        return file.read(part)


def _no_file(coid: Coid) -> DamageError:
    return DamageError(
        f"attachments/{coid.hex()}",
        None,
        "is a folder",
        f"move it out of the data directory, then {PUT_AGAIN}",
    )


def _holds(path: Path, coid: Coid) -> int | None:
    """The file's size, if it is there and is what the coid names."""
    digest, size = sha256(), 0
    try:
        with path.open("rb") as file:
            while data := file.read(PART):
                digest.update(data)
                size += len(data)
    except IsADirectoryError:
        raise _no_file(coid) from None
    except OSError:
        return None  # not there, or the disk does not give it: a whole one takes its place
    return size if digest.digest() == coid else None
