"""Walking a portable set: its receipts and payloads side by side (spec-1 §15, ADR 0007).

Both are CBOR sequences, read in windows. An item that cannot be told from the next one ends the walk: behind
it nothing says where a payload begins, so the rest of the range is one ``Damage``.
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
from veen_spark.read.chunk_walk import MOST_ENTRIES
from veen_spark.read.field_layout import PAD
from veen_spark.read.segment import SAMPLE, Authorize, Damage, Item, Items, Pruned, Segment, Span

MOST: Final = DEFAULT_LIMITS.max_msg_bytes + 65_536
"""No item is longer: a MSG, or what stands in its place."""
SPAN_BYTES: Final = 4 * 1_048_576
_ARRAY: Final = 4
"""CBOR's major type of a MSG (§4.1)."""


class Broken(VeenError):  # noqa: N818 - carries where, to whoever reads on
    """Nothing that follows in the sequence can be told apart."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


def sequence(path: str, begin: int, end: int | None) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of every item in a range; raises ``Broken`` where there is none."""
    with open(path, "rb") as file:
        file.seek(begin)
        base, rest = begin, b""
        left = (os.fstat(file.fileno()).st_size if end is None else end) - begin
        while True:
            data = file.read(max(0, min(MOST, left)))
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
                if not data or len(window) - used > MOST:
                    raise Broken(base + used, f"no item: {exc.found}") from exc
            base, rest = base + used, window[used:]


def walk_set(segment: Segment) -> Items:
    """The entries of a set's range, in order."""
    assert segment.receipts is not None
    receipts = sequence(segment.receipts, segment.receipts_begin, segment.receipts_end)
    payloads = sequence(segment.path, segment.begin, segment.end)
    gathered = _Gathered()
    done = segment.begin
    try:
        for seq, (offset, payload) in enumerate(payloads, segment.start_seq):
            receipt_at, receipt = next(receipts, (-1, b""))
            if receipt_at < 0:
                raise Broken(offset, f"no RECEIPT is left for it in {segment.receipts}")
            done = offset + len(payload)
            if payload[0] >> 5 == _ARRAY:
                yield from gathered.add(seq, offset, payload, receipt)
                continue
            yield from gathered.flush()
            yield _other(seq, offset, payload, receipt)
        if (left := next(receipts, None)) is not None:
            raise Broken(done, f"nothing is left for the RECEIPT at byte {left[0]} of {segment.receipts}")
    except Broken as broken:
        yield from gathered.flush()
        yield _rest(segment, done, str(broken))
    yield from gathered.flush()


def _other(seq: int, offset: int, payload: bytes, receipt: bytes) -> Item:
    """A control entry or a pruned one (ADR 0007)."""
    try:
        if payload[1:11] == b"iauthorize":
            return Authorize(seq, offset, AuthorizePayload.decode(payload).authorize, receipt)
        kept = PrunedPayload.decode(payload).pruned
        if kept.receipt.encode() == receipt:
            return Pruned(seq, offset, kept)
        reason = "the pruned payload is of another RECEIPT than the one beside it (I2)"
    except VeenError as exc:
        reason = str(exc)
    return Damage(offset, len(payload), reason, payload[:SAMPLE])


def _rest(segment: Segment, at: int, reason: str) -> Damage:
    with open(segment.path, "rb") as file:
        size = (os.fstat(file.fileno()).st_size if segment.end is None else segment.end) - at
        file.seek(at)
        return Damage(at, max(0, size), reason, file.read(min(SAMPLE, max(0, size))))


class _Gathered:
    """Pairs laid side by side, until they make a span."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._places: list[tuple[int, int, int, int, int]] = []

    def add(self, seq: int, offset: int, msg: bytes, receipt: bytes) -> Items:
        begin, between = self._size, self._size + len(msg)
        self._size = between + len(receipt)
        self._parts += (msg, receipt)
        self._places.append((seq, offset, begin, between, self._size))
        if len(self._places) >= MOST_ENTRIES or self._size >= SPAN_BYTES:
            yield from self.flush()

    def flush(self) -> Items:
        if self._parts:
            seq, *places = np.array(self._places, dtype=np.int64).T
            yield Span(b"".join((*self._parts, bytes(PAD))), seq.astype(np.uint64), *places)
            self._parts, self._size, self._places = [], 0, []


# --- the index beside a sequence: where to cut it


_ROW: Final = b"\xa2\x66offset"
_ROW_MOST: Final = 48
"""An index row is no longer; and no offset below 2^63 can hold the mark that it begins with."""


class SequenceIndex:
    """``*.index.cborseq``: rows in order of stream_seq, found by bisection, never all in memory."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._size = os.path.getsize(path)

    def at_fraction(self, part: int, of: int) -> IndexRow | None:
        """The row that begins at or after so much of the file."""
        with open(self._path, "rb") as file:
            found = self._row_from(file.fileno(), self._size * part // of)
        return found[1] if found is not None else None

    def of_seq(self, seq: int) -> IndexRow | None:
        """The row of an entry, if there is one."""
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
        data = os.pread(fd, 2 * _ROW_MOST, at)
        if (start := data.find(_ROW)) < 0:
            return None
        try:
            return at + start, IndexRow.decode(data[start : cbor.item_end(data, start)])
        except DecodeError:
            return None  # a damaged index cuts nothing: the set is read as one
