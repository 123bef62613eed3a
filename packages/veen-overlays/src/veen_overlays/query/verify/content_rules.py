"""The rules between descriptor, digest, coverage and rows of one result (query-api §5, P11 to P13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from veen_core.errors import EvidenceError
from veen_core.hashing import H
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.result.coverage import SourceCoverage
from veen_overlays.query.result.digest import ResultDigest, result_id
from veen_overlays.query.result.limits import limits_of
from veen_overlays.query.result.result_file import ResultFile, encode_rows
from veen_overlays.query.verify.row_rules import (
    ROWS_ACTION,
    check_groups,
    check_shape,
    difference,
    split_hashes,
)
from veen_overlays.query.verify.source_rules import named


def check_digest(descriptor: QueryDescriptor, digest: ResultDigest) -> None:
    """Refuse a digest that does not match the descriptor and its own coverage (query-api §5.2, P11)."""
    if digest.query_id != descriptor.query_id:
        raise EvidenceError("the digest names another query_id than the descriptor (query-api §5.2)")
    if digest.evidence_policy != descriptor.evidence:
        raise EvidenceError("digest and descriptor have different evidence policies (query-api §5.2)")
    if digest.result_id != result_id(descriptor, digest.coverage):
        raise EvidenceError(
            "result_id does not follow from descriptor and coverage: one of them was changed "
            "(RESOLUTIONS P11)",
            action=ROWS_ACTION,
        )
    if digest.limits != limits_of(descriptor, digest.coverage):
        raise EvidenceError("limits do not follow from descriptor and coverage (RESOLUTIONS P13)")


def check_rows(
    file: ResultFile, descriptor: QueryDescriptor, rows: Sequence[dict[str, Any]], encoded: list[bytes]
) -> None:
    """Refuse rows that do not match ``row_count`` and ``rows_hash`` (query-api §5.3)."""
    digest, found = file.digest, [H(row) for row in encoded]
    if (why := difference(split_hashes(file.row_hashes), found)) is not None:
        raise EvidenceError(f"{why} (query-api §5.3)", action=ROWS_ACTION)
    if len(rows) != digest.row_count:
        raise EvidenceError(
            f"the file has {len(rows)} rows, row_count says {digest.row_count} (query-api §5.2)",
            action=ROWS_ACTION,
        )
    whole = encode_rows(encoded)
    if whole != file.rows_json:
        raise EvidenceError("the rows are not in canonical JSON (RESOLUTIONS P12)", action=ROWS_ACTION)
    if H(whole).hex() != digest.rows_hash:
        raise EvidenceError(
            "the rows do not match rows_hash: rows were changed (query-api §5.3)", action=ROWS_ACTION
        )
    check_shape(descriptor, rows)


def check_coverage(
    descriptor: QueryDescriptor, coverage: Sequence[SourceCoverage], rows: Sequence[dict[str, Any]]
) -> None:
    """Refuse a coverage that leaves out a stream, is out of order, or does not add up (P11, P13)."""
    scope = descriptor.scope
    if missing := sorted(set(scope) - {source.stream for source in coverage}):
        raise EvidenceError(f"the coverage leaves out the stream {missing[0]!r} (RESOLUTIONS P13)")
    before: tuple[int, bytes, int] | None = None
    for source in coverage:
        _check_counts(source, scope)
        order = source.order(scope)
        if before is not None and order <= before:
            raise EvidenceError(f"{named(source)}: the sources are not in order (RESOLUTIONS P11)")
        before = order
    matched = sum(source.matched for source in coverage)
    if descriptor.aggregate is not None:
        check_groups(descriptor, rows, matched)
    elif matched != len(rows):
        raise EvidenceError(
            f"the coverage says that {matched} events match, but there are {len(rows)} rows "
            "(RESOLUTIONS P13)",
            action=ROWS_ACTION,
        )


def _check_counts(source: SourceCoverage, scope: Sequence[str]) -> None:
    if source.stream not in scope:
        raise EvidenceError(f"{named(source)}: the scope does not name this stream (RESOLUTIONS P13)")
    if source.from_seq != 1:  # no engine reads less than a prefix; pruned entries are counted, not left out
        raise EvidenceError(
            f"{named(source)}: the coverage begins at entry {source.from_seq}, so the entries before it were "
            "left out (RESOLUTIONS P13)",
            action=ROWS_ACTION,
        )
    if source.to_seq < 0 or source.scanned != source.size:
        raise EvidenceError(
            f"{named(source)}: {source.scanned} entries were scanned, but the range {source.from_seq} to "
            f"{source.to_seq} has {source.size} (RESOLUTIONS P13)",
            action=ROWS_ACTION,
        )
    if source.opened + source.unopened + source.pruned != source.scanned or source.matched > source.opened:
        raise EvidenceError(
            f"{named(source)}: the counts do not add up (RESOLUTIONS P13)", action=ROWS_ACTION
        )
