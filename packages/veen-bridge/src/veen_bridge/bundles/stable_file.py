"""A file that must not change between its verification and its import.

A bundle is verified whole before its first event is written (AGB0 4.5), so its files are read twice, and a
stick or a network folder may change between the two. The first read of a block notes its hash; every later
read of the block must have the same hash before a byte of it is used.
"""

from __future__ import annotations

import io
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from veen_core.bundle import BundleError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BLOCK_BYTES: Final = 1_048_576
"""Bytes that are read and hashed at once."""

BlockHashes = dict[int, bytes]
"""The hash of each block that was read, by its number: 32 bytes for each MiB of a file."""


def open_stable(path: Path, part: int, hashes: BlockHashes) -> io.BufferedReader:
    """Open a file for reading; ``hashes`` are those of earlier reads, and are added to.

    Reading raises ``BundleError`` if the file was changed, or cannot be read.
    """
    return io.BufferedReader(_StableFile(path, part, hashes), BLOCK_BYTES)


class _StableFile(io.RawIOBase):
    """Reads a file block by block; compares each block with the hash of its first read."""

    def __init__(self, path: Path, part: int, hashes: BlockHashes) -> None:
        self._path, self._part, self._hashes = path, part, hashes
        self._position = 0
        self._number, self._block = -1, b""
        """The block that was read last."""
        try:
            self._file = path.open("rb", buffering=0)
        except OSError as exc:
            raise self._unreadable(exc) from None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            offset += self._file.seek(0, io.SEEK_END)
        elif whence == io.SEEK_CUR:
            offset += self._position
        self._position = max(0, offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        number, start = divmod(self._position, BLOCK_BYTES)
        if number != self._number:
            self._block, self._number = self._read(number), number
        target = memoryview(buffer).cast("B")
        piece = memoryview(self._block)[start : start + len(target)]
        target[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def _read(self, number: int) -> bytes:
        try:
            self._file.seek(number * BLOCK_BYTES)
            pieces, left = [], BLOCK_BYTES
            while left and (piece := self._file.read(left)):
                pieces.append(piece)
                left -= len(piece)
        except OSError as exc:
            raise self._unreadable(exc) from None
        block = b"".join(pieces)
        digest = sha256(block).digest()
        if self._hashes.setdefault(number, digest) != digest:
            raise BundleError(
                f"{self._path.name} was changed after it was verified",
                part=self._part,
                action="copy the file to a folder that no other program writes to, and import it from there",
            )
        return block

    def _unreadable(self, exc: OSError) -> BundleError:
        return BundleError(f"{self._path.name} cannot be read: {exc.strerror}", part=self._part)

    def close(self) -> None:
        if not self.closed and hasattr(self, "_file"):
            self._file.close()
        super().close()
