"""Merging of runs: their rows in one order, cut into data files, with bounded memory (RESOLUTIONS P13).

Each run is read in batches. Rows up to the least of the batches' last keys are complete: no later batch has a
row before them. They are sorted together and passed on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from veen_overlays.live.query_view.files.compaction import Run
from veen_overlays.live.query_view.files.data_files import ORDER, ROW_GROUP_ROWS, SCHEMA, path_of

MAX_FILE_ROWS: Final = 131_072
MAX_FILE_BYTES: Final = 64 << 20
"""Bytes of the rows in memory, before compression; one batch may exceed it."""

_Key = tuple[bool, str, bytes, bytes, int]


def merged(root: Path, runs: Iterable[Run]) -> Iterator[Any]:
    """Yield the rows of all runs in order, one table for each new data file."""
    waiting: list[Any] = []
    rows = size = 0
    for table in _in_order(root, runs):
        waiting.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        while rows >= MAX_FILE_ROWS or size >= MAX_FILE_BYTES:
            joined = pa.concat_tables(waiting)
            yield joined.slice(0, MAX_FILE_ROWS)
            waiting = [joined.slice(MAX_FILE_ROWS)]
            rows, size = waiting[0].num_rows, waiting[0].nbytes
    if rows:
        yield pa.concat_tables(waiting)


def _in_order(root: Path, runs: Iterable[Run]) -> Iterator[Any]:
    """Yield sorted tables, each before the next."""
    readers = [_batches(root, run) for run in runs]
    heads = [next(reader) for reader in readers]
    while heads:
        bound = min(_key(head, head.num_rows - 1) for head in heads)
        counts = [_rows_up_to(head, bound) for head in heads]
        ready = [head.slice(0, count) for head, count in zip(heads, counts, strict=True) if count]
        yield pa.concat_tables(ready).sort_by(ORDER) if len(ready) > 1 else ready[0]
        following = []
        for reader, head, count in zip(readers, heads, counts, strict=True):
            rest = head.slice(count) if count < head.num_rows else next(reader, None)
            if rest is not None:
                following.append((reader, rest))
        readers, heads = [reader for reader, _ in following], [head for _, head in following]


def _batches(root: Path, run: Run) -> Iterator[Any]:
    for file in run.files:
        with pq.ParquetFile(path_of(root, file)) as opened:
            for batch in opened.iter_batches(ROW_GROUP_ROWS):
                yield pa.Table.from_batches([batch]).cast(SCHEMA)


def _rows_up_to(table: Any, bound: _Key) -> int:
    return bisect_right(range(table.num_rows), bound, key=lambda row: _key(table, row))


def _key(table: Any, row: int) -> _Key:
    """The sort key of a row in ``ORDER``: rows without a subject are the last."""
    subject, *rest = (table[name][row].as_py() for name, _ in ORDER)
    return (subject is None, subject or "", *rest)
