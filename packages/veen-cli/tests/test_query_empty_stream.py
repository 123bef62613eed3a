"""Queries over a stream that has no entries: a real hub and a real service process."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from veen_core.ids import HubId
from veen_overlays.query.result.result_file import parse_result
from veen_overlays.query.verify.verification import ResultTrust, verify_result

from .query_world import OPERATOR, STREAM, World, make_world, query
from .running import ending_hubs, veen

EMPTY = "record/other"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("query")
    with ending_hubs(root):
        made = make_world(root)
        yield made
        for service in made.started:
            service.stop(signal.SIGKILL)


def test_the_result_of_a_service_over_an_empty_stream_verifies_and_can_be_compared(
    world: World, tmp_path: Path
) -> None:
    service = world.serve(world.config())
    for name, scope in {"both": [STREAM, EMPTY], "empty": [EMPTY]}.items():
        item = query(scope=scope, filter={"event_type": ["login.ok"], "subject_id": "user:3"})
        made = service.completed(item, token=OPERATOR)
        path = tmp_path / f"{name}.veenq"
        path.write_bytes(service.ask(f"/api/query/evidence/{made}", token=OPERATOR).body)
        file = parse_result(path.read_bytes())
        verify_result(file, ResultTrust(pinned={HubId.from_hex(world.hub_id)}))
        assert [(s.stream, s.to_seq) for s in file.digest.coverage][-1] == (EMPTY, 0)
        assert "empty_source" in [limit["limit"] for limit in file.digest.limits]
        veen("query", "compare", path, *world.flags).ok()
        veen("query", "verify", path, "--execute", *world.flags).ok()


def test_a_stream_without_entries_is_named_so_that_the_reader_checks_its_name(world: World) -> None:
    done = veen("query", "run", "-s", "record/app/htp", *world.flags)
    assert done.code == 0
    assert "stream record/app/htp has no entries; check the name" in done.err
    shown = json.loads(veen("query", "run", "-s", "record/app/htp", *world.flags, "--json").ok().out)
    assert shown["rows"] == []
    assert [source["to_seq"] for source in shown["digest"]["coverage"]] == [0]
