"""Walking any segment, whatever form its log has."""

from __future__ import annotations

from veen_spark.chunk_walk import ChunkWalk
from veen_spark.pruned_walk import walk_pruned
from veen_spark.segment import Items, Segment
from veen_spark.set_walk import walk_set


def walk(segment: Segment) -> Items:
    """Everything it holds, in order, in windows; what is no entry comes as ``Damage``."""
    if segment.form == "set":
        return walk_set(segment)
    if segment.form == "pruned":
        return walk_pruned(segment)
    return ChunkWalk(segment).items()
