"""Compaction: small data files of a partition are merged, so that their number stays bounded (pure).

A flush writes a small file. When a partition has ``FILES_PER_MERGE`` files of one tier, they become one file
of the next. Files of ``MAX_FILE_ROWS`` rows or ``MAX_FILE_BYTES`` bytes are complete and are not merged
again. The partition of a past day grows rarely: two files of one tier are enough to merge them.

So each row is rewritten a bounded number of times, a merge has bounded memory, and a partition has at most
one file per tier (the newest: fewer than ``FILES_PER_MERGE``), and complete ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from veen_overlays.live.query_view.data_files import Partition, partition_of
from veen_overlays.live.query_view.manifest import DataFile

FILES_PER_MERGE: Final = 8
TIER_ROWS: Final = 4_096
"""Files below this size are of tier 0; each further tier is ``FILES_PER_MERGE`` times as large."""
MAX_FILE_ROWS: Final = 131_072
MAX_FILE_BYTES: Final = 64 << 20


def tier_of(file: DataFile) -> int | None:
    """Return the tier of a file; None if it is complete."""
    if file.rows >= MAX_FILE_ROWS or file.size >= MAX_FILE_BYTES:
        return None
    tier, limit = 0, TIER_ROWS
    while file.rows >= limit:
        tier, limit = tier + 1, limit * FILES_PER_MERGE
    return tier


def next_merge(files: Iterable[DataFile]) -> Sequence[DataFile] | None:
    """Return the files of one partition and tier that are to be merged next; None if there are few enough.

    The total size stays below twice the limits of one file, unless the first two alone exceed it.
    """
    tiers: dict[tuple[Partition, int], list[DataFile]] = defaultdict(list)
    newest: dict[str, int] = {}
    for file in files:
        newest[file.stream] = max(file.day, newest.get(file.stream, 0))
        if (tier := tier_of(file)) is not None:
            tiers[partition_of(file), tier].append(file)
    for (partition, _), group in tiers.items():
        least = FILES_PER_MERGE if partition.day == newest[partition.stream] else 2
        if len(group) >= least:
            return _bounded(group[:FILES_PER_MERGE])
    return None


def _bounded(group: Sequence[DataFile]) -> Sequence[DataFile]:
    rows = size = 0
    for count, file in enumerate(group):
        rows, size = rows + file.rows, size + file.size
        if count >= 2 and (rows > 2 * MAX_FILE_ROWS or size > 2 * MAX_FILE_BYTES):
            return group[:count]
    return group
