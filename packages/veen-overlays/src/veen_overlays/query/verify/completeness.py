"""Check that a result covers every entry that the log had at execution (query-api §9.1, RESOLUTIONS P13).

A result names its own prefixes. Executing it again over these prefixes does not show that one of them is
missing or too short; only the log does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from veen_core.errors import EvidenceError
from veen_overlays.query.engine import QueryEngine
from veen_overlays.query.request.descriptor import QueryDescriptor
from veen_overlays.query.request.timestamp import format_timestamp
from veen_overlays.query.result.coverage import Prefix
from veen_overlays.query.result.digest import ResultDigest
from veen_overlays.query.verify.source_rules import named

MARGIN_MS: Final = 5_000
"""An entry that was committed so shortly before ``executed_at`` may be missing: ``hub_ts`` is in seconds, and
hub and executor have two clocks."""
ASK_AGAIN: Final = (
    "ask for the query again, and keep this file; a query that waited before it was executed can end early"
)


def check_complete(
    descriptor: QueryDescriptor,
    digest: ResultDigest,
    engine: QueryEngine,
    committed_at: Callable[[Prefix, int], int],
) -> None:
    """Raise ``EvidenceError`` if the log had entries at ``executed_at`` that the coverage leaves out.

    ``engine`` has all that the caller read and verified itself. ``committed_at`` returns ``hub_ts`` of an
    entry of one of its prefixes, in milliseconds.
    """
    ends = {(each.stream, each.hub_id, each.label): each.to_seq for each in digest.coverage}
    for held in engine.prefixes(descriptor.scope):
        end = ends.get((held.stream, held.hub_id, held.label), 0)
        if held.to_seq <= end:
            continue
        committed = committed_at(held, end + 1)
        if committed + MARGIN_MS <= digest.executed_at:
            what = f"ends at entry {end}" if end else "leaves this source out"
            raise EvidenceError(
                f"{named(held)}: the coverage {what}, although the hub had committed entry {end + 1} at "
                f"{format_timestamp(committed)}, before the query was executed at "
                f"{format_timestamp(digest.executed_at)} (RESOLUTIONS P13)",
                action=ASK_AGAIN,
            )
