"""One history: a label that lies in several places has one root for each size (§9).

Each place holds by itself, and a hub that shows one history here and another there signed both. Of two places
the one that ends first says where to compare: its last root commits to all of it, so the other must have the
same root there. If no part of the other happens to end there, the part that holds the entry is read once more
for its receipt, without signatures: they were judged.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from veen_core.receipt import Receipt
from veen_spark.read.segment import Authorize, Item, Pruned, Segment, Span
from veen_spark.read.walk import walk
from veen_spark.verify.judge import Fault
from veen_spark.verify.report import LabelReport, key_of

Parts = Mapping[tuple[bytes, bytes, str], Sequence[Segment]]
"""By label and origin, in order."""


class Meeting(NamedTuple):
    """Two places of a label, and the size at which the one that ends first does."""

    first: LabelReport
    other: LabelReport

    @property
    def size(self) -> int:
        return self.first.to_seq


class Lookup(NamedTuple):
    """The root after one entry of a part."""

    part: Segment
    seq: int


def compare(
    reports: Iterable[LabelReport],
    parts: Iterable[Segment],
    look_up: Callable[[list[Lookup]], list[bytes | None]],
) -> None:
    """Every place that has another root than the one before it gets a fault."""
    unknown = []
    for meeting in _meetings(reports):
        if (root := meeting.other.roots.get(meeting.size)) is None:
            unknown.append(meeting)
        else:
            _judge(meeting, root)
    if unknown:
        held = {key: list(group) for key, group in groupby(parts, key=key_of)}
        for meeting, root in zip(unknown, look_up([_lookup(m, held) for m in unknown]), strict=True):
            _judge(meeting, root)


def _meetings(reports: Iterable[LabelReport]) -> Iterator[Meeting]:
    """Each place with the next longer one that reaches back to where it ends: together they compare all."""
    good = [report for report in reports if report.fault is None and report.root is not None]
    good.sort(key=lambda report: (report.hub_id or b"", report.label or b"", report.to_seq, report.origin))
    for _, group in groupby(good, key=lambda report: (report.hub_id, report.label)):
        places = list(group)
        for number, first in enumerate(places):
            for other in places[number + 1 :]:
                if other.from_seq - 1 <= first.to_seq:
                    yield Meeting(first, other)
                    break


def _judge(meeting: Meeting, root: bytes | None) -> None:
    first, other = meeting
    if root != first.root and other.fault is None:
        reason = f"§9: another root at entry {meeting.size} than in {first.origin}: two histories"
        other.fault = Fault(seq=meeting.size, file=other.origin, offset=0, reason=reason)


def _lookup(meeting: Meeting, held: Parts) -> Lookup:
    """In the part of the other place that holds the entry; all of its parts hold."""
    other = meeting.other
    parts = held[other.hub_id or b"", other.label or b"", other.origin]
    at = bisect_right([part.start_seq for part in parts], meeting.size) - 1
    return Lookup(parts[at], meeting.size)


# --- on executors


def roots_at(lookups: list[Lookup]) -> list[bytes | None]:
    return [_root_at(*lookup) for lookup in lookups]


def _root_at(part: Segment, seq: int) -> bytes | None:
    for item in walk(part):
        if (receipt := _receipt(item, seq)) is not None:
            return bytes(receipt.mmr_root)
    return None  # it was there when it was judged: as good as another one


def _receipt(item: Item, seq: int) -> Receipt | None:
    if isinstance(item, Span):
        if not item.seq[0] <= seq <= item.seq[-1]:
            return None
        at = seq - int(item.seq[0])
        return Receipt.decode(item.data[item.receipt_at[at] : item.end[at]])
    if isinstance(item, Authorize | Pruned) and item.seq == seq:
        return Receipt.decode(item.receipt) if isinstance(item, Authorize) else item.entry.receipt
    return None
