"""Attachments: ciphertexts by content id, streamed in and out, never whole in memory (H17, core §4.6).

Order of ``put``:

1. write the content to a temporary file and sync it;
2. rename it and sync the folder: the attachment is durable;
3. record content id and size in the index, so that a later loss is noticed;
4. return.

A crash between 2 and 3 leaves an attachment that is not recorded. It is read like any other, and putting it
again records it.
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

PART_BYTES = 256 * 1_024
"""Bytes that are read at once."""
PAGE_RECORDS: Final = 1_024
"""Records that are read in one index transaction."""
UPLOAD_AGAIN: Final = "upload it again from a copy"
IF_LOST: Final = "if no copy exists, stop the hub and run `veen hub repair`, which drops it from the index"


class TooLargeError(StorageError):
    """An attachment exceeds ``max_attachment_bytes`` (core §14.1)."""


class ContentError(StorageError):
    """The bytes do not hash to the content id (RESOLUTIONS H17)."""


class LostError(DamageError):
    """An attachment was stored and is missing now; other attachments are not affected."""

    def __init__(self, coid: Coid) -> None:
        super().__init__(
            f"attachments/{coid.hex()}", None, "was stored and is missing", f"{UPLOAD_AGAIN}; {IF_LOST}"
        )
        self.coid = coid


class Attachments:
    """Content-addressed files. ``put`` returns when the content is durable; a second put changes nothing."""

    def __init__(self, files: Files, layout: Layout, max_bytes: int, index: Index | None) -> None:
        """``index`` is None while a directory is being copied; ``rebuild_index`` then records all of them."""
        self._files = files
        self._layout = layout
        self._max_bytes = max_bytes
        self._index = index
        self._numbers = count()
        self._durable: set[str] = set()  # folders that this process has synced: at most 65,536
        self._lock = threading.Lock()

    def put(self, coid: Coid, parts: Iterable[bytes]) -> bool:
        """Store a stream of parts; return False if the attachment exists already.

        An existing file is read first: a damaged one is replaced. A failed put leaves nothing behind.
        """
        path = self._layout.attachment(coid)
        self._make_directories(path.parent)
        if (size := _valid_size(path, coid)) is not None:
            self._files.sync_directory(path.parent)  # an earlier put may have crashed before its sync
            self._record(coid, size)
            return False
        temporary = path.with_name(f"{path.name}.{os.getpid()}-{next(self._numbers)}.tmp")
        try:
            size = self._write(temporary, coid, parts)
            self._files.rename(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
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
        """Return the error for an attachment without a file: the index knows whether it was ever stored."""
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
        """Write the parts to a file, check their hash, sync, and return the size."""
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
                    f"the {size} bytes received do not hash to attachment {coid.hex()} (RESOLUTIONS H17)"
                )
            self._files.sync(fd)
        finally:
            os.close(fd)
        return size

    def get(self, coid: Coid, part: int = PART_BYTES) -> Iterator[bytes]:
        """Yield the content in parts; raise ``DamageError`` at the end if its hash is not the content id."""
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
            raise DamageError(f"attachments/{path.name}", None, "does not hash to its name", UPLOAD_AGAIN)

    def size(self, coid: Coid) -> int:
        try:
            found = self._layout.attachment(coid).stat()
        except FileNotFoundError:
            raise self.missing(coid) from None
        if stat.S_ISDIR(found.st_mode):
            raise _no_file(coid)
        return found.st_size

    def coids(self) -> Iterator[Coid]:
        """Yield every attachment in order of content id; only the names of one folder are in memory."""
        for name in _names_below(self._layout.attachments, levels=2):
            if _COID.fullmatch(name):  # fsck reports other names
                yield Coid.from_hex(name)

    def recorded(self) -> tuple[int, int]:
        """Return number and total bytes of all attachments; reads every record."""
        if self._index is None:
            return 0, 0
        with self._index.reading() as view:
            size = sum(U64.unpack(row)[0] for _coid, row in view.rows(ATTACHMENTS.name))
            return view.count(ATTACHMENTS.name), size

    def lost(self) -> Iterator[Coid]:
        """Yield every attachment that is recorded and has no file."""
        after: bytes | None = b""
        while self._index is not None and after is not None:
            with self._index.reading() as view:
                some = [coid for coid, _size in islice(ATTACHMENTS.scan(view, after), PAGE_RECORDS)]
            yield from (coid for coid in some if not self._layout.attachment(coid).exists())
            after = some[-1] + b"\x00" if some else None


_COID: Final = re.compile(r"[0-9a-f]{64}")


def _names_below(folder: Path, levels: int) -> Iterator[str]:
    """Yield the file names ``levels`` folders below, in order."""
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
        f"move the folder out of the data directory, then {UPLOAD_AGAIN}",
    )


def _valid_size(path: Path, coid: Coid) -> int | None:
    """Return the file's size if it exists and hashes to the content id."""
    digest, size = sha256(), 0
    try:
        with path.open("rb") as file:
            while data := file.read(PART_BYTES):
                digest.update(data)
                size += len(data)
    except IsADirectoryError:
        raise _no_file(coid) from None
    except OSError:
        return None  # missing or unreadable: the new content replaces it
    return size if digest.digest() == coid else None
