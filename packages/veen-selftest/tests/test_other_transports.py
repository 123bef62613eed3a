"""The suite ``core`` against one hub that is reached over HTTP/3 and over NATS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from veen_hub.client import Tls
from veen_selftest.hubs.fleet import OwnFleet, RemoteFleet
from veen_selftest.runner.context import RunOptions
from veen_selftest.runner.hub_setup import HubSetup
from veen_selftest.runner.suite import CheckOutcome, chosen, run
from veen_testing.nats_server import NatsServer

from .test_running_hub import self_signed


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    """A message of MAX_MSG_BYTES does not fit into NATS's default max_payload of 1 MiB."""
    server = NatsServer(tmp_path / "nats", max_payload=8 * 1_048_576)
    yield server
    server.kill()


def test_core_passes_over_every_transport(nats: NatsServer, tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    settings = {
        "tls": {"cert": str(cert), "key": str(key)},
        "h3": {},
        "nats": {"servers": [nats.url], "prefix": "selftest"},
    }
    fleet = OwnFleet(b"transports")
    try:
        hub = fleet.own_hub(HubSetup(name="transports", settings=settings)).start()
        tls, port = Tls(ca=cert), urlsplit(hub.url).port
        urls = {f"h3://127.0.0.1:{port}": tls, f"{nats.url}/selftest": None}
        slow = ("proof", "epoch", "mmr")
        checks = [one for one in chosen(["core"]) if not one[1].name.startswith(slow)]
        passed = {}
        for url, trusted in urls.items():
            there = RemoteFleet(url, f"run-{len(passed)}", hub.admin, trusted, probes_url=hub.probes_url)
            report = run(checks, there, 1, RunOptions(max_wait=0), lambda _event: None)
            failed = [(r.check.name, r.why) for r in report.results if r.outcome is CheckOutcome.FAILED]
            assert failed == [], url
            passed[url] = {r.check.name for r in report.results if r.outcome is CheckOutcome.PASSED}
    finally:
        fleet.close()
    over_h3, over_nats = passed.values()
    assert over_h3 == over_nats
    assert len(over_h3) > 60
