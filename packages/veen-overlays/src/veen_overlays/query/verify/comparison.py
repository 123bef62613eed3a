"""Compare two results of one query, as two zones do after a transfer (query-api §9.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from veen_core.hashing import H
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.result.coverage import SourceCoverage
from veen_overlays.query.result.digest import ResultDigest
from veen_overlays.query.result.result_file import ResultFile, split_rows
from veen_overlays.query.verify.row_rules import difference
from veen_overlays.query.verify.source_rules import named


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One point at which two results differ."""

    what: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.what}: {self.first} and {self.second}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Whether two results agree (query-api §9.1), and where they differ."""

    differences: tuple[Difference, ...]
    """The fields that §9.1 requires to be equal and that differ."""
    causes: tuple[Difference, ...] = ()
    """Where the results begin to differ: sources whose prefixes or counts differ, and the first row that
    differs."""
    evidence_compared: bool = True
    """False if the evidence settings differ, so that evidence_hash says nothing."""

    @property
    def agrees(self) -> bool:
        """Whether both results rest on the same history of the queried scope."""
        return not self.differences


Result = ResultFile | tuple[QueryDescriptor, ResultDigest]
"""A result file, or the descriptor and digest that the streams of a zone recorded."""


def compare(first: Result, second: Result) -> Comparison:
    """Compare two results; nothing is verified (``verification`` does that)."""
    (query_a, a), (query_b, b) = _parts(first), _parts(second)
    same_policy = a.evidence_policy == b.evidence_policy
    names = ["query_id", "row_count", "rows_hash", *(["evidence_hash"] if same_policy else [])]
    differences = [
        Difference(what=name, first=str(getattr(a, name)), second=str(getattr(b, name)))
        for name in names
        if getattr(a, name) != getattr(b, name)
    ]
    differences = [*_descriptors(query_a, query_b), *differences]
    return Comparison(
        differences=tuple(differences),
        causes=(*_coverages(a, b), *_rows(first, second)) if differences else (),
        evidence_compared=same_policy,
    )


def _parts(result: Result) -> tuple[QueryDescriptor, ResultDigest]:
    return (result.descriptor, result.digest) if isinstance(result, ResultFile) else result


def _descriptors(a: QueryDescriptor, b: QueryDescriptor) -> Iterator[Difference]:
    left, right = a.as_json(), b.as_json()
    for name in sorted(left.keys() | right.keys()):
        if left.get(name) != right.get(name):
            yield Difference(
                what=f"descriptor.{name}", first=str(left.get(name)), second=str(right.get(name))
            )


def _coverages(a: ResultDigest, b: ResultDigest) -> Iterator[Difference]:
    left, right = ({_key(source): source for source in digest.coverage} for digest in (a, b))
    for key in sorted(left.keys() | right.keys()):
        one, other = left.get(key), right.get(key)
        if one is None or other is None:
            held = one or other
            assert held is not None  # the key is from one of them
            yield Difference(what=named(held), first=_presence(one), second=_presence(other))
        elif one.counts_json() != other.counts_json():
            yield from _sources(one, other)


def _key(source: SourceCoverage) -> tuple[str, bytes, int]:
    return source.stream, source.hub_id, source.epoch


def _presence(source: SourceCoverage | None) -> str:
    return "covered" if source is not None else "not covered"


def _sources(a: SourceCoverage, b: SourceCoverage) -> Iterator[Difference]:
    left, right = a.counts_json(), b.counts_json()
    for name in left:
        if left[name] != right[name]:
            yield Difference(what=f"{named(a)}: {name}", first=str(left[name]), second=str(right[name]))


def _rows(first: Result, second: Result) -> Iterator[Difference]:
    if not (isinstance(first, ResultFile) and isinstance(second, ResultFile)):
        return
    hashes = [[H(row) for row in split_rows(result.rows())] for result in (first, second)]
    if (why := difference(*hashes)) is not None:
        yield Difference(what="rows", first=f"{len(hashes[0])} rows", second=f"{len(hashes[1])} rows, {why}")
