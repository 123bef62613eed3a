"""The byte format of a journal segment, and how a torn batch differs from a damaged one (RESOLUTIONS H2).

A segment is a run of batches. A batch is a header, a payload and one byte ``ff``:

    magic (4) | batch number (u64be) | payload length (u32be) | zero bytes in the payload (u32be)
    | SHA-256 of the payload (32) | CRC-32 of the header so far (4)

The payload is a run of items: ``kind (u8) | length (u32be) | bytes``. Batch numbers rise by one.

A batch is written with one write and one sync, and the next batch is written only after that sync. So:

- A batch that another batch follows was synced. If it does not match its checksums, it is damaged.
- The last batch of the newest segment may be torn: a power loss before its sync leaves any of its bytes
  unwritten. An unwritten byte is zero or beyond the end of the file. The hub gave no receipt for a torn
  batch, so it is dropped.
- A last batch that holds a byte which is neither zero nor what was written is damaged, not torn. The count
  of zero bytes tells the two apart if the header is whole: more zeros than were written mean a torn batch.
  One flipped bit in 256 clears the only bit of its byte and is taken for a torn write. ADR 0008 lists the
  other losses at the end of a journal that look like a torn write, or like nothing at all.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import zip_longest
from typing import Final, NamedTuple
from zlib import crc32

from veen_storage.errors import DamageError

MAGIC: Final = b"VJ1\n"
"""The first bytes of every batch, hence of every segment."""
_HEADER: Final = struct.Struct(">4sQII32s")
_CRC: Final = struct.Struct(">I")
HEADER_SIZE: Final = _HEADER.size + _CRC.size
_NUMBERED: Final = struct.Struct(">4sQ")
"""The part of a header that is known before the batch is read."""
_END: Final = b"\xff"
_ITEM: Final = struct.Struct(">BI")
MAX_FLIPPED_BYTES: Final = 8
"""Most bytes in which a damaged header may differ from the one that its payload requires.

