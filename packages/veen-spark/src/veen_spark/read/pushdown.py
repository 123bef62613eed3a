"""Filter pushdown: which segments and rows a Spark filter can match.

Filters on ``label`` and ``stream_seq`` are compared with file names and manifests; filters on ``hub_ts`` with
the first receipt of each segment, because hub_ts never decreases within a label (RESOLUTIONS H3). Spark
applies every filter again. A log that violates these rules can therefore give too few rows, never wrong
ones, and ``verify`` reports it.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from veen_core.entry import FRAME_SIZE, frame_size, unframe
from veen_core.errors import VeenError
from veen_core.receipt import Receipt
from veen_spark.read.chunk_walk import MAX_FRAME_BYTES, open_raw
from veen_spark.read.segment import PrunedLogEntry, Span, SparkSegment
from veen_spark.read.walk import walk

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_MIN_SEQ: Final = 0
_MAX_SEQ: Final = 2**63 - 1
"""The range of a long column. A segment that claims a larger number is not excluded: reading it must fail."""


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """The conditions on label, stream_seq and hub_ts that Spark pushed down; ranges include both ends."""

    labels: frozenset[bytes] | None = None
    seqs: tuple[int, int] = (_MIN_SEQ, _MAX_SEQ)
    times: tuple[int, int] = (_MIN_SEQ, _MAX_SEQ)

    def with_filter(self, condition: Filter) -> PushedFilters:
        """Return the filters with one more condition; an unsupported condition changes nothing."""
        column, value = getattr(condition, "attribute", ()), getattr(condition, "value", None)
        name = type(condition).__name__
        if column == ("label",):
            values = {"EqualTo": (value,), "EqualNullSafe": (value,), "In": value}.get(name)
            return self if values is None else self._with_labels(values)
        if column == ("stream_seq",):
            return dataclasses.replace(self, seqs=_narrow(self.seqs, name, value))
        if column == ("hub_ts",):
            return dataclasses.replace(self, times=_narrow(self.times, name, value))
        return self

    def _with_labels(self, values: Iterable[Any]) -> PushedFilters:
        given = frozenset(bytes(value) for value in values if value is not None)
        return dataclasses.replace(self, labels=given if self.labels is None else self.labels & given)

    def segments(self, all_: Sequence[SparkSegment]) -> list[SparkSegment]:
        """Return the segments that may hold a matching row; ``all_`` is ordered by label and entry."""
        kept = [segment for segment in all_ if self._may_hold(segment)]
        if self.times == (_MIN_SEQ, _MAX_SEQ):
            return kept
        first = [first_ts(segment) for segment in kept]
        low, high = self.times
        found = []
        for n, (segment, after) in enumerate(zip_longest(kept, kept[1:])):
            follows = after is not None and (after.origin, after.label) == (segment.origin, segment.label)
            until = first[n + 1] if follows else None
            since = first[n]
            if (since is None or since <= high or high == _MAX_SEQ) and (until is None or until >= low):
                found.append(segment)
        return found

    def _may_hold(self, segment: SparkSegment) -> bool:
        low, high = self.seqs
        if self.labels is not None and bytes(segment.label) not in self.labels:
            return False
        begins = segment.start_seq <= high or high == _MAX_SEQ
        return begins and (segment.end_seq is None or segment.end_seq >= low)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the matching rows of a batch; rows that describe damage always match."""
        for column, (low, high) in (("stream_seq", self.seqs), ("hub_ts", self.times)):
            if (low, high) != (_MIN_SEQ, _MAX_SEQ):
                values = batch.column(column)
                inside = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
                batch = batch.filter(pc.fill_null(inside, fill_value=True))
        return batch


_BOUNDS: Final[dict[str, Callable[[int, int, Any], tuple[int, int]]]] = {
    "EqualTo": lambda low, high, value: (max(low, value), min(high, value)),
    "EqualNullSafe": lambda low, high, value: (max(low, value), min(high, value)),
    "GreaterThan": lambda low, high, value: (max(low, value + 1), high),
    "GreaterThanOrEqual": lambda low, high, value: (max(low, value), high),
    "LessThan": lambda low, high, value: (low, min(high, value - 1)),
    "LessThanOrEqual": lambda low, high, value: (low, min(high, value)),
    "In": lambda low, high, value: (max(low, min(value)), min(high, max(value))),
}


def _narrow(bounds: tuple[int, int], name: str, value: Any) -> tuple[int, int]:
    values = [v for v in value if v is not None] if name == "In" else value
    if name not in _BOUNDS or values is None or values == [] or isinstance(values, bool):
        return bounds
    return _BOUNDS[name](*bounds, values)


def first_ts(segment: SparkSegment) -> int | None:
    """Return the hub_ts of the first entry, or None if it cannot be read, so that nothing is excluded."""
    try:
        if segment.form == "chunk":
            return _first_ts_of_chunk(segment)
        for item in walk(segment):
            if isinstance(item, Span):
                return Receipt.decode(item.data[item.receipt_at[0] : item.end[0]]).hub_ts
            return item.entry.receipt.hub_ts if isinstance(item, PrunedLogEntry) else None
    except (VeenError, OSError, struct.error):
        pass  # the task that reads the segment reports the error
    return None


def _first_ts_of_chunk(segment: SparkSegment) -> int:
    file, stream = open_raw(segment.path, segment.begin)
    with file:
        header = stream.read(FRAME_SIZE)
        body = stream.read(min(frame_size(header), MAX_FRAME_BYTES) - FRAME_SIZE)
    return unframe(
        header + body
    ).receipt.hub_ts  # checks the entry hash: a flipped bit must not exclude a file
