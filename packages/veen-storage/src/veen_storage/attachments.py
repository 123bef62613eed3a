"""Attachments: ciphertexts by coid, streamed in and out, never whole in memory (H17, §4.6)."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Final

from veen_core.ids import Coid
from veen_storage.errors import AbsentError, DamageError, StorageError
from veen_storage.files import Files
from veen_storage.layout import Layout

PART = 256 * 1_024


class TooLargeError(StorageError):
    """An attachment is over ``max_attachment_bytes`` (§14.1)."""


class ContentError(StorageError):
    """The bytes are not those the coid names (H17)."""


class Attachments:
    """Content-addressed files. Durable before ``put`` returns; the same content again changes nothing."""

    def __init__(self, files: Files, layout: Layout, max_bytes: int) -> None:
        self._files = files
        self._layout = layout
        self._max_bytes = max_bytes
        self._numbers = count()
        self._durable: set[str] = set()  # folders whose names this process has synced: at most 65,536
        self._lock = threading.Lock()

    def put(self, coid: Coid, parts: Iterable[bytes]) -> bool:
        """Store a stream of parts; False if it was there already. Nothing half-written stays.

        What is there is read first: a damaged attachment is no reason to turn a good one away.
        """
        path = self._layout.attachment(coid)
        self._make_directories(path.parent)
        if _holds(path, coid):
            self._files.sync_directory(path.parent)  # whoever put it may have been cut off before this
            return False
        beside = path.with_name(f"{path.name}.{os.getpid()}-{next(self._numbers)}.tmp")
        try:
            self._write(beside, coid, parts)
            self._files.rename(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        self._files.sync_directory(path.parent)
        return True

    def _make_directories(self, folder: Path) -> None:
        with self._lock:
            if (name := folder.parent.name + folder.name) not in self._durable:
                self._files.make_directory(folder)
                self._files.sync_directory(folder.parent)
                self._files.sync_directory(folder.parent.parent)
                self._durable.add(name)

    def _write(self, path: Path, coid: Coid, parts: Iterable[bytes]) -> None:
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

    def get(self, coid: Coid, part: int = PART) -> Iterator[bytes]:
        """The content in parts; raises ``DamageError`` at the end if it is not what the coid names."""
        path = self._layout.attachment(coid)
        try:
            file = path.open("rb")
        except FileNotFoundError:
            raise AbsentError(f"there is no attachment {coid.hex()}") from None
        digest = sha256()
        with file:
            while data := file.read(part):
                digest.update(data)
                yield data
        if digest.digest() != coid:
            raise DamageError(
                str(path.name), None, "is not the content its name says", "put it again from a copy"
            )

    def size(self, coid: Coid) -> int:
        try:
            return self._layout.attachment(coid).stat().st_size
        except FileNotFoundError:
            raise AbsentError(f"there is no attachment {coid.hex()}") from None

    def coids(self) -> Iterator[Coid]:
        """Every attachment there is, in order of coid."""
        for path in sorted(self._layout.attachments.glob("??/??/*")):
            if _COID.fullmatch(path.name):  # a put that was cut off, or a stray: fsck names them
                yield Coid.from_hex(path.name)


_COID: Final = re.compile(r"[0-9a-f]{64}")


def _holds(path: Path, coid: Coid) -> bool:
    """Whether the file is there and is what the coid names."""
    digest = sha256()
    try:
        with path.open("rb") as file:
            while data := file.read(PART):
                digest.update(data)
    except FileNotFoundError:
        return False
    return digest.digest() == coid
