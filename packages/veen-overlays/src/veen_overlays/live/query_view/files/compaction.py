"""Compaction: small runs of a partition are merged, so that a subject's events lie in few files (pure).

A run is one or more data files of a partition that are sorted by subject as a whole: a subject's rows lie in
one of them, or in adjacent ones. A flush writes a run of one file. When a partition has ``RUNS_PER_MERGE``
runs of one tier, they become one run of a higher tier. Runs of ``MAX_RUN_ROWS`` rows or ``MAX_RUN_BYTES``
bytes are complete and are not merged again. Two runs of one tier are enough to merge them

- in the partition of a past day, which grows rarely;
- when the writer has read its logs to their ends (``settle``), except in the lowest tier, where each commit
  adds a run.

So each row is rewritten a bounded number of times, and a settled partition has at most ``RUNS_PER_MERGE - 1``
runs of the lowest tier, one of each higher tier, and complete ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from veen_overlays.live.query_view.files.data_files import Partition, partition_of
from veen_overlays.live.query_view.files.manifest import DataFile

RUNS_PER_MERGE: Final = 8
TIER_ROWS: Final = 4_096
"""Runs below this size are of tier 0; each further tier is ``RUNS_PER_MERGE`` times as large."""
MAX_RUN_ROWS: Final = 1 << 21
"""A merge takes seconds at most: entries that arrive meanwhile wait so long for their commit."""
MAX_RUN_BYTES: Final = 1 << 30


class Run(NamedTuple):
    """Files that are sorted by subject as a whole, in that order."""

    files: tuple[DataFile, ...]

    @property
    def partition(self) -> Partition:
        return partition_of(self.files[0])

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def runs_of(files: Iterable[DataFile]) -> list[Run]:
    """Return the runs of a view, the oldest first."""
    runs: dict[int, list[DataFile]] = defaultdict(list)
    for file in files:
        runs[file.run].append(file)
    return [Run(tuple(sorted(runs[number], key=lambda file: file.name))) for number in sorted(runs)]


def tier_of(run: Run) -> int | None:
    """Return the tier of a run; None if it is complete."""
    rows = run.rows
    if rows >= MAX_RUN_ROWS or run.size >= MAX_RUN_BYTES:
        return None
    tier, limit = 0, TIER_ROWS
    while rows >= limit:
        tier, limit = tier + 1, limit * RUNS_PER_MERGE
    return tier


def next_merge(files: Iterable[DataFile], *, settle: bool = False) -> Sequence[Run] | None:
    """Return the runs of one partition and tier that are to be merged next; None if there are few enough.

    The total size stays below twice the limits of one run, unless the first two alone exceed it.
    """
    tiers: dict[tuple[Partition, int], list[Run]] = defaultdict(list)
    newest: dict[str, int] = {}
    for run in runs_of(files):
        stream, day = run.partition.stream, run.partition.day
        newest[stream] = max(day, newest.get(stream, 0))
        if (tier := tier_of(run)) is not None:
            tiers[run.partition, tier].append(run)
    for (partition, tier), group in tiers.items():
        few = partition.day != newest[partition.stream] or (settle and tier > 0)
        if len(group) >= (2 if few else RUNS_PER_MERGE):
            return _bounded(group[:RUNS_PER_MERGE])
    return None


def _bounded(group: Sequence[Run]) -> Sequence[Run]:
    rows = size = 0
    for count, run in enumerate(group):
        rows, size = rows + run.rows, size + run.size
        if count >= 2 and (rows > 2 * MAX_RUN_ROWS or size > 2 * MAX_RUN_BYTES):
            return group[:count]
    return group
