"""Iteration over a set-form export: receipts and payloads in parallel (spec-1 §15, ADR 0007).

Both files are CBOR sequences, read in windows. If the end of an item cannot be determined, the start of the
next one is unknown too: the rest of the segment becomes one ``Damage``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import numpy as np

from veen_core import cbor
from veen_core.errors import DecodeError, VeenError
from veen_core.export import AuthorizePayload, IndexRow, PrunedPayload
from veen_core.limits import DEFAULT_LIMITS
from veen_spark.read.chunk_walk import MAX_SPAN_ENTRIES
from veen_spark.read.field_layout import PAD_BYTES
from veen_spark.read.segment import (
    SAMPLE_BYTES,
    ControlEntry,
    Damage,
    Item,
    Items,
    PrunedLogEntry,
    Span,
    SparkSegment,
)

MAX_ITEM_BYTES: Final = DEFAULT_LIMITS.max_msg_bytes + 65_536
"""Upper bound for one item: a MSG, an authorize payload or a pruned payload."""
MAX_SPAN_BYTES: Final = 4 * 1_048_576
_ARRAY: Final = 4
"""The CBOR major type of a MSG (core §4.1)."""


class BrokenSequence(VeenError):  # noqa: N818 - never leaves this package
    """An item of a CBOR sequence has no valid end; ``offset`` is the item's start."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


def sequence(path: str, begin: int, end: int | None) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of the CBOR items in a byte range; raise ``BrokenSequence`` at a broken item."""
    with open(path, "rb") as file:
        file.seek(begin)
        base, rest = begin, b""
        left = (os.fstat(file.fileno()).st_size if end is None else end) - begin
        while True:
            data = file.read(max(0, min(MAX_ITEM_BYTES, left)))
            left -= len(data)
            window, used = rest + data, 0
            if not window:
                return
            try:
                while used < len(window):
                    stop = cbor.item_end(window, used)
                    yield base + used, window[used:stop]
                    used = stop
            except DecodeError as exc:
                if not data or len(window) - used > MAX_ITEM_BYTES:
                    raise BrokenSequence(base + used, f"not a CBOR item: {exc.found}") from exc
            base, rest = base + used, window[used:]


def walk_set(segment: SparkSegment) -> Items:
    """Yield the entries of a segment of a set-form export, in order."""
    assert segment.receipts is not None
    receipts = sequence(segment.receipts, segment.receipts_begin, segment.receipts_end)
    payloads = sequence(segment.path, segment.begin, segment.end)
    builder = _SpanBuilder()
    done = segment.begin
    try:
        for seq, (offset, payload) in enumerate(payloads, segment.start_seq):
            receipt_at, receipt = next(receipts, (-1, b""))
            if receipt_at < 0:
                raise BrokenSequence(offset, f"{segment.receipts} has no RECEIPT for this payload")
            done = offset + len(payload)
            if payload[0] >> 5 == _ARRAY:
                yield from builder.add(seq, offset, payload, receipt)
                continue
            yield from builder.flush()
            yield _without_msg(seq, offset, payload, receipt)
        if (left := next(receipts, None)) is not None:
            raise BrokenSequence(
                done, f"there is no payload for the RECEIPT at byte {left[0]} of {segment.receipts}"
            )
    except BrokenSequence as broken:
        yield from builder.flush()
        yield _remaining(segment, done, str(broken))
    yield from builder.flush()


def _without_msg(seq: int, offset: int, payload: bytes, receipt: bytes) -> Item:
    """Decode the payload of a control entry or a pruned entry (ADR 0007)."""
    try:
        if payload[1:11] == b"iauthorize":
            return ControlEntry(seq, offset, AuthorizePayload.decode(payload).authorize, receipt)
        kept = PrunedPayload.decode(payload).pruned
        if kept.receipt.encode() == receipt:
            return PrunedLogEntry(seq, offset, kept)
        reason = "I2: the RECEIPT inside the pruned payload differs from the one in the receipts file"
    except VeenError as exc:
        reason = str(exc)
    return Damage(offset, len(payload), reason, payload[:SAMPLE_BYTES])


def _remaining(segment: SparkSegment, at: int, reason: str) -> Damage:
    """Describe everything from ``at`` to the end of the segment as damage."""
    with open(segment.path, "rb") as file:
        size = (os.fstat(file.fileno()).st_size if segment.end is None else segment.end) - at
        file.seek(at)
        return Damage(at, max(0, size), reason, file.read(min(SAMPLE_BYTES, max(0, size))))


class _SpanBuilder:
    """Collects entries into spans of at most ``MAX_SPAN_ENTRIES`` entries and about ``MAX_SPAN_BYTES``."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._bounds: list[tuple[int, int, int, int, int]] = []

    def add(self, seq: int, offset: int, msg: bytes, receipt: bytes) -> Items:
        """Add an entry; yield the span if it is now full."""
        begin, between = self._size, self._size + len(msg)
        self._size = between + len(receipt)
        self._parts += (msg, receipt)
        self._bounds.append((seq, offset, begin, between, self._size))
        if len(self._bounds) >= MAX_SPAN_ENTRIES or self._size >= MAX_SPAN_BYTES:
            yield from self.flush()

    def flush(self) -> Items:
        """Yield the entries collected so far as a span."""
        if self._parts:
            seq, *bounds = np.array(self._bounds, dtype=np.int64).T
            yield Span(b"".join((*self._parts, bytes(PAD_BYTES))), seq.astype(np.uint64), *bounds)
            self._parts, self._size, self._bounds = [], 0, []


_ROW_PREFIX: Final = b"\xa2\x66offset"
"""The first bytes of an encoded index row. They cannot occur inside a row, since offsets are below 2^63."""
_MAX_ROW_BYTES: Final = 48


class SequenceIndex:
    """The index of a CBOR sequence, ``*.index.cborseq``, searched by bisection over stream_seq."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._size = os.path.getsize(path)

    def at_fraction(self, part: int, of: int) -> IndexRow | None:
        """Return the first row at or after ``part / of`` of the index file."""
        with open(self._path, "rb") as file:
            found = self._row_from(file.fileno(), self._size * part // of)
        return found[1] if found is not None else None

    def row_of(self, seq: int) -> IndexRow | None:
        """Return the index row of entry ``seq``, or None if the index has no such row."""
        with open(self._path, "rb") as file:
            fd, low, high = file.fileno(), 0, self._size
            while low < high:
                middle = (low + high) // 2
                found = self._row_from(fd, middle)
                if found is None or found[1].stream_seq > seq:
                    high = middle
                elif found[1].stream_seq == seq:
                    return found[1]
                else:
                    low = found[0] + 1
        return None

    def _row_from(self, fd: int, at: int) -> tuple[int, IndexRow] | None:
        data = os.pread(fd, 2 * _MAX_ROW_BYTES, at)
        if (start := data.find(_ROW_PREFIX)) < 0:
            return None
        try:
            return at + start, IndexRow.decode(data[start : cbor.item_end(data, start)])
        except DecodeError:
            return None  # with a damaged index the export is read as one segment
