"""Planning: group segments into partitions of similar size.

A chunk file larger than the limit is split between frames, a set-form export at entries that its index
names. Small segments share a partition, because a task costs more than reading a small file. The order of
segments is kept: neighbours in the log are neighbours in the partitions.
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
from veen_spark.read.segment import SparkSegment
from veen_spark.read.set_walk import SequenceIndex

T = TypeVar("T")
MAX_PARTITION_BYTES: Final = 64 * 1_048_576
"""The default size limit of a chunk (core §4.8.2), so that one chunk is one partition."""
MIN_TASK_BYTES: Final = 4 * 1_048_576
"""Smaller tasks cost more to start than to run."""
TASKS_PER_CORE: Final = 4
"""Tasks per core of the driver, so that all cores finish at about the same time."""
MAX_PARTITION_SEGMENTS: Final = 4_096
"""Largest number of segments in a partition, because opening a file takes time too."""


def pack(segments: Iterable[SparkSegment], max_bytes: int = MAX_PARTITION_BYTES) -> list[list[SparkSegment]]:
    """Split and group segments into partitions, in order."""
    segments = list(segments)
    limit = task_bytes(segments, max_bytes)
    return group_by_size((part for segment in segments for part in split(segment, limit)), _size, limit)


def task_bytes(segments: Iterable[SparkSegment], max_bytes: int) -> int:
    """Return the number of bytes that one task should read, so that every core gets a few large tasks."""
    total = sum(map(_size, segments))
    return min(max_bytes, max(MIN_TASK_BYTES, total // (TASKS_PER_CORE * (os.cpu_count() or 1))))


def _size(segment: SparkSegment) -> int:
    return segment.size


def group_by_size(work: Iterable[T], size_of: Callable[[T], int], max_bytes: int) -> list[list[T]]:
    """Group neighbouring pieces of work, up to ``max_bytes`` per group."""
    partitions: list[list[T]] = []
    room = files = 0
    for one in work:
        size = size_of(one)
        if size > room or files >= MAX_PARTITION_SEGMENTS or not partitions:
            partitions.append([])
            room, files = max_bytes, 0
        partitions[-1].append(one)
        room, files = room - size, files + 1
    return partitions


def split(segment: SparkSegment, max_bytes: int) -> Iterator[SparkSegment]:
    """Yield the segment, or parts of it of about ``max_bytes`` each.

    A file that cannot be read is not split: the task that reads it reports the error.
    """
    try:
        parts = list(_split(segment, max_bytes))
    except OSError:
        parts = [segment]
    yield from parts


def _split(segment: SparkSegment, max_bytes: int) -> Iterator[SparkSegment]:
    if segment.size <= max_bytes or segment.form == "pruned":
        yield segment
    elif segment.form == "set":
        yield from _split_set(segment, -(-segment.size // max_bytes))
    elif is_compressed(segment.path):
        yield segment  # frames are found only by decompressing all of it
    else:
        yield from _split_chunk(segment, max_bytes)


def _split_chunk(segment: SparkSegment, max_bytes: int) -> Iterator[SparkSegment]:
    starts = [(0, segment.start_seq)]
    for offset, seq in headers(segment):
        if offset - starts[-1][0] >= max_bytes:
            starts.append((offset, seq))
    size = os.path.getsize(segment.path)
    ends = [*starts[1:], (size, None)]
    for (begin, seq), (end, after) in zip(starts, ends, strict=True):
        yield dataclasses.replace(
            segment,
            begin=begin,
            end=end,
            start_seq=seq,
            end_seq=segment.end_seq if after is None else after - 1,
            size=end - begin,
            whole=len(starts) == 1,
        )


def _split_set(segment: SparkSegment, parts: int) -> Iterator[SparkSegment]:
    folder = Path(segment.origin)
    paths = [folder / sidecar_name(stem) for stem in (PAYLOADS, RECEIPTS)]
    if not all(path.is_file() for path in paths):
        yield segment
        return
    payloads, receipts = (SequenceIndex(str(path)) for path in paths)
    starts: list[tuple[int, int, int]] = [(segment.start_seq, 0, 0)]
    for part in range(1, parts):
        row = payloads.at_fraction(part, parts)
        if row is None or row.stream_seq <= starts[-1][0] or row.offset <= starts[-1][1]:
            continue
        if (receipt_row := receipts.row_of(row.stream_seq)) is not None and receipt_row.offset > starts[-1][
            2
        ]:
            starts.append((row.stream_seq, row.offset, receipt_row.offset))
    assert segment.receipts is not None
    last = (
        (segment.end_seq or 0) + 1,
        os.path.getsize(segment.path),
        os.path.getsize(segment.receipts),
    )
    for (seq, begin, receipts_begin), (after, end, receipts_end) in pairwise([*starts, last]):
        yield dataclasses.replace(
            segment,
            begin=begin,
            end=end,
            start_seq=seq,
            end_seq=after - 1,
            receipts_begin=receipts_begin,
            receipts_end=receipts_end,
            size=end - begin + receipts_end - receipts_begin,
            whole=len(starts) == 1,
            file_digests=segment.file_digests if begin == 0 else None,
        )
