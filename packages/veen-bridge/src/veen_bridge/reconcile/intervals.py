"""Ranges of positions: unions, overlaps and gaps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Interval(NamedTuple):
    """Positions ``from_seq`` to ``to_seq``, both included."""

    from_seq: int
    to_seq: int

    @property
    def size(self) -> int:
        return self.to_seq - self.from_seq + 1


def covered(spans: Iterable[Interval]) -> tuple[list[Interval], list[Interval]]:
    """The union of spans, and the positions that more than one of them covers; both ascending."""
    union: list[Interval] = []
    twice: list[Interval] = []
    for span in sorted(span for span in spans if span.size > 0):
        if union and span.from_seq <= union[-1].to_seq:
            _add(twice, Interval(span.from_seq, min(span.to_seq, union[-1].to_seq)))
        _add(union, span)
    return union, twice


def _add(union: list[Interval], span: Interval) -> None:
    """Add a span that does not begin before the last one."""
    if union and span.from_seq <= union[-1].to_seq + 1:
        union[-1] = Interval(union[-1].from_seq, max(union[-1].to_seq, span.to_seq))
    else:
        union.append(span)


def missing(wanted: Interval, union: list[Interval]) -> list[Interval]:
    """The parts of a span that an ascending union does not cover."""
    gaps: list[Interval] = []
    at = wanted.from_seq
    for have in union:
        if have.to_seq < at:
            continue
        if have.from_seq > wanted.to_seq:
            break
        if have.from_seq > at:
            gaps.append(Interval(at, have.from_seq - 1))
        at = have.to_seq + 1
    if at <= wanted.to_seq:
        gaps.append(Interval(at, wanted.to_seq))
    return gaps
