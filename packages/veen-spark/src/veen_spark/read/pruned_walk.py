"""Iteration over a pruned chunk file, ``chunk-….pruned`` (COMP0.1).

The file is a CBOR sequence: a head, one item per entry, and a byte string with the offsets of the entries
and of their end, as u32be each.
"""

from __future__ import annotations

import struct

from veen_core import cbor
from veen_core.chunk import PrunedEntry, PrunedHead
from veen_core.errors import DecodeError, VeenError
from veen_spark.read.segment import SAMPLE_BYTES, Damage, Items, PrunedLogEntry, SparkSegment

_WHERE = "pruned chunk"


def walk_pruned(segment: SparkSegment) -> Items:
    """Yield the entries of a pruned chunk.

    The whole file is read at once: a chunk has at most 65,536 entries (core §4.8.2), and a pruned entry
    takes about 400 bytes.
    """
    with open(segment.path, "rb") as file:
        data = file.read()
    offset = 0
    try:
        offset = cbor.item_end(data, 0)
        sizes = _sizes(PrunedHead.decode(data[:offset]), segment)
        offsets = [offset]
        for seq, size in enumerate(sizes, segment.start_seq):
            end = cbor.item_end(data, offset)
            yield PrunedLogEntry(seq, offset, PrunedEntry.decode(data[offset:end]), size)
            offset = end
            offsets.append(end)
        if data[offset:] != cbor.encode(struct.pack(f">{len(offsets)}I", *offsets)):
            raise DecodeError("the offsets at the end do not match the entries", where=_WHERE)
    except VeenError as exc:
        yield Damage(offset, len(data) - offset, str(exc), data[offset:][:SAMPLE_BYTES])


def _sizes(head: PrunedHead, segment: SparkSegment) -> tuple[int, ...]:
    """Return the original frame sizes; raise if the head does not match the file name."""
    if (head.label, head.start_seq, head.end_seq) != (segment.label, segment.start_seq, segment.end_seq):
        raise DecodeError("the head names another label or range than the file name", where=_WHERE)
    count = head.end_seq - head.start_seq + 1
    if len(head.sizes) != count:
        raise DecodeError(f"the head lists {len(head.sizes)} sizes for {count} entries", where=_WHERE)
    return head.sizes
