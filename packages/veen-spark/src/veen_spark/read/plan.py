"""Dealing out work: segments into partitions of about the same size.

A chunk larger than ``max_bytes`` is cut at frames, a set at entries that its index names; small ones go
together, since a task costs more than reading a small file. Segments keep their order: a partition holds
neighbours, and partitions follow each other as the log does.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

from veen_core.export import PAYLOADS, RECEIPTS, sidecar_name
from veen_spark.read.chunk_walk import headers, is_compressed
from veen_spark.read.segment import Segment
from veen_spark.read.set_walk import SequenceIndex

Any_ = TypeVar("Any_")
MAX_BYTES: Final = 64 * 1_048_576
"""A chunk is never larger by default (§4.8.2): one chunk, one partition."""
LEAST_BYTES: Final = 4 * 1_048_576
TASKS_A_CORE: Final = 4
"""Of the driver: a cluster has more cores, but then there is more to read, too."""
MOST_SEGMENTS: Final = 4_096
"""In one partition: opening files takes time too."""


def pack(segments: Iterable[Segment], max_bytes: int = MAX_BYTES) -> list[list[Segment]]:
    """Partitions, in order."""
    segments = list(segments)
    most = share(segments, max_bytes)
    return gathered((part for segment in segments for part in cut(segment, most)), _size, most)


def share(segments: Iterable[Segment], max_bytes: int) -> int:
    """How much one task takes: small enough that every core has a few, large enough to be worth a task."""
    total = sum(map(_size, segments))
    return min(max_bytes, max(LEAST_BYTES, total // (TASKS_A_CORE * (os.cpu_count() or 1))))


def _size(segment: Segment) -> int:
    return segment.size


def gathered(work: Iterable[Any_], size_of: Callable[[Any_], int], max_bytes: int) -> list[list[Any_]]:
    """Neighbours together, up to ``max_bytes``."""
    partitions: list[list[Any_]] = []
    room = files = 0
    for one in work:
        size = size_of(one)
        if size > room or files >= MOST_SEGMENTS or not partitions:
            partitions.append([])
            room, files = max_bytes, 0
        partitions[-1].append(one)
        room, files = room - size, files + 1
    return partitions


def cut(segment: Segment, max_bytes: int) -> Iterator[Segment]:
    """The segment, or parts of it, each of about ``max_bytes`` at the most."""
    if segment.size <= max_bytes or segment.form == "pruned":
        yield segment
    elif segment.form == "set":
        yield from _cut_set(segment, -(-segment.size // max_bytes))
    elif is_compressed(segment.path):
        yield segment  # its frames are found only by decompressing it
    else:
        yield from _cut_chunk(segment, max_bytes)


def _cut_chunk(segment: Segment, max_bytes: int) -> Iterator[Segment]:
    places = [(0, segment.start_seq)]
    for offset, seq in headers(segment):
        if offset - places[-1][0] >= max_bytes:
            places.append((offset, seq))
    size = os.path.getsize(segment.path)
    ends = [*places[1:], (size, None)]
    for (begin, seq), (end, after) in zip(places, ends, strict=True):
        yield dataclasses.replace(
            segment,
            begin=begin,
            end=end,
            start_seq=seq,
            end_seq=segment.end_seq if after is None else after - 1,
            size=end - begin,
            whole=len(places) == 1,
        )


def _cut_set(segment: Segment, parts: int) -> Iterator[Segment]:
    folder = Path(segment.origin)
    paths = [folder / sidecar_name(stem) for stem in (PAYLOADS, RECEIPTS)]
    if not all(path.is_file() for path in paths):
        yield segment
        return
    payloads, receipts = (SequenceIndex(str(path)) for path in paths)
    places: list[tuple[int, int, int]] = [(segment.start_seq, 0, 0)]
    for part in range(1, parts):
        row = payloads.at_fraction(part, parts)
        if row is None or row.stream_seq <= places[-1][0] or row.offset <= places[-1][1]:
            continue
        if (beside := receipts.of_seq(row.stream_seq)) is not None and beside.offset > places[-1][2]:
            places.append((row.stream_seq, row.offset, beside.offset))
    assert segment.receipts is not None
    last = (
        (segment.end_seq or 0) + 1,
        os.path.getsize(segment.path),
        os.path.getsize(segment.receipts),
    )
    for (seq, begin, receipts_begin), (after, end, receipts_end) in pairwise([*places, last]):
        yield dataclasses.replace(
            segment,
            begin=begin,
            end=end,
            start_seq=seq,
            end_seq=after - 1,
            receipts_begin=receipts_begin,
            receipts_end=receipts_end,
            size=end - begin + receipts_end - receipts_begin,
            whole=len(places) == 1,
        )
