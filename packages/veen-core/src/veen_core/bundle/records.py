"""Parsing the content of a part from blocks of any size, in bounded memory (P6).

``RecordParser`` keeps at most one event besides the block that it was given. The bytes of an attachment are
hashed as they arrive and not kept. The content hash is computed on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from veen_core.bundle.header import PartDigest, PartRow
from veen_core.bundle.part import (
    ATTACHMENT,
    ATTACHMENT_HEAD,
    EVENT,
    EVENT_HEAD,
    INDEX_STEP,
    MAGIC,
    BundleError,
    IndexedAttachment,
)
from veen_core.entry import Entry
from veen_core.ids import Coid, Label, StreamSeq
from veen_core.limits import ENTRY_OVERHEAD_BYTES, MAXIMA


class RecordParser:
    """The state of reading one part: events come out in order, attachments are checked on the way."""

    def __init__(self, number: int, row: PartRow, label: Label) -> None:
        self.next_seq = row.first_seq
        self.offsets: list[int] = []
        """Offsets of events, every ``INDEX_STEP``-th."""
        self.attachments: list[IndexedAttachment] = []
        self.event_bytes = 0
        self._number, self._row, self._label = number, row, label
        self._records_end = row.size - row.index_size
        self._digest = sha256()
        self._at = 0
        """Offset in the file of the first byte in ``_rest``."""
        self._rest = b""
        self._hash = sha256()
        self._open: tuple[int, int] | None = None
        """Offset and size of the attachment that is being read."""
        self._left = 0
        """Bytes of that attachment that have not arrived."""

    @property
    def read(self) -> int:
        """Bytes of the content that were given to ``feed``."""
        return self._at + len(self._rest)

    @property
    def digest(self) -> PartDigest:
        """Hash of the content so far."""
        return PartDigest(self._digest.digest())

    def feed(self, block: bytes) -> Sequence[Entry]:
        """Take the next bytes of the content, up to the index; return the events that they complete."""
        self._digest.update(block)
        data = self._rest + block if self._rest else block
        at = 0
        if self._at == 0:
            if len(data) < len(MAGIC):
                self._rest = data
                return ()
            if not data.startswith(MAGIC):
                raise self._fail("the file does not begin like a part of a bundle")
            at = len(MAGIC)
        events: list[Entry] = []
        while at < len(data):
            end = self._record(data, at, events)
            if end is None:
                break
            at = end
        self._at += at
        self._rest = data[at:]
        return events

    def skip(self, block: bytes) -> None:
        """Take the bytes of the index, which the caller has checked."""
        self._digest.update(block)

    def _record(self, data: bytes, at: int, events: list[Entry]) -> int | None:
        """Read the record at ``at``; return where it ends, or None if more bytes are needed."""
        if self._open is not None:
            return self._attachment_bytes(data, at)
        kind = data[at]
        if kind == EVENT:
            if len(data) - at < EVENT_HEAD.size:
                return None
            _, msg_size, receipt_size = EVENT_HEAD.unpack_from(data, at)
            start = at + EVENT_HEAD.size
            middle: int = start + msg_size
            end: int = middle + receipt_size
            if end > len(data):
                self._check_announced(at, msg_size, receipt_size)
                return None
            if (self.next_seq - self._row.first_seq) % INDEX_STEP == 0:
                self.offsets.append(self._at + at)
            events.append(Entry(self._label, self.next_seq, data[start:middle], data[middle:end]))
            self.event_bytes += msg_size + receipt_size
            self.next_seq = StreamSeq(self.next_seq + 1)
            return end
        if kind == ATTACHMENT:
            return self._attachment(data, at)
        raise self._fail(f"unknown record of type {kind} at byte {self._at + at}")

    def _check_announced(self, at: int, msg_size: int, receipt_size: int) -> None:
        if msg_size > MAXIMA["max_msg_bytes"] or receipt_size > ENTRY_OVERHEAD_BYTES:
            raise BundleError(
                f"the event announces {msg_size} and {receipt_size} bytes, which no MSG and RECEIPT have",
                "core §14",
                part=self._number,
                seq=self.next_seq,
            )
        if self._at + at + EVENT_HEAD.size + msg_size + receipt_size > self._records_end:
            raise self._fail("the event does not end before the index", self.next_seq)

    def _attachment(self, data: bytes, at: int) -> int | None:
        if len(data) - at < ATTACHMENT_HEAD.size:
            return None
        _, size = ATTACHMENT_HEAD.unpack_from(data, at)
        end = at + ATTACHMENT_HEAD.size
        if size > MAXIMA["max_attachment_bytes"]:
            raise self._fail(f"an attachment of {size} bytes is larger than any attachment")
        if self._at + end + size > self._records_end:
            raise self._fail("an attachment does not end before the index")
        self._open, self._left, self._hash = (self._at + end, size), size, sha256()
        return self._attachment_bytes(data, end)

    def _attachment_bytes(self, data: bytes, at: int) -> int:
        assert self._open is not None
        piece = data[at : at + self._left]
        self._hash.update(piece)
        self._left -= len(piece)
        if not self._left:
            offset, size = self._open
            coid = Coid(self._hash.digest())
            self.attachments.append(IndexedAttachment(coid=coid, offset=offset, size=size))
            self._open = None
            if len(self.attachments) > self._row.attachments:
                raise self._fail(f"more attachments than the {self._row.attachments} in the part table")
        return at + len(piece)

    def finish(self) -> None:
        """Check that the records end exactly where the index begins, with the promised events."""
        if self._rest or self._open is not None or self._at != self._records_end:
            raise self._fail("the last record is incomplete", self.next_seq)
        if self.next_seq != self._row.last_seq + 1:
            raise self._fail(
                f"the part ends before entry {self.next_seq}, its row says {self._row.last_seq}",
                self.next_seq,
            )
        if len(self.attachments) != self._row.attachments:
            raise self._fail(
                f"{len(self.attachments)} attachments, the part table has {self._row.attachments}"
            )

    def _fail(self, found: str, seq: int | None = None) -> BundleError:
        return BundleError(found, part=self._number, seq=seq)
