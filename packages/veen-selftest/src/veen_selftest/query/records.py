"""Records: requests, digests and accesses are in the log (query-api-spec 4.5, 5.5, 8.2; spec-3 9.3)."""

from __future__ import annotations

from typing import Final

from veen_core.receipt import Receipt
from veen_overlays.recorder.records import QueryAudit
from veen_selftest.query.site import ACCESSES, REQUESTS, RESULTS, query_site
from veen_selftest.runner.check import Check, require, require_equal, require_one
from veen_selftest.runner.context import CheckContext


def _recorded(context: CheckContext) -> None:
    """When a result is completed, its request and its digest are in the log, under the receipts it shows."""
    with query_site(context) as site:
        name = site.completed(query_id="recorded")
        page = site.ask(f"/api/query/result/{name}").json
        asked = site.ask("/api/query/descriptor/recorded").json
        for stream, shown, place in (
            (RESULTS, page["result_digest"], page["record_event"]),
            (REQUESTS, asked["descriptor"], asked["record_event"]),
        ):
            found = require_one(
                (each for each in site.payloads(stream) if each == shown), f"record in {stream}"
            )
            require_equal(found["query_id"], "recorded", "query_id")
            receipt = Receipt.decode(bytes.fromhex(place["receipt"]))
            require_equal((place["stream"], place["seq"]), (stream, receipt.stream_seq), "record_event")


def _audited(context: CheckContext) -> None:
    """Every access of a principal has an audit record, also a refused one."""
    with query_site(context) as site:
        name = site.completed()
        site.ask(f"/api/query/result/{name}")
        site.ask(f"/api/query/result/{name}", who="other")
        found = {
            (each.resource_identifier, each.metadata["principal"], each.metadata["outcome"])
            for each in map(QueryAudit.decode, site.bodies(ACCESSES))
            if each.metadata is not None
        }
        for who, outcome in (("auditor", "ok"), ("other", "query_not_found")):
            audited = (f"query/result/{name}", who, outcome) in found
            require(audited, f"an access of {who} is not audited (Q1)")


CHECKS: Final = (
    Check("query.recorded", "query-api 4.5, 8.2", _recorded),
    Check("query.audited", "spec-3 9.3, Q1", _audited),
)
