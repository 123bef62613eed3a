"""Execute the query of a result file again, and compare (query-api §9.1, RESOLUTIONS P13).

Receipts prove the position of a message, not its content. A verifier that has reader keys and the log
executes the query again; then it does not depend on the executor for the rows.
"""

from __future__ import annotations

from veen_core.errors import EvidenceError
from veen_core.hashing import H
from veen_overlays.query.engine import QueryEngine
from veen_overlays.query.request.evidence_policy import EvidenceMode
from veen_overlays.query.result.result_file import ResultFile, split_rows
from veen_overlays.query.verify.row_rules import ROWS_ACTION, difference
from veen_overlays.query.verify.source_rules import named


def reexecute(file: ResultFile, engine: QueryEngine) -> None:
    """Execute the query again and compare; raise ``EvidenceError`` that names the first difference.

    ``engine`` has events that the caller read, verified and opened itself: ``PlainEngine`` over
    ``SourceEvent``s, or any other engine.
    """
    descriptor, digest = file.descriptor, file.digest
    answer = engine.execute(descriptor, [source.prefix for source in digest.coverage])
    again = [H(row) for row in split_rows(answer.rows)]
    if (why := difference(again, [H(row) for row in split_rows(file.rows())])) is not None:
        raise EvidenceError(
            f"executing the query again gives other rows: {why} (query-api §9.1)", action=ROWS_ACTION
        )
    for claimed, found in zip(digest.coverage, answer.coverage, strict=True):
        for name in ("scanned", "opened", "unopened", "pruned", "matched"):
            if (a := getattr(claimed, name)) != (b := getattr(found, name)):
                raise EvidenceError(
                    f"{named(claimed)}: the coverage says {name} {a}, the log has {b} (RESOLUTIONS P13)",
                    action=ROWS_ACTION,
                )
    if descriptor.evidence.mode == EvidenceMode.FULL:
        shown = [wire for source in file.evidence.sources for wire in source.receipts]
        if shown != [each.receipt for each in answer.sources]:
            raise EvidenceError(
                "executing the query again gives other receipts for the matched events (query-api §6.3)"
            )
