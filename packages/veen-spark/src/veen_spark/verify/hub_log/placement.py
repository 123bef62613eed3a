"""Placement: which task gets which head of a hub log.

A head goes to the task that reads the part of its label with the entry at ``upto_seq``. A head whose entry is
in no part shows that the label is missing or too short. For each label only the newest such head is of
interest; a task collects these for a share of all labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from veen_core.ids import Label
from veen_spark.read.field_layout import Ints
from veen_spark.read.segment import SparkSegment
from veen_spark.verify.hub_log.entries import HEAD, EntriesPart, read_heads
from veen_spark.verify.tasks import Addressed, Records

_KEY: Final[np.dtype[Any]] = np.dtype([("hub_log", ">u4"), ("label", "S32"), ("seq", ">u8")])
_BYTES: Final = f"S{_KEY.itemsize}"
"""A key as a string of bytes, whose order is that of hub logs, labels and entries."""
_NO_RECEIVER: Final = -1
"""The receiver of heads that are not compared."""


class LabelPart(NamedTuple):
    """A part of a label: where its entries are, and how many of them verify."""

    segment: SparkSegment
    entries: int
    last_root: bytes
    """The root in the RECEIPT of the last entry."""
    last_ts: int
    """The hub_ts of that RECEIPT."""

    @property
    def last_seq(self) -> int:
        """The last entry."""
        return self.segment.start_seq + self.entries - 1


class PlacementRow(NamedTuple):
    """A range of entries of a label, and the task that has them; ``receiver`` None: heads are ignored."""

    hub_log: int
    label: bytes
    first: int
    last: int
    receiver: int | None
    part: int = 0
    """The number of the part among those of its task."""


class Placement:
    """The table of all parts of labels, which every task that reads a hub log gets."""

    def __init__(self, rows: Iterable[PlacementRow], receivers: int, collectors: int) -> None:
        """``receivers`` tasks read labels; ``collectors`` further tasks collect heads without an entry."""
        ordered = sorted(rows, key=lambda row: row[:3])
        self._start = np.array([row[:3] for row in ordered], dtype=_KEY)
        self._last = np.array([row.last for row in ordered], dtype=np.int64)
        self._receiver = np.array(
            [_NO_RECEIVER if row.receiver is None else row.receiver for row in ordered], dtype=np.int64
        )
        self._part = np.array([row.part for row in ordered], dtype=np.uint32)
        self._receivers, self._collectors = receivers, collectors

    def place(self, heads: Records) -> Iterator[Addressed]:
        """Yield the heads with the numbers of their receivers."""
        keys = np.zeros(len(heads), dtype=_KEY)
        for name in ("hub_log", "label", "seq"):
            keys[name] = heads[name]
        row = np.searchsorted(self._start.view(_BYTES), keys.view(_BYTES), side="right") - 1
        known = row >= 0
        for name in ("hub_log", "label"):
            known[known] = self._start[name][row[known]] == keys[name][known]
        known[known] = heads["seq"][known] <= self._last[row[known]]
        placed, receiver = heads[known], self._receiver[row[known]]
        placed["part"] = self._part[row[known]]
        compared = receiver != _NO_RECEIVER
        yield receiver[compared], placed[compared]
        lost = newest_heads(heads[~known])
        yield self._collector(lost), lost

    def _collector(self, heads: Records) -> Ints:
        """Return the tasks that collect heads without an entry, by label: a label is a hash."""
        first = np.ascontiguousarray(heads["label"]).view(np.uint8).reshape(len(heads), 32)[:, :4]
        share = np.ascontiguousarray(first).view(">u4").ravel().astype(np.int64) % self._collectors
        return self._receivers + share


def newest_heads(heads: Records) -> Records:
    """Return the head of each label with the largest ``upto_seq``."""
    order = np.lexsort((heads["seq"], heads["label"], heads["hub_log"]))
    heads = heads[order]
    last = np.ones(len(heads), dtype=np.bool_)
    last[:-1] = (heads["label"][1:] != heads["label"][:-1]) | (heads["hub_log"][1:] != heads["hub_log"][:-1])
    newest: Records = heads[last]
    return newest


# --- on executors


def send_heads(placement: Placement, part: EntriesPart) -> Iterator[Addressed]:
    """Read the heads of one part of a hub log and send each to the task that has its entry."""
    return placement.place(read_heads(part))


class LostHead(NamedTuple):
    """The newest head of a label whose entry is missing."""

    hub_log: int
    label: Label
    seq: int
    offset: int


def collect_lost(batches: Iterator[Records]) -> list[LostHead]:
    """Return the newest of the heads of each label."""
    newest = np.zeros(0, dtype=HEAD)
    for heads in batches:
        newest = newest_heads(np.concatenate([newest, heads]))
    return [
        LostHead(
            int(row["hub_log"]), Label(row["label"].ljust(32, b"\0")), int(row["seq"]), int(row["offset"])
        )
        for row in newest
    ]
