"""Writing the content of one part: events and attachments as they come, then the index (P6).

A part is complete once it has its name: ``finish`` writes the index, syncs the file and renames it. The
trailer is appended later (``append_ending``), when the hashes of all parts are known.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from veen_core.bundle import IndexedAttachment, PartDigest, PartIndex, PartRow, PartTrailer
from veen_core.bundle.part import (
    ATTACHMENT_HEAD,
    EVENT_HEAD,
    INDEX_STEP,
    MAGIC,
    MAX_INDEXED_ATTACHMENTS,
    attachment_head,
    encode_ending,
    event_head,
)
from veen_core.entry import Entry
from veen_core.ids import Coid, NodeHash, StreamSeq, UnixTime
from veen_hub.client import sync_folder

BUFFER_BYTES: Final = 1_048_576
"""Bytes that are collected before they are hashed and written."""
INDEX_BASE: Final = 4_096
"""Bytes of an index without offsets and attachments: at most 64 peaks."""
OFFSET_BYTES: Final = 9
INDEXED_BYTES: Final = 56


class PartWriter:
    """One part that is being written, as ``NAME.tmp``."""

    def __init__(
        self, path: Path, max_bytes: int, first_seq: StreamSeq, peaks: tuple[NodeHash, ...], hub_ts: UnixTime
    ) -> None:
        """Begin a part of at most ``max_bytes`` of content, after an event with this ``hub_ts``."""
        self.path = path
        self.first_seq = self.next_seq = first_seq
        self.unopened = 0
        self._max_bytes, self._peaks, self._hub_ts = max_bytes, peaks, hub_ts
        self._offsets: list[int] = []
        self._attachments: list[IndexedAttachment] = []
        self._digest = sha256(MAGIC)
        self._temporary = path.with_name(f"{path.name}.tmp")
        self._file = self._temporary.open("wb")
        self._file.write(MAGIC)
        self._size = len(MAGIC)
        self._buffer: list[bytes] = []
        self._buffered = 0

    @property
    def is_empty(self) -> bool:
        return self._size == len(MAGIC)

    @property
    def attachment_bytes(self) -> int:
        return sum(each.size for each in self._attachments)

    def _index_bytes(self) -> int:
        return (
            INDEX_BASE
            + OFFSET_BYTES * (len(self._offsets) + 1)
            + INDEXED_BYTES * (len(self._attachments) + 1)
        )

    def _fits(self, size: int) -> bool:
        return self._size + size + self._index_bytes() <= self._max_bytes

    def has_room_for(self, attachment_size: int) -> bool:
        """Return whether an attachment of this size fits into this part."""
        return len(self._attachments) < MAX_INDEXED_ATTACHMENTS and self._fits(
            ATTACHMENT_HEAD.size + attachment_size
        )

    def add_events(self, entries: Sequence[Entry]) -> int:
        """Add consecutive events as long as they fit; return how many were added."""
        pieces: list[bytes] = []
        size, seq = self._size, self.next_seq
        limit = self._max_bytes - self._index_bytes() - OFFSET_BYTES * (len(entries) // INDEX_STEP + 1)
        for entry in entries:
            msg, receipt = entry.msg_bytes, entry.receipt_bytes
            end = size + EVENT_HEAD.size + len(msg) + len(receipt)
            if end > limit:
                break
            if (seq - self.first_seq) % INDEX_STEP == 0:
                self._offsets.append(size)
            pieces += (event_head(msg, receipt), msg, receipt)
            size, seq = end, StreamSeq(seq + 1)
        added = seq - self.next_seq
        self.next_seq = seq
        self._write(b"".join(pieces))
        return added

    def add_attachment(self, coid: Coid, ciphertext: bytes) -> None:
        self._write(attachment_head(len(ciphertext)))
        self._attachments.append(IndexedAttachment(coid=coid, offset=self._size, size=len(ciphertext)))
        self._write(ciphertext)

    def _write(self, data: bytes) -> None:
        self._buffer.append(data)
        self._size += len(data)
        self._buffered += len(data)
        if self._buffered >= BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        block = b"".join(self._buffer)
        self._digest.update(block)
        self._file.write(block)
        self._buffer, self._buffered = [], 0

    def finish(self) -> PartRow:
        """Write the index, make the part durable and give it its name."""
        index = PartIndex(
            peaks=self._peaks,
            hub_ts=self._hub_ts,
            offsets=tuple(self._offsets),
            attachments=tuple(self._attachments),
            unopened=self.unopened,
        ).encode()
        self._write(index)
        self._flush()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.rename(self._temporary, self.path)
        sync_folder(self.path.parent)
        return PartRow(
            first_seq=self.first_seq,
            last_seq=StreamSeq(self.next_seq - 1),
            attachments=len(self._attachments),
            index_size=len(index),
            size=self._size,
            digest=PartDigest(self._digest.digest()),
        )

    def close(self) -> None:
        """Close the file of a part that is not finished; it stays as ``NAME.tmp``."""
        self._file.close()


def append_ending(path: Path, content_size: int, trailer: PartTrailer) -> None:
    """Append trailer and footer to a part, durably; repeating it after a crash has the same result."""
    with path.open("r+b") as file:
        file.truncate(content_size)
        file.seek(content_size)
        file.write(encode_ending(trailer))
        file.flush()
        os.fsync(file.fileno())
