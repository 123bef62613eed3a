"""Comparison of several copies of one label: all copies must have the same history (core §9).

Each copy verifies by itself, even if the hub signed two different histories. A copy's last root commits to
all of its entries, so the longer of two copies must have the same root at the entry where the shorter one
ends. If no segment of the longer copy ends there, the segment that holds the entry is read once more for
its receipt; the signatures in it were verified before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from veen_core.receipt import Receipt
from veen_spark.read.segment import ControlEntry, Item, PrunedLogEntry, Span, SparkSegment
from veen_spark.read.walk import walk
from veen_spark.verify.report import LabelReport, key_of
from veen_spark.verify.segment_verifier import LabelFault

Parts = Mapping[tuple[bytes, bytes, str], Sequence[SparkSegment]]
"""The segments of each label in each folder, in order."""


class CopyPair(NamedTuple):
    """Two copies of a label; ``shorter`` ends first."""

    shorter: LabelReport
    longer: LabelReport

    @property
    def size(self) -> int:
        """The entry at which the two copies are compared: the last entry of the shorter one."""
        return self.shorter.to_seq


class RootLookup(NamedTuple):
    """A request for the root after one entry of a segment."""

    part: SparkSegment
    seq: int


def compare_copies(
    reports: Iterable[LabelReport],
    parts: Iterable[SparkSegment],
    look_up: Callable[[list[RootLookup]], list[bytes | None]],
) -> None:
    """Compare all copies of each label; set ``fault`` of a copy that contradicts a shorter one."""
    unknown = []
    for pair in _copy_pairs(reports):
        if (root := pair.longer.roots.get(pair.size)) is None:
            unknown.append(pair)
        else:
            _compare(pair, root)
    if unknown:
        by_label = {key: list(group) for key, group in groupby(parts, key=key_of)}
        lookups = [_lookup(pair, by_label) for pair in unknown]
        for pair, root in zip(unknown, look_up(lookups), strict=True):
            _compare(pair, root)


def _copy_pairs(reports: Iterable[LabelReport]) -> Iterator[CopyPair]:
    """Pair each copy with the next longer one that holds its last entry; this compares all copies."""
    good = [report for report in reports if report.fault is None and report.root is not None]
    good.sort(key=lambda report: (report.hub_id or b"", report.label or b"", report.to_seq, report.origin))
    for _, group in groupby(good, key=lambda report: (report.hub_id, report.label)):
        copies = list(group)
        for number, shorter in enumerate(copies):
            for longer in copies[number + 1 :]:
                if longer.from_seq - 1 <= shorter.to_seq:
                    yield CopyPair(shorter, longer)
                    break


def _compare(pair: CopyPair, root: bytes | None) -> None:
    shorter, longer = pair
    if root == shorter.root or longer.fault is not None:
        return
    if root is None:
        reason = f"entry {pair.size} cannot be read again to compare it with {shorter.origin}"
    else:
        reason = (
            f"core §9: the root after entry {pair.size} differs from the root in {shorter.origin}, so the "
            "hub has two histories"
        )
    longer.fault = LabelFault(seq=pair.size, file=longer.origin, offset=0, reason=reason)


def _lookup(pair: CopyPair, by_label: Parts) -> RootLookup:
    """Return the request for the root of the longer copy where the shorter one ends."""
    longer = pair.longer
    parts = by_label[longer.hub_id or b"", longer.label or b"", longer.origin]
    at = bisect_right([part.start_seq for part in parts], pair.size) - 1
    return RootLookup(parts[at], pair.size)


# --- on executors


def roots_at(lookups: list[RootLookup]) -> list[bytes | None]:
    """Return the requested roots; None for an entry that can no longer be read."""
    return [_root_at(*lookup) for lookup in lookups]


def _root_at(part: SparkSegment, seq: int) -> bytes | None:
    try:
        for item in walk(part):
            if (receipt := _receipt(item, seq)) is not None:
                return bytes(receipt.mmr_root)
    except OSError:
        pass  # the file changed since it was verified
    return None


def _receipt(item: Item, seq: int) -> Receipt | None:
    if isinstance(item, Span):
        if not item.seq[0] <= seq <= item.seq[-1]:
            return None
        at = seq - int(item.seq[0])
        return Receipt.decode(item.data[item.receipt_at[at] : item.end[at]])
    if isinstance(item, ControlEntry | PrunedLogEntry) and item.seq == seq:
        return Receipt.decode(item.receipt) if isinstance(item, ControlEntry) else item.entry.receipt
    return None
