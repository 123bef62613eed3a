"""Walking any segment, whatever form its log has."""

from __future__ import annotations

import dataclasses

from veen_spark.read.chunk_walk import ChunkWalk
from veen_spark.read.pruned_walk import walk_pruned
from veen_spark.read.segment import Damage, Items, Segment, Span
from veen_spark.read.set_walk import walk_set


def walk(segment: Segment) -> Items:
    """Everything it holds, in order, in windows; what is no entry comes as ``Damage``."""
    if segment.form == "set":
        return walk_set(segment)
    if segment.form == "pruned":
        return walk_pruned(segment)
    return ChunkWalk(segment).items()


def walk_to_end(segment: Segment) -> Items:
    """Likewise; the last ``Damage`` says which entries that a name or manifest promises are behind it.

    There is one, at the last entry that there is, also where a file ends between two entries or is empty,
    though no byte of it is wrong.
    """
    seq, offset = segment.start_seq - 1, segment.begin
    held: Damage | None = None
    for item in walk(segment):
        if held is not None:
            yield held
            held = None
        if isinstance(item, Damage):
            held = item
            continue
        at = (item.seq[-1], item.offset[-1]) if isinstance(item, Span) else (item.seq, item.offset)
        seq, offset = int(at[0]), int(at[1])
        yield item
    if segment.end_seq is not None and seq < segment.end_seq:
        lost = f"entries {seq + 1} to {segment.end_seq} are not there"
        held = held or Damage(offset, 0, "§4.8.3: the log is cut short here", b"")
        held = dataclasses.replace(held, reason=f"{held.reason}; {lost}")
    if held is not None:
        yield held