With more, the payload is not the one that was written, so the whole batch is torn.
"""
_COMPARED_BYTES: Final = 4_096

ENTRY: Final = 1
"""Item kind: a framed log entry (core §4.8.1)."""
CHECKPOINT: Final = 2
"""Item kind: an encoded CHECKPOINT of the label as of the items before it."""
ANCHOR: Final = 3
"""Item kind: an ``Anchor`` record (ANCHOR0.2)."""
PRUNE: Final = 4
"""Item kind: a ``Prune`` decision of retention."""
HUB_CHECKPOINT: Final = 5
"""Item kind: a ``HubExtension``: new entries of the hub log and its hub checkpoint (RESOLUTIONS P1)."""


class Item(NamedTuple):
    """One record of a batch."""

    kind: int
    data: bytes


@dataclass(frozen=True, slots=True)
class JournalBatch:
    """One group commit as the journal stores it."""

    number: int
    items: tuple[Item, ...]

    @property
    def size(self) -> int:
        """Bytes in the segment, header included."""
        return HEADER_SIZE + sum(_ITEM.size + len(item.data) for item in self.items) + len(_END)


class BatchHeader(NamedTuple):
    """The fields of a batch header that a reader needs."""

    number: int
    length: int
    """Bytes of the payload."""
    digest: bytes
    """SHA-256 of the payload."""


def read_header(data: bytes) -> BatchHeader | None:
    """Return the header at the start of ``data``; None if there is none that matches its checksum."""
    if not _header_is_valid(data, 0):
        return None
    _magic, number, length, _zeros, digest = _HEADER.unpack_from(data)
    return BatchHeader(number, length, digest)


def batch_size(header: BatchHeader) -> int:
    """Return the bytes of a batch in its segment, header included."""
    return HEADER_SIZE + header.length + len(_END)


def encode_batch(number: int, items: list[Item]) -> bytes:
    payload = b"".join(part for item in items for part in (_ITEM.pack(item.kind, len(item.data)), item.data))
    return b"".join((_encode_header(number, payload), payload, _END))


def _encode_header(number: int, payload: bytes) -> bytes:
    # Counting zeros costs about as much as the hash: 1.8 ms per MB.
    header = _HEADER.pack(MAGIC, number, len(payload), payload.count(0), sha256(payload).digest())
    return header + _CRC.pack(crc32(header))


def split_segment(
    name: str,
    data: bytes,
    *,
    last: bool,
    first: int | None = None,
    torn: Callable[[str], None] = lambda _notice: None,
) -> Iterator[tuple[int, JournalBatch]]:
    """Yield the offset and content of each batch of a segment; raise ``DamageError`` rather than skip one.

    ``last``: this is the newest segment, which may end in a torn batch; ``torn`` receives a notice of it.
    ``first`` is the number of the segment's first batch, if it is known.
    """
    offset, expected = 0, first
    while offset < len(data):
        if (fault := _find_fault(data, offset)) is not None:
            if not last or not _is_torn(data[offset:], expected):
                raise DamageError(name, offset, fault)
            torn(
                f"{name}: the last batch, from byte {offset} on, never fully reached the disk and is "
                "dropped; the hub gave no receipt for it, unless the disk lost what it reported as durable"
            )
            return
        _magic, number, length, _zeros, _digest = _HEADER.unpack_from(data, offset)
        start = offset + HEADER_SIZE
        yield offset, JournalBatch(number, tuple(_decode_items(name, offset, data[start : start + length])))
        offset, expected = start + length + len(_END), number + 1


def _decode_items(name: str, batch_at: int, payload: bytes) -> Iterator[Item]:
    """Yield the items of a payload that matches its checksum."""
    offset = 0
    while offset < len(payload):
        start = offset + _ITEM.size
        kind, length = _ITEM.unpack_from(payload, offset) if start <= len(payload) else (0, 0)
        offset = start + length
        if offset > len(payload):
            raise DamageError(name, batch_at, "an item of the batch ends after the batch")
        yield Item(kind, payload[start:offset])


def _find_fault(data: bytes, offset: int) -> str | None:
    """Return what is wrong with the batch at ``offset``, or None."""
    if not _header_is_valid(data, offset):
        return "a batch header is cut short or does not match its checksum"
    _magic, _number, length, _zeros, digest = _HEADER.unpack_from(data, offset)
    start = offset + HEADER_SIZE
    end = start + length + len(_END)
    if end > len(data):
        return f"a batch of {length} bytes is cut short"
    whole = data[start + length : end] == _END and sha256(data[start : start + length]).digest() == digest
    return None if whole else "a batch does not match its checksum"


def _header_is_valid(data: bytes, offset: int) -> bool:
    header = data[offset : offset + _HEADER.size]
    return (
        len(data) - offset >= HEADER_SIZE
        and header.startswith(MAGIC)
        and _CRC.unpack_from(data, offset + _HEADER.size) == (crc32(header),)
    )


def _is_torn(rest: bytes, expected: int | None) -> bool:
    """Return whether ``rest`` is one batch of which some bytes were never written."""
    if not _header_is_valid(rest, 0):
        return _header_is_torn(rest, expected) and not _batch_follows(rest)
    _magic, _number, length, zeros, _digest = _HEADER.unpack_from(rest)
    end = HEADER_SIZE + length + len(_END)
    if end != len(rest):
        return bool(end > len(rest))  # bytes after the batch prove that it was synced
    return bool(rest.count(0, HEADER_SIZE) > zeros)


def _header_is_torn(rest: bytes, expected: int | None) -> bool:
    """Return whether a header that fails its checksum lacks bytes, rather than has wrong ones."""
    known = _NUMBERED.pack(MAGIC, expected) if expected is not None else MAGIC
    if foreign_at(rest[: len(known)], known, 0) is not None:
        return False
    if len(rest) <= HEADER_SIZE or not rest.endswith(_END):
        return True
    number = expected if expected is not None else _NUMBERED.unpack_from(rest)[1]
    written = _encode_header(number, rest[HEADER_SIZE : -len(_END)])  # if the payload arrived whole
    wrong = [found for found, byte in zip(rest, written, strict=False) if found != byte]
    return 0 in wrong or len(wrong) > MAX_FLIPPED_BYTES


def _batch_follows(rest: bytes) -> bool:
    """Return whether a later batch begins in ``rest``: then the first batch of ``rest`` was synced."""
    at = rest.find(MAGIC, 1)
    while at >= 0 and not _header_is_valid(rest, at):
        at = rest.find(MAGIC, at + 1)
    return at >= 0


def foreign_at(found: bytes, written: bytes, offset: int) -> int | None:
    """Return the file offset of the first byte of ``found`` that a torn write of ``written`` cannot leave.

    ``found`` was read at ``offset``. A torn write leaves each byte as it was written, or zero.
    """
    for low in range(0, len(found), _COMPARED_BYTES):
        have, want = found[low : low + _COMPARED_BYTES], written[low : low + _COMPARED_BYTES]
        if have != want[: len(have)]:
            for at, (byte, wanted) in enumerate(zip_longest(have, want[: len(have)])):
                if byte and byte != wanted:
                    return offset + low + at
    return None
