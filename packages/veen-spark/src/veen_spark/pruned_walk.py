"""Walking what retention left of a chunk: ``chunk-….pruned`` (COMP0.1).

A CBOR sequence of a head, an entry each, and the places of the entries.
"""

from __future__ import annotations

import os

from veen_core import cbor
from veen_core.chunk import PrunedEntry, PrunedHead
from veen_core.errors import DecodeError, VeenError
from veen_spark.segment import SAMPLE, Damage, Items, Pruned, Segment

_BYTES = 2
"""CBOR's major type of the last item, the places."""


def walk_pruned(segment: Segment) -> Items:
    """Read at once: a chunk has at most 65,536 entries (§4.8.2), of some 400 bytes each when pruned."""
    offset, seq, size = 0, segment.start_seq, os.path.getsize(segment.path)
    with open(segment.path, "rb") as file:
        data = file.read()
    try:
        while offset < size:
            end = cbor.item_end(data, offset)
            item = data[offset:end]
            if offset == 0:
                _check_head(PrunedHead.decode(item), segment)
            elif item[0] >> 5 != _BYTES:
                yield Pruned(seq, offset, PrunedEntry.decode(item))
                seq += 1
            elif end != size:
                yield Damage(end, size - end, "goes on after the places of its entries", data[end:][:SAMPLE])
                return
            offset = end
    except VeenError as exc:
        yield Damage(offset, size - offset, str(exc), data[offset:][:SAMPLE])


def _check_head(head: PrunedHead, segment: Segment) -> None:
    if (head.label, head.start_seq, head.end_seq) != (segment.label, segment.start_seq, segment.end_seq):
        raise DecodeError("the head is of another chunk than the file's name", where="pruned chunk")
