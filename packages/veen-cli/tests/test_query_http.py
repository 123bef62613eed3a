"""The Query API against strangers: descriptors of every shape, and what the OpenAPI document allows."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from .query_world import AUDITOR, STREAM, Service, World, make_world, query
from .running import ending_hubs

REQUESTS: Final = int(os.environ.get("VEEN_FUZZ_REQUESTS", "3000"))
EXAMPLES: Final = int(os.environ.get("VEEN_FUZZ_EXAMPLES", "40"))
MAX_SECONDS: Final = 5.0
JUNK: Final = (
    None,
    True,
    0,
    -1,
    2**64,
    1e300,
    0.5,
    "",
    "x",
    "\x00",
    "\ud7ff",
    "payload." * 40,
    "'; DROP TABLE jobs; --",
    "../../etc/passwd",
    [],
    {},
    [[]],
    {"a": {"b": {"c": []}}},
    ["x"] * 100,
    STREAM,
    [STREAM],
    ["*"],
    "2026-11-18T00:00:00Z",
    "2026-02-30T00:00:00Z",
    "count",
    ["count", "min(event_time)", "sum(payload.number)", "avg(payload.status)", "count_distinct(origin)"],
    ["max(payload)"],
    ["sum(event_time)"],
)
KEYS: Final = (
    "query_id",
    "version",
    "scope",
    "filter",
    "projection",
    "aggregate",
    "evidence",
    "meta",
    "subject_id",
    "event_type",
    "time",
    "from",
    "to",
    "where",
    "group_by",
    "metrics",
    "mode",
    "sample_rate",
    "payload.status",
    "unknown",
)
CODES: Final = {
    400: {"invalid_json", "invalid_query_descriptor", "unsupported_version"},
    403: {"forbidden_scope"},
    409: {"duplicate_query_id"},
    429: {"limit_exceeded"},
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("strangers")
    with ending_hubs(root):
        made = make_world(root)
        yield made
        for service in made.started:
            service.stop(signal.SIGKILL)


@pytest.fixture(scope="module")
def service(world: World) -> Service:
    return world.serve(world.config(limits={"max_pending": 10_000}))


def altered(rng: random.Random, item: Any, depth: int = 0) -> Any:
    """Return a descriptor with something replaced, removed, added or moved."""
    kind = rng.random()
    if isinstance(item, dict) and item and kind < 0.8:
        made = dict(item)
        key = rng.choice(list(made))
        if kind < 0.15:
            del made[key]
        elif kind < 0.3:
            made[rng.choice(KEYS)] = rng.choice(JUNK)
        else:
            made[key] = altered(rng, made[key], depth + 1)
        return made
    if isinstance(item, list) and item and kind < 0.6:
        place = rng.randrange(len(item))
        return [*item[:place], altered(rng, item[place], depth + 1), *item[place + 1 :]]
    return rng.choice(JUNK)


def bodies(seed: int, count: int) -> Iterator[bytes]:
    """Yield wrong and right descriptors: altered values, altered bytes, and bytes that are no JSON."""
    rng = random.Random(seed)
    whole = query(
        query_id="fuzz",
        version=1,
        filter={
            "subject_id": "user:3",
            "event_type": ["login.ok"],
            "time": {"from": "2026-11-18T00:00:00Z", "to": None},
            "where": {"payload.status": 200},
        },
        aggregate={"group_by": ["event_type", "payload.path"], "metrics": ["count", "max(payload.number)"]},
        evidence={"mode": "spot", "sample_rate": 0.5},
        meta={"reason": "test"},
    )
    for _ in range(count):
        item: Any = whole
        for _ in range(rng.randint(1, 4)):
            item = altered(rng, item)
        data = json.dumps(item).encode()
        if rng.random() < 0.2 and data:
            place = rng.randrange(len(data))
            data = data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]
        if rng.random() < 0.03:
            data = rng.choice((b"", b"\xff\xfe", b"[" * 5_000, b'{"a":1,"a":2}', b"NaN", b"1" * 5_000))
        yield data


def test_thousands_of_descriptors_get_the_specified_answers_in_bounded_time(service: Service) -> None:
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=30)
    headers = {"Authorization": f"Bearer {AUDITOR}", "Content-Type": "application/json"}
    seen: dict[int, int] = {}
    slowest = 0.0
    for body in bodies(7, REQUESTS):
        began = time.monotonic()
        connection.request("POST", "/api/v1/query/submit", body, headers)
        answer = connection.getresponse()
        found = json.loads(answer.read())
        slowest = max(slowest, time.monotonic() - began)
        seen[answer.status] = seen.get(answer.status, 0) + 1
        if answer.status == 202:
            assert set(found) == {"query_id", "result_id", "status"}
        else:
            assert found["error_code"] in CODES[answer.status], (answer.status, found, body)
            assert len(found["message"]) < 2_000
    connection.close()
    assert slowest < MAX_SECONDS
    assert seen[400] > REQUESTS // 2
    assert seen[202] > 0, "some of them are right"
    assert service.ask("/api/query/status/r-" + "0" * 32).status == 404


def test_heads_and_bodies_that_never_end_are_refused(service: Service) -> None:
    for headers in ({"X-Long": "x" * 40_000}, {f"X-{n}": "y" for n in range(300)}):
        connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=30)
        connection.request("GET", "/api/openapi.json", headers=headers)
        assert 400 <= connection.getresponse().status < 500
        connection.close()
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"):
        connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=30)
        connection.request(method, "/api/query/submit", headers={"Authorization": f"Bearer {AUDITOR}"})
        assert connection.getresponse().status == 405
        connection.close()


def test_answers_are_those_of_the_openapi_document(service: Service) -> None:
    assert service.ask("/api/openapi.json", token=None).status == 401
    document = service.ask("/api/openapi.json").json
    name = service.completed(query())
    for path, parameter in (("status", "result_id"), ("result", "result_id"), ("evidence", "result_id")):
        schema = document["paths"][f"/query/{path}/{{{parameter}}}"]["get"]["parameters"][0]["schema"]
        schema["examples"] = [name]
    schema = schemathesis.openapi.from_dict(document)
    # Not every rule of a descriptor is in its schema: that a date exists, or which metrics a field has.
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) == 5

    for operation in operations:
        strategy = operation.as_strategy()

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            database=None,
        )
        @given(case=strategy)
        def ask(case: Any) -> None:
            case.call_and_validate(
                base_url=f"{service.url}/api/v1",
                headers={"Authorization": f"Bearer {AUDITOR}"},
                excluded_checks=[positive_data_acceptance],
            )

        ask()
