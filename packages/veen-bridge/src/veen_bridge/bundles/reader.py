"""Opening the files of bundles: footer, trailer and index first, content in blocks (P6).

``open_bundles`` sorts files into bundles by the header that each carries. A file that cannot be opened as a
part is a fault that names the file. Only indices and one block of content are held in memory. A second read
of a block must return the bytes of the first, so verification and import see the same content.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path

from veen_bridge.bundles.naming import number_in_name
from veen_bridge.bundles.stable_file import BLOCK_BYTES, BlockHashes, open_stable
from veen_core.bundle import BundleError, BundleHeader, PartIndex, PartRow, PartTrailer, bundle_id
from veen_core.bundle.part import (
    ATTACHMENT,
    ATTACHMENT_HEAD,
    EVENT_HEAD,
    FOOTER_SIZE,
    INDEX_STEP,
    trailer_start,
)
from veen_core.entry import Entry
from veen_core.errors import DecodeError
from veen_core.hashing import H
from veen_core.ids import BundleId, Coid, StreamSeq


@dataclass(frozen=True, slots=True)
class PartFile:
    """One file with the footer and trailer of a part; nothing is verified yet."""

    path: Path
    trailer: PartTrailer
    content_size: int
    """Bytes before the trailer."""
    hashes: BlockHashes = field(default_factory=dict, compare=False, repr=False)
    """Hashes of the blocks that were read."""

    @property
    def number(self) -> int:
        return self.trailer.number

    @property
    def row(self) -> PartRow:
        """The part table's row of this part; raises ``BundleError`` if the header has none."""
        parts = self.trailer.header.parts
        if not 1 <= self.number <= len(parts):
            raise BundleError(f"{self.path.name}: the bundle has {len(parts)} parts", part=self.number)
        return parts[self.number - 1]

    def check_size(self) -> None:
        """Raise ``BundleError`` if the file is longer or shorter than its row says, or wrongly named."""
        if self.content_size != self.row.size:
            raise BundleError(
                f"{self.path.name} has {self.content_size} bytes of content, its row says {self.row.size}: "
                "it was cut or altered",
                part=self.number,
            )
        if (named := number_in_name(self.path)) is not None and named != self.number:
            raise BundleError(
                f"{self.path.name} contains part {self.number}, not part {named}: parts were swapped",
                part=self.number,
            )

    def open(self) -> BufferedReader:
        """Open the file; reading raises ``BundleError`` if its bytes differ from the first read."""
        return open_stable(self.path, self.number, self.hashes)

    def index_bytes(self) -> bytes:
        """Read the bytes of the index."""
        row = self.row
        with self.open() as file:
            file.seek(row.size - row.index_size)
            return file.read(row.index_size)

    def blocks(self) -> Iterator[bytes]:
        """Yield the content before the index."""
        left = self.row.size - self.row.index_size
        with self.open() as file:
            while left > 0 and (block := file.read(min(left, BLOCK_BYTES))):
                left -= len(block)
                yield block

    def events(self, index: PartIndex, from_seq: int) -> Iterator[Entry]:
        """Yield the events of a verified part, from ``from_seq`` on."""
        row = self.row
        seq = max(from_seq, row.first_seq)
        if seq > row.last_seq:
            return
        step = (seq - row.first_seq) // INDEX_STEP
        at = row.first_seq + step * INDEX_STEP
        with self.open() as file:
            file.seek(index.offsets[step])
            while at <= row.last_seq:
                msg, receipt = _next_event(file, self.number, at)
                if at >= seq:
                    yield Entry(self.trailer.header.label, StreamSeq(at), msg, receipt)
                at += 1


