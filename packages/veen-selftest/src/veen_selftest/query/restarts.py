"""Restarts: accepted queries are finished, and completed results do not change (query-api-spec 8.1)."""

from __future__ import annotations

from typing import Final

from veen_selftest.query.site import REQUESTS, RESULTS, query_site
from veen_selftest.runner.check import Check, require_equal
from veen_selftest.runner.context import CheckContext


def _kills(context: CheckContext) -> None:
    """After kill -9, accepted queries are completed, once, and completed results are the same."""
    rounds = min(context.options.crash_rounds, 5)
    with query_site(context) as site:
        done = site.completed()
        before = site.ask(f"/api/query/result/{done}").json
        for number in range(rounds):
            name = site.submit(query_id=f"killed-{number}")
            site.kill()
            site.start()
            site.wait(name)  # before the next kill: a query that is interrupted three times fails
        require_equal(site.ask(f"/api/query/result/{done}").json, before, "a completed result after restarts")
        for stream in (REQUESTS, RESULTS):
            recorded = [each["query_id"] for each in site.payloads(stream)]
            wanted = [f"killed-{number}" for number in range(rounds)]
            found = sorted(each for each in recorded if each.startswith("killed-"))
            require_equal(found, wanted, f"records in {stream}")


CHECKS: Final = (Check("query.kills", "query-api 8.1", _kills),)
