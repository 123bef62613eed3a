"""Walking what retention left of a chunk: ``chunk-….pruned`` (COMP0.1).

A CBOR sequence of a head, an entry each, and the places of the entries: where each of them begins and the
last one ends, as u32be.
"""

from __future__ import annotations

import struct

from veen_core import cbor
from veen_core.chunk import PrunedEntry, PrunedHead
from veen_core.errors import DecodeError, VeenError
from veen_spark.read.segment import SAMPLE, Damage, Items, Pruned, Segment

_WHERE = "pruned chunk"


def walk_pruned(segment: Segment) -> Items:
    """Read at once: a chunk has at most 65,536 entries (§4.8.2), of some 400 bytes each when pruned."""
    with open(segment.path, "rb") as file:
        data = file.read()
    offset = 0
    try:
        offset = cbor.item_end(data, 0)
        sizes = _sizes(PrunedHead.decode(data[:offset]), segment)
        places = [offset]
        for seq, size in enumerate(sizes, segment.start_seq):
            end = cbor.item_end(data, offset)
            yield Pruned(seq, offset, PrunedEntry.decode(data[offset:end]), size)
            offset = end
            places.append(end)
        if data[offset:] != cbor.encode(struct.pack(f">{len(places)}I", *places)):
            raise DecodeError("does not end in the places of its entries", where=_WHERE)
    except VeenError as exc:
        yield Damage(offset, len(data) - offset, str(exc), data[offset:][:SAMPLE])


def _sizes(head: PrunedHead, segment: Segment) -> tuple[int, ...]:
    if (head.label, head.start_seq, head.end_seq) != (segment.label, segment.start_seq, segment.end_seq):
        raise DecodeError("the head is of another chunk than the file's name", where=_WHERE)
    if len(head.sizes) != head.end_seq - head.start_seq + 1:
        raise DecodeError(f"the head has sizes of {len(head.sizes)} entries", where=_WHERE)
    return head.sizes
