"""The suite ``core`` against a hub that is reached over NATS, and over HTTP/3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from veen_selftest.hubs.fleet import OwnFleet, RemoteFleet
from veen_selftest.runner.context import RunOptions
from veen_selftest.runner.hub_setup import PLAIN
from veen_selftest.runner.suite import CheckOutcome, chosen, run
from veen_testing.nats_server import NatsServer


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    """A message of MAX_MSG_BYTES does not fit into NATS's default max_payload of 1 MiB."""
    server = NatsServer(tmp_path / "nats", max_payload=8 * 1_048_576)
    yield server
    server.kill()


def test_core_passes_over_nats_as_over_http(healthy: OwnFleet, nats: NatsServer) -> None:
    own = healthy.own_hub(replace(PLAIN, name="over-nats"))
    own.change({"nats": {"servers": [nats.url], "prefix": "selftest"}})
    with own.running() as hub:
        results = {}
        for road in (f"{nats.url}/selftest", hub.url):
            fleet = RemoteFleet(road, f"run-{len(results)}", hub.admin, probes_url=hub.probes_url)
            report = run(list(chosen(["core"])), fleet, 1, RunOptions(max_wait=0), lambda _event: None)
            assert [(r.check.name, r.why) for r in report.results if r.outcome is CheckOutcome.FAILED] == []
            results[road] = {r.check.name for r in report.results if r.outcome is CheckOutcome.PASSED}
    over_nats, over_http = results.values()
    assert over_nats == over_http
    assert len(over_nats) > 60