def _next_event(file: BufferedReader, number: int, seq: int) -> tuple[bytes, bytes]:
    """Read the next event; attachments before it are skipped."""
    while True:
        kind = _next_kind(file, number, seq)
        head = file.read(ATTACHMENT_HEAD.size if kind == bytes([ATTACHMENT]) else EVENT_HEAD.size)
        if kind == bytes([ATTACHMENT]) and len(head) == ATTACHMENT_HEAD.size:
            file.seek(ATTACHMENT_HEAD.unpack(head)[1], os.SEEK_CUR)
            continue
        if len(head) == EVENT_HEAD.size:
            _, msg_size, receipt_size = EVENT_HEAD.unpack(head)
            msg, receipt = file.read(msg_size), file.read(receipt_size)
            if (len(msg), len(receipt)) == (msg_size, receipt_size):
                return msg, receipt
        raise BundleError("the file was changed after it was verified", part=number, seq=seq)


def _next_kind(file: BufferedReader, number: int, seq: int) -> bytes:
    try:
        return file.peek(1)[:1]
    except BundleError as exc:
        raise BundleError(exc.found, part=number, seq=seq, action=exc.action) from None


def open_part(path: Path) -> PartFile:
    """Open a file as a part of a bundle; raise ``BundleError`` that names the file if it is none."""
    named = number_in_name(path)
    if path.exists() and not path.is_file():  # opening a pipe would wait for its writer
        raise BundleError(f"{path.name} is not a regular file", part=named)
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - FOOTER_SIZE))
            start = trailer_start(size, file.read(FOOTER_SIZE))
            file.seek(start)
            trailer = PartTrailer.decode(file.read(size - FOOTER_SIZE - start))
    except DecodeError as exc:
        raise BundleError(f"{path.name}: {exc}", part=named) from None
    except OSError as exc:
        raise BundleError(f"{path.name} cannot be read: {exc.strerror}", part=named) from None
    return PartFile(path, trailer, start)


@dataclass(frozen=True, slots=True)
class BundleFiles:
    """The files that name one bundle_id in their trailers; nothing is verified yet."""

    bundle_id: BundleId
    trailer: PartTrailer
    """The trailer of one of the parts."""
    parts: dict[int, PartFile] = field(default_factory=dict)
    doubled: list[PartFile] = field(default_factory=list)
    """Files of parts that were found already."""

    @property
    def header(self) -> BundleHeader:
        return self.trailer.header

    def events(self, from_seq: int = 1) -> Iterator[Entry]:
        """Yield the events of a verified bundle in order, from ``from_seq`` on."""
        for number, row in enumerate(self.header.parts, start=1):
            if row.last_seq >= from_seq:
                part = self.parts[number]
                yield from part.events(PartIndex.decode(part.index_bytes()), from_seq)

    def coids(self) -> Iterator[tuple[Coid, int]]:
        """Yield id and size of every attachment of a verified bundle."""
        for number in sorted(self.parts):
            for each in PartIndex.decode(self.parts[number].index_bytes()).attachments:
                yield each.coid, each.size

    def attachment(self, coid: Coid) -> bytes | None:
        """Return the ciphertext of an attachment, checked against its coid; None if there is none."""
        for part in self.parts.values():
            for each in PartIndex.decode(part.index_bytes()).attachments:
                if each.coid == coid:
                    with part.open() as file:
                        file.seek(each.offset)
                        content = file.read(each.size)
                    if H(content) != coid:
                        raise BundleError(f"attachment {coid.hex()} is damaged", part=part.number)
                    return content
        return None


@dataclass(frozen=True, slots=True)
class OpenedFiles:
    """Opened files, sorted into bundles; a file that is no part of any bundle is a fault."""

    bundles: list[BundleFiles]
    faults: list[BundleError]


def open_bundles(paths: Iterable[Path]) -> OpenedFiles:
    """Open files, and folders of files, and sort them into bundles in the order of their first file."""
    found: dict[BundleId, BundleFiles] = {}
    faults: list[BundleError] = []
    for path in _files(paths):
        try:
            part = open_part(path)
        except BundleError as exc:
            faults.append(exc)
            continue
        name = bundle_id(part.trailer.header)
        files = found.setdefault(name, BundleFiles(name, part.trailer))
        if part.number in files.parts:
            files.doubled.append(part)
        else:
            files.parts[part.number] = part
    return OpenedFiles(list(found.values()), faults)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(each for each in path.iterdir() if each.suffix == ".veenb")
        else:
            yield path
