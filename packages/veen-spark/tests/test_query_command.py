"""``veen spark query``: verified logs in, rows and a result file out, equal to the plain loop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from veen_core.ids import HubId
from veen_overlays.query.descriptor import normalise
from veen_overlays.query.digest import rows_hash
from veen_overlays.query.result_file import Execution, make_digest, parse_result
from veen_overlays.query.verification import ResultTrust, verify_result

from .commands import Result, run
from .logs import Hub, reader_key
from .recorder_hub import HTTP, LOGIN, READER, fill, plain_engine

FAILURES: dict[str, Any] = {
    "query_id": "q-failures",
    "scope": [LOGIN, HTTP],
    "filter": {"event_type": ["login.failed"], "where": {"payload.from.port": [0, 3, 6, 9, 12]}},
    "projection": ["*"],
    "evidence": {"mode": "full"},
}
BY_USER: dict[str, Any] = {
    "query_id": "q-by-user",
    "scope": [HTTP, LOGIN],
    "filter": {},
    "projection": ["receipt_id"],
    "aggregate": {
        "group_by": ["subject_id", "attributed"],
        "metrics": ["count", "sum(payload.status)", "avg(payload.status)", "max(event_time)"],
    },
    "evidence": {"mode": "spot", "sample_rate": 0.2},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("query")


@pytest.fixture(scope="module")
def hub(place: Path) -> Iterator[Hub]:
    hub = Hub(place / "hub")
    fill(hub)
    hub.hub_checkpoint(publish=True)
    hub.export(LOGIN, place / "exports" / "login", form="chunks", to_seq=20)
    hub.export(LOGIN, place / "exports" / "login-2", from_seq=21)
    hub.export(HTTP, place / "exports" / "http")
    hub.clone(place / "clone")
    (place / "reader").write_bytes(bytes(reader_key(READER).secret))
    (place / "reader").chmod(0o600)
    for name, item in (("failures", FAILURES), ("by-user", BY_USER)):
        (place / f"{name}.json").write_text(json.dumps(item))
    yield hub
    hub.close()


def query(place: Path, name: str, *args: str | Path) -> Result:
    return run("query", place / f"{name}.json", "--reader", place / "reader", *args)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("name", "item"), [("failures", FAILURES), ("by-user", BY_USER)])
@pytest.mark.parametrize("logs", ["clone", "exports"])
def test_the_result_file_has_the_digest_of_the_plain_loop_and_verifies_offline(
    hub: Hub, place: Path, tmp_path: Path, name: str, item: dict[str, Any], logs: str
) -> None:
    out = tmp_path / "result.veenq"
    result = query(place, name, "--in", place / logs, "--hub-id", hub.hub_id.hex(), "--out", out, "--json")
    assert result.exit_code == 0, result.stderr
    file = parse_result(out.read_bytes())
    descriptor, engine = normalise(item, new_query_id=""), plain_engine(hub, LOGIN, HTTP)
    answer = engine.execute(descriptor, engine.prefixes(descriptor.scope))
    expected = make_digest(descriptor, answer, Execution(executed_at=0, hub_id=hub.hub_id.hex()))
    shown = json.loads(result.stdout)["result_digest"]
    for field in ("result_id", "rows_hash", "evidence_hash", "row_count"):
        assert shown[field] == getattr(expected, field), field
    assert out.stat().st_mode & 0o777 == 0o600
    verdict = verify_result(file, ResultTrust(pinned={HubId(hub.hub_id)}))
    assert verdict.digest.rows_hash == rows_hash(answer.rows)
