"""Kill the query service at every durable step: a query is run again or was never accepted, never half."""

from __future__ import annotations

import http.client
import os
import signal
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from veen_core.hashing import H
from veen_overlays.query import canonical_json

from .query_world import REQUESTS, RESULTS, World, make_world, query
from .running import ending_hubs, veen

STEPS: Final = 22
"""Durable steps of one query, counted before and after each; the last are those of its accesses."""
SHOWN: Final = range(1, STEPS + 1) if os.environ.get("VEEN_THOROUGH") else range(2, STEPS + 1, 4)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("kills")
    with ending_hubs(root):
        made = make_world(root)
        yield made
        for service in made.started:
            service.stop(signal.SIGKILL)


@pytest.mark.parametrize("step", SHOWN)
def test_a_service_killed_at_step(world: World, step: int) -> None:
    config, query_id = world.config(f"killed-{step}"), f"killed-{step}"
    victim = world.serve(config, die_at=step)
    answered = None
    try:
        answered = victim.ask("/api/query/submit", query(query_id=query_id))
        victim.wait(answered.json["result_id"])
    except (http.client.HTTPException, urllib.error.URLError, OSError):
        pass
    assert victim.process.wait(60) == -signal.SIGKILL
    service = world.serve(config)
    again = service.ask("/api/query/submit", query(query_id=query_id))
    if answered is not None and answered.status == 202:
        assert again.status == 409, "an accepted query is known after the kill"
    assert again.status in (202, 409)
    if again.status == 202:
        name = again.json["result_id"]
    else:
        # The job of a submission that was interrupted is finished by the next process.
        end = time.monotonic() + 60
        found = service.ask(f"/api/query/descriptor/{query_id}")
        while found.status != 200 and time.monotonic() < end:
            found = service.ask(f"/api/query/descriptor/{query_id}")
        assert found.status == 200
        (name,) = {
            canonical_json.decode(e.payload)["result_id"]  # type: ignore[index,call-overload]
            for e in _when_recorded(world, query_id)
        }
    assert service.wait(name)["status"] == "completed"
    _check(world, service, name, query_id)
    service.stop()


def _when_recorded(world: World, query_id: str) -> list:  # type: ignore[type-arg]
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if found := world.recorded(RESULTS, lambda e: query_id in e.payload):
            return found
    raise AssertionError("the digest was never recorded")


def _check(world: World, service: object, name: str, query_id: str) -> None:
    """Exactly one request and one digest are recorded, the rows are the digest's, and the file verifies."""
    page = service.ask(f"/api/query/result/{name}").json  # type: ignore[attr-defined]
    digest = page["result_digest"]
    assert H(canonical_json.encode(page["rows"])).hex() == digest["rows_hash"]
    (recorded,) = world.recorded(RESULTS, lambda e: f'"{query_id}"' in e.payload)
    assert canonical_json.decode(recorded.payload) == digest
    assert len(world.recorded(REQUESTS, lambda e: f'"{query_id}"' in e.payload)) == 1
    path = Path(world.root / f"{name}.veenq")
    path.write_bytes(service.ask(f"/api/query/evidence/{name}").body)  # type: ignore[attr-defined]
    veen("query", "verify", path, "--trust", world.hub_id).ok()
