"""Answers verify offline and against the log, pages add up to the result, errors have the specified codes."""

from __future__ import annotations

from typing import Any, Final

from veen_core.hashing import H
from veen_overlays.query import canonical_json
from veen_overlays.query.result.result_file import parse_result
from veen_selftest.query.site import STREAM, query, query_site
from veen_selftest.runner.check import Check, require_equal
from veen_selftest.runner.context import CheckContext


def _verifies(context: CheckContext) -> None:
    """A result file verifies offline, and executing its query again over the log gives the same rows."""
    with query_site(context) as site:
        path = site.file(site.completed())
        file = str(path)
        offline = site.run("query", "verify", file, "--trust", site.hub_id.hex(), "--json")
        require_equal(offline.returncode, 0, f"offline verification ({offline.stdout[:300]})")
        again = site.run("query", "verify", file, "--execute", *site.flags, "--json")
        require_equal(again.returncode, 0, f"execution from the log ({again.stdout[:300]})")
        numbers = [row["payload.number"] for row in parse_result(path.read_bytes()).rows()]
        require_equal(numbers, list(range(1, 20, 3)), "rows of subject user:1, in the order of the log")


def _pages(context: CheckContext) -> None:
    """Pages neither repeat nor lose a row: together they have the digest's rows_hash."""
    with query_site(context) as site:
        name = site.completed()
        rows: list[Any] = []
        while True:
            found = site.ask(f"/api/query/result/{name}?offset={len(rows)}&limit=3").json
            rows += found["rows"]
            if not found["page"]["has_more"] or len(rows) > 100:
                break
        digest = found["result_digest"]
        require_equal(len(rows), digest["row_count"], "rows of all pages")
        require_equal(H(canonical_json.encode(rows)).hex(), digest["rows_hash"], "rows_hash of all pages")


def _errors(context: CheckContext) -> None:
    """Wrong requests get the status and error_code of the table, and never 500."""
    with query_site(context) as site:
        site.completed(query_id="taken")
        for status, code, body, who in (
            (401, "unauthorized", query(), None),
            (400, "invalid_json", b"{", "auditor"),
            (400, "invalid_query_descriptor", query(projection=[]), "auditor"),
            (400, "unsupported_version", query(version=2), "auditor"),
            (403, "forbidden_scope", query(scope=["record/unknown"]), "auditor"),
            (403, "forbidden_scope", query(scope=[STREAM]), "other"),
            (409, "duplicate_query_id", query(query_id="taken"), "auditor"),
        ):
            found = site.ask("/api/query/submit", body, who)
            require_equal((found.status, found.json.get("error_code")), (status, code), "answer")


def _own(context: CheckContext) -> None:
    """A principal reads neither results nor descriptors of another."""
    with query_site(context) as site:
        name = site.completed(query_id="private")
        for path in (f"status/{name}", f"result/{name}", f"evidence/{name}", "descriptor/private"):
            require_equal(site.ask(f"/api/query/{path}", who="other").status, 404, f"another's {path}")


CHECKS: Final = (
    Check("query.verifies", "query-api §5, §6", _verifies),
    Check("query.pages", "query-api 7.4", _pages),
    Check("query.errors", "query-api 7.6", _errors),
    Check("query.own-results", "query-api 7.1", _own),
)
