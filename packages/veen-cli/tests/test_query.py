"""``veen query``: a real hub, a real service process, and a service that lies."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import http.server
import importlib.util
import io
import json
import re
import signal
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from veen_core.hashing import H
from veen_core.receipt import Receipt
from veen_overlays.live.query_service.principals import PrincipalLimits
from veen_overlays.query import canonical_json
from veen_overlays.query.event import receipt_id
from veen_overlays.query.result.digest import VerifiedReceipt, evidence_hash, evidence_summary
from veen_overlays.query.result.result_file import ResultFile, parse_result

from .query_world import (
    OPERATOR,
    REQUESTS,
    RESULTS,
    STREAM,
    Service,
    World,
    emit,
    make_world,
    query,
)
from .running import SCRIPTS, ending_hubs, environment, veen
from .test_levels import until


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("query")
    with ending_hubs(root):
        made = make_world(root)
        yield made
        for service in made.started:
            service.stop(signal.SIGKILL)


@pytest.fixture(scope="module")
def service(world: World) -> Service:
    return world.serve(world.config())


@pytest.fixture(scope="module")
def result(world: World, service: Service) -> Path:
    """The file of a completed result."""
    path = world.root / "result.veenq"
    path.write_bytes(service.ask(f"/api/query/evidence/{service.completed(query())}").body)
    return path


# --- the five operations


def test_a_query_is_recorded_and_its_digest_too_before_it_is_completed(
    world: World, service: Service
) -> None:
    accepted = service.ask("/api/v1/query/submit", query(query_id="recorded-1"))
    assert (accepted.status, accepted.json["status"]) == (202, "pending")
    name = accepted.json["result_id"]
    assert service.wait(name)["status"] == "completed"
    found = service.ask(f"/api/query/result/{name}").json
    (digest,) = world.recorded(RESULTS, lambda e: name in e.payload)
    assert canonical_json.decode(digest.payload) == found["result_digest"]
    assert (digest.event_type, digest.origin) == ("query.result", "veen-query")
    asked = service.ask("/api/query/descriptor/recorded-1").json
    (request,) = world.recorded(REQUESTS, lambda e: "recorded-1" in e.payload)
    assert canonical_json.decode(request.payload) == asked["descriptor"]
    assert (request.event_type, request.subject_id) == ("query.submitted", "auditor")
    for place, stream in ((asked["record_event"], REQUESTS), (found["record_event"], RESULTS)):
        receipt = bytes.fromhex(place["receipt"])
        assert place["receipt_id"] == f"rcpt-{H(receipt).hex()}"
        assert (place["stream"], place["seq"]) == (stream, Receipt.decode(receipt).stream_seq)
        assert place["hub_id"] == world.hub_id


def test_pages_together_are_the_rows_that_were_hashed(service: Service) -> None:
    name = service.completed(query())
    rows: list[Any] = []
    while True:
        found = service.ask(f"/api/query/result/{name}?offset={len(rows)}&limit=5").json
        rows += found["rows"]
        if not found["page"]["has_more"]:
            break
    digest = found["result_digest"]
    assert len(rows) == digest["row_count"] == found["page"]["total"] == 12
    assert H(canonical_json.encode(rows)).hex() == digest["rows_hash"]
    assert service.ask(f"/api/query/result/{name}?offset=99").json["rows"] == []


def test_every_access_of_a_principal_is_in_the_audit_stream(world: World, service: Service) -> None:
    name = service.completed(query())
    service.ask(f"/api/query/result/{name}?offset=3&limit=2")
    service.ask("/api/query/descriptor/none")
    service.ask("/api/query/submit", query(scope=["record/secret"]))
    service.ask(f"/api/query/result/{name}?limit=x")
    service.ask(f"/api/query/status/{name}?wait=-1")
    service.ask("/api/query/submit", b" " * 2_000_000)
    found = {
        (each.resource_identifier, each.metadata["outcome"]): each
        for each in world.accesses()
        if each.metadata["principal"] == "auditor"
    }
    read = found[f"query/result/{name}", "ok"]
    assert read.query_parameters == {"offset": 3, "limit": 2}
    assert read.requester_identity == b"\xaa" * 32
    digest = service.ask(f"/api/query/result/{name}").json["result_digest"]
    assert read.result_digest == bytes.fromhex(digest["rows_hash"])
    assert (f"query/status/{name}", "ok") in found
    assert ("query/descriptor/none", "query_not_found") in found
    assert "forbidden_scope" in {outcome for _, outcome in found}
    assert (f"query/result/{name}", "invalid_query_descriptor") in found
    assert (f"query/status/{name}", "invalid_query_descriptor") in found
    assert ("query/submit/-", "invalid_json") in found


def test_errors_are_those_of_the_specification(service: Service) -> None:
    name = service.completed(query(query_id="taken"))
    for expected, code, path, body, token in (
        (401, "unauthorized", "/api/query/submit", query(), None),
        (401, "unauthorized", "/api/query/submit", query(), "wrong"),
        (401, "unauthorized", f"/api/query/result/{name}", None, None),
        (400, "invalid_json", "/api/query/submit", b"{", ""),
        (400, "invalid_json", "/api/query/submit", b'"' + b"x" * 70_000 + b'"', ""),
        (400, "invalid_query_descriptor", "/api/query/submit", {}, ""),
        (400, "unsupported_version", "/api/query/submit", query(version=2), ""),
        (403, "forbidden_scope", "/api/query/submit", query(scope=["record/unknown"]), ""),
        (403, "forbidden_scope", "/api/query/submit", query(scope=[REQUESTS]), ""),
        (409, "duplicate_query_id", "/api/query/submit", query(query_id="taken"), ""),
        (404, "query_not_found", "/api/query/status/r-" + "0" * 32, None, ""),
        (404, "query_not_found", "/api/query/result/x", None, ""),
        (404, "query_not_found", "/api/query/evidence/..%2f..%2fjobs.sqlite", None, ""),
        (404, "query_not_found", "/api/query/descriptor/none", None, ""),
        (404, "query_not_found", "/nothing", None, ""),
        (400, "invalid_query_descriptor", f"/api/query/result/{name}?offset=-1", None, ""),
        (400, "invalid_query_descriptor", f"/api/query/result/{name}?limit=x", None, ""),
    ):
        options = {} if token == "" else {"token": token}
        found = service.ask(path, body, **options)
        assert (found.status, found.json["error_code"]) == (expected, code), (path, found.body)
        assert set(found.json) == {"error_code", "message"}


def test_a_principal_sees_its_own_results_unless_it_may_see_all(service: Service) -> None:
    own = service.completed(query())
    other = service.completed(query(filter={"subject_id": "nobody"}), token=OPERATOR)
    assert service.ask(f"/api/query/result/{other}").status == 404
    assert service.ask(f"/api/query/result/{own}", token=OPERATOR).status == 200


def test_limits_of_a_principal_hold(service: Service) -> None:
    accepted = service.ask("/api/query/submit", query(), token=OPERATOR).json
    state = service.wait(accepted["result_id"], token=OPERATOR)
    assert (state["status"], state["error_code"]) == ("failed", "limit_exceeded")
    assert "more than 5 rows" in state["message"]
    refused = service.ask(f"/api/query/result/{accepted['result_id']}", token=OPERATOR)
    assert (refused.status, refused.json["error_code"]) == (500, "execution_failed")
    counted = service.completed(
        query(aggregate={"group_by": ["subject_id"], "metrics": ["count"]}, filter={}), token=OPERATOR
    )
    page = service.ask(f"/api/query/result/{counted}?limit=100", token=OPERATOR).json
    assert (len(page["rows"]), page["page"]["limit"], page["page"]["has_more"]) == (2, 2, True)


def test_a_query_sees_what_was_recorded_before_it_was_submitted(world: World, service: Service) -> None:
    (receipt,) = emit(world.root, world.url, world.hub_id, [1_003], stream="record/other")
    item = query(scope=["record/other"])
    name = service.completed(item, token=OPERATOR)
    (row,) = service.ask(f"/api/query/result/{name}", token=OPERATOR).json["rows"]
    assert row["receipt_id"] == f"rcpt-{H(receipt).hex()}"


def test_the_service_keeps_nothing_that_others_can_read_and_no_token(world: World, service: Service) -> None:
    service.completed(query())
    files = list((world.root / "query-state").rglob("*"))
    assert {path for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077} == set()
    secrets = (world.root / "service/secrets.cbor").read_bytes()
    content = b"".join(path.read_bytes() for path in files if path.is_file())
    assert b"veenq_auditor" not in content
    assert b"veenq_auditor" not in service.log.read_bytes()
    assert secrets[-32:] not in content


def test_probes_logs_and_metrics(service: Service) -> None:
    service.completed(query())
    service.ask("/api/query/submit", query(), token="wrong")

    def get(path: str) -> str:
        with urllib.request.urlopen(f"{service.probes}{path}") as answer:
            return str(answer.read().decode())

    assert json.loads(get("/healthz")) == {"ok": True}
    assert json.loads(get("/readyz")) == {"ok": True}
    metrics = get("/metrics")
    assert re.search(r'veen_query_requests_total\{operation="submit",status="202"\} \d', metrics)
    assert re.search(r"veen_query_unauthenticated_total [1-9]", metrics)
    lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    assert {"query_completed", "request"} <= {line["event"] for line in lines}
    assert all(line["component"] == "query" for line in lines)


# --- start and stop


NEVER_READ = """
import asyncio, sys
from veen_cli.frame.main import run
from veen_overlays.live.query_service.view_backend import ViewBackend

async def refresh(_backend):
    await asyncio.Event().wait()

ViewBackend.refresh = refresh
sys.exit(run(["query", "serve", *sys.argv[1:]]))
"""


def test_probes_answer_while_the_logs_are_read_for_the_first_time(world: World) -> None:
    config, log = world.config("reading"), world.root / "reading.log"
    program = [sys.executable, "-c", NEVER_READ, "--config", config]
    with log.open("wb") as errors:
        process = subprocess.Popen(program, stderr=errors, env=environment(world.root / ".config"))
    try:
        until(lambda: b'"probes":"http' in log.read_bytes() and log.read_bytes().endswith(b"\n"))
        (probes,) = re.findall(r'"event":"reading_logs".*"probes":"([^"]+)"', log.read_text())
        with urllib.request.urlopen(f"{probes}/healthz") as answer:
            assert json.load(answer) == {"ok": True}
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{probes}/readyz")
        with caught.value as refused:
            assert (refused.code, json.load(refused)["why"]) == (503, "the view is being read")
        process.terminate()
        assert process.wait(30) == 0, "SIGTERM ends the service before the logs are read"
    finally:
        process.kill()
        process.wait()


def test_a_service_without_authentication_or_tls_does_not_start(world: World) -> None:
    nobody = [{"name": "x", "identity": "aa" * 32, "streams": ["*"]}]
    for changes, said in (
        ({"principals": nobody}, "no client could use the service"),
        ({"principals": []}, "no client could use the service"),
        ({"listen": {"host": "0.0.0.0"}}, "tls is not configured"),
        ({"streams": []}, "name the streams"),
        ({"unknown": 1}, "unknown setting"),
        ({"limits": {"max_rows": 0}}, "not between"),
    ):
        failed = veen("query", "serve", "--check", "--config", world.config("bad", **changes)).failed(1)
        assert said in failed, failed


@pytest.mark.parametrize("name", [each.name for each in dataclasses.fields(PrincipalLimits)])
def test_a_limit_of_a_principal_has_the_bounds_of_the_services_limits(world: World, name: str) -> None:
    config = world.config("bounds")
    settings = json.loads(config.read_text())
    settings["principals"][0]["limits"] = {name: 0}
    config.write_text(json.dumps(settings))
    failed = veen("query", "serve", "--check", "--config", config).failed(1)
    assert f"principals[0].limits.{name}: 0 is not between" in failed


def test_a_stopped_service_drains_and_its_results_survive_the_restart(world: World) -> None:
    config = world.config("restart")
    first = world.serve(config)
    name = first.completed(query())
    before = first.ask(f"/api/query/result/{name}").json
    assert first.stop() == 0
    second = world.serve(config)
    assert second.ask(f"/api/query/result/{name}").json == before
    assert second.ask("/api/query/submit", query(query_id=before["result_digest"]["query_id"])).status == 409
    failed = veen("query", "serve", "--config", config).failed(1)
    assert "in use" in failed
    assert second.stop(signal.SIGINT) == 0


def test_results_are_deleted_when_their_time_is_over_and_descriptors_stay(world: World) -> None:
    service = world.serve(world.config("expiring", results={"keep_sec": 1}))
    name = service.completed(query(query_id="expiring-1"))
    gone, end = service.ask(f"/api/query/result/{name}"), time.monotonic() + 60
    while gone.status == 200 and time.monotonic() < end:
        gone = service.ask(f"/api/query/result/{name}")
    assert gone.status == 404
    assert "have expired and were deleted" in gone.json["message"]
    assert service.wait(name)["status"] == "completed"
    assert service.ask("/api/query/descriptor/expiring-1").status == 200
    assert not list((world.root / "expiring-state/results").glob(f"{name}*"))
    service.stop()


def test_a_query_over_a_damaged_view_fails_and_says_so(world: World) -> None:
    service = world.serve(world.config("damaged", streams=[STREAM]))
    service.completed(query())
    (nodes,) = (each for each in (world.root / "damaged-state").glob("view*/nodes/*/*") if each.is_file())
    nodes.write_bytes(b"")
    accepted = service.ask("/api/query/submit", query())
    assert accepted.status == 202, accepted.body
    state = service.wait(accepted.json["result_id"])
    assert (state["status"], state["error_code"]) == ("failed", "execution_failed"), state
    assert str(nodes) in state["message"]
    assert "--rebuild" in state["message"]
    service.stop()
    config = world.root / "damaged.yaml"
    assert "--rebuild" in veen("query", "serve", "--config", config).failed(1)
    again = world.serve(config, rebuild=True)
    again.completed(query())
    again.stop()


def test_a_service_that_gets_a_reader_key_opens_what_it_could_not_open_before(world: World) -> None:
    veen("keygen", "--out", world.root / "blind", "--no-passphrase").ok()
    settings: dict[str, Any] = {"client": "blind", "streams": [STREAM]}
    everything = query(filter={}, evidence={"mode": "none"}, projection=["payload.number"])
    before = world.serve(world.config("keys", **settings))
    name = before.completed(everything)
    assert before.ask(f"/api/query/result/{name}").json["page"]["total"] == 0
    before.stop()
    after = world.serve(world.config("keys", **settings, readers=["service"]))
    name = after.completed(everything)
    assert after.ask(f"/api/query/result/{name}").json["page"]["total"] >= 60
    after.stop()


# --- the command


def run(world: World, service: Service, *options: object, stream: str = STREAM) -> Any:
    token = world.root / "auditor.token"
    if not token.exists():
        token.write_text("veenq_auditor-token\n")
        token.chmod(0o600)
    common = ("--service", service.url, "--token-file", token, "--trust", world.hub_id)
    return veen("query", "run", "-s", stream, *options, *common)


def test_run_asks_a_service_verifies_the_answer_and_prints_it_in_each_form(
    world: World, service: Service, tmp_path: Path
) -> None:
    options = ("--subject", "user:3", "--type", "login.ok", "--project", "payload.number,event_type")
    table = run(world, service, *options, "--evidence", "full", "--out", tmp_path / "r.veenq")
    assert table.code == 0, table
    assert table.out.splitlines()[0].split() == ["event_type", "payload.number"]
    assert "4 rows of 60 entries; 4 receipts verified" in table.err
    lines = run(world, service, *options, "--format", "json", "--quiet").out.splitlines()
    assert [json.loads(line)["payload.number"] for line in lines] == [3, 18, 33, 48]
    found = list(csv.DictReader(io.StringIO(run(world, service, *options, "--format", "csv", "-q").out)))
    assert [row["payload.number"] for row in found] == ["3", "18", "33", "48"]
    parquet = tmp_path / "rows.parquet"
    assert run(world, service, *options, "--format", "parquet", "--rows", parquet).code == 0
    assert stat.S_IMODE(parquet.stat().st_mode) == 0o600
    assert pq.read_table(parquet)["payload.number"].to_pylist() == [3, 18, 33, 48]
    assert veen("query", "verify", tmp_path / "r.veenq", "--trust", world.hub_id).code == 0


def test_run_says_that_no_hub_is_pinned_and_applies_a_witness_policy_to_the_answer(
    world: World, service: Service
) -> None:
    options = ("--subject", "user:3", "--quiet", "--format", "json")
    token = ("--token-file", world.root / "auditor.token")
    assert run(world, service, *options).code == 0
    unpinned = veen("query", "run", "-s", STREAM, "--service", service.url, *token, "--json")
    assert unpinned.json["pinned"] is False
    shown = veen("query", "run", "-s", STREAM, "--service", service.url, *token)
    assert "no hub is pinned" in shown.err
    made = veen("witness", "init", "w.example/w", "--dir", world.root / "witness", "--json").json
    log = veen("hub", "keys", "--note", "--data-dir", world.root / "hub", "--quiet").ok().out.strip()
    policy = world.root / "policy.txt"
    policy.write_text(f"log {log}\nwitness w {made['verifier_key']}\nquorum w\n")
    done = run(world, service, *options, "--witnesses", policy)
    assert (done.code, done.out) == (3, ""), done


def test_run_reads_a_result_of_a_thousand_rows_with_full_evidence(world: World) -> None:
    stream = "record/app/many"
    emit(world.root, world.url, world.hub_id, range(1_000), stream)
    service = world.serve(world.config("many", streams=[stream]))
    done = run(world, service, "--evidence", "full", "--format", "json", "--quiet", stream=stream)
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) == 1_000
    service.stop()


def test_run_with_own_keys_gives_what_the_service_gives(world: World, service: Service) -> None:
    options = ("--group-by", "event_type", "--count", "--metric", "max(payload.number)")
    served = json.loads(run(world, service, *options, "--json").out)
    own = json.loads(veen("query", "run", "-s", STREAM, *options, *world.flags, "--json").ok().out)
    assert own["rows"] == served["rows"]
    assert own["rows"] == [
        {"count": 40, "event_type": "login.failed", "max(payload.number)": 59},
        {"count": 20, "event_type": "login.ok", "max(payload.number)": 57},
    ]


def test_run_rebuilds_a_damaged_view_on_demand(world: World) -> None:
    veen("query", "run", "-s", STREAM, *world.flags, "--json").ok()
    manifests = list((world.root / "service/views").glob("query-*/manifest"))
    for manifest in manifests:
        manifest.write_bytes(manifest.read_bytes()[:-1])
    assert manifests
    assert "--rebuild" in veen("query", "run", "-s", STREAM, *world.flags, "--json").err
    done = veen("query", "run", "-s", STREAM, *world.flags, "--json", "--rebuild").ok()
    assert len(json.loads(done.out)["rows"]) >= 60
    veen("query", "run", "-s", STREAM, *world.flags, "--json").ok()


def test_run_takes_a_descriptor_file_and_refuses_a_wrong_one_before_it_asks(world: World) -> None:
    good, bad = world.root / "good.json", world.root / "bad.json"
    good.write_text(json.dumps(query()))
    bad.write_text(json.dumps(query(projection=["nothing"])))
    assert len(json.loads(veen("query", "run", good, *world.flags, "--json").ok().out)["rows"]) == 12
    assert "'nothing' is not a field" in veen("query", "run", bad, *world.flags).failed(1)
    mixed = veen("query", "run", good, "--subject", "x", *world.flags).failed(1)
    assert "not both" in mixed


def test_run_replaces_no_file(world: World, tmp_path: Path) -> None:
    for option in ("--out", "--rows"):
        kept = tmp_path / option
        kept.write_text("evidence")
        assert "exists already" in veen("query", "run", "-s", STREAM, *world.flags, option, kept).failed(1)
        assert kept.read_text() == "evidence"


def test_verify_executes_again_and_compare_agrees(world: World, result: Path) -> None:
    done = veen("query", "verify", result, "--execute", *world.flags).ok()
    assert "the log gives the same rows when the query is executed again" in done.out
    assert (
        "not proved: executed_at, hub_id and profile_id of the digest are what the executor says" in done.out
    )
    assert "✓ the results agree" in veen("query", "compare", result, *world.flags).ok().out
    assert "✓ the results agree" in veen("query", "compare", result, result).ok().out
    name = parse_result(result.read_bytes()).digest.query_id
    assert "✓ the results agree" in veen("query", "compare", "--recorded", name, *world.flags).ok().out


def test_compare_says_where_two_results_part(world: World, result: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.veenq"
    options = ("-s", STREAM, "--subject", "user:2", "--out", other)
    assert veen("query", "run", *options, *world.flags, "--quiet").code == 0
    done = veen("query", "compare", result, other)
    assert done.code == 3
    assert "✗ the results differ" in done.out
    assert "descriptor.filter" in done.out


# --- a service that lies


def rewritten(file: ResultFile, rows: list[Any]) -> ResultFile:
    """Return the file with other rows, and every hash made to fit: no signature covers any of them."""
    encoded = [canonical_json.encode(row) for row in rows]
    joined = b"[" + b",".join(encoded) + b"]"
    verified = [
        VerifiedReceipt(
            receipt_id=receipt_id(wire), mmr_root=source.mmr_root, hub_id=source.hub_id, row_hash=H(row)
        )
        for source, evidence in zip(file.digest.coverage, file.evidence.sources, strict=True)
        for wire, row in zip(evidence.receipts, encoded, strict=False)
        if source.mmr_root is not None
    ]
    summary = evidence_summary(file.descriptor, file.digest.coverage, verified)
    digest = dataclasses.replace(
        file.digest,
        row_count=len(rows),
        rows_hash=H(joined).hex(),
        evidence_hash=evidence_hash(summary),
    )
    return dataclasses.replace(
        file,
        rows_json=joined,
        row_hashes=b"".join(map(H, encoded)),
        digest_json=digest.canonical(),
    )


LIES: dict[str, Callable[[list[Any]], list[Any]]] = {
    "a hidden row": lambda rows: rows[1:],
    "a hidden last row": lambda rows: rows[:-1],
    "a doubled row": lambda rows: [rows[0], *rows],
    "an added row": lambda rows: [*rows, {**rows[-1], "payload.number": 999}],
    "two swapped rows": lambda rows: [rows[1], rows[0], *rows[2:]],
    "a changed receipt_id": lambda rows: [{**rows[0], "receipt_id": rows[1]["receipt_id"]}, *rows[1:]],
    "no rows": lambda _rows: [],
}


@pytest.mark.parametrize("lie", LIES)
def test_verify_catches_a_service_that_shows(world: World, result: Path, tmp_path: Path, lie: str) -> None:
    file = parse_result(result.read_bytes())
    changed = rewritten(file, LIES[lie](file.rows()))
    (tmp_path / "lie.veenq").write_bytes(changed.encode())
    done = veen("query", "verify", tmp_path / "lie.veenq", "--trust", world.hub_id)
    assert done.code == 3, done
    assert done.out.startswith("✗")


ACCEPTED = {"query_id": "q-1", "result_id": f"r-{'0' * 32}"}


@contextlib.contextmanager
def answering(*answers: object) -> Iterator[tuple[str, list[str]]]:
    """Serve these answers, the last one for ever; yield the address and the paths that were asked for."""
    left, asked = list(answers), []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = json.dumps(left.pop(0) if len(left) > 1 else left[0]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the name that http.server wants

        def log_message(self, *_arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("answers", "code", "said"),
    [
        ([{}], 3, "has no query_id and result_id"),
        ([ACCEPTED | {"result_id": "../../x"}], 3, "has no query_id and result_id"),
        ([ACCEPTED, {"status": "lost"}], 3, "has no status"),
        ([ACCEPTED, {"status": "failed"}], 4, "the query failed"),
        ([[]], 3, "is not a JSON object"),
    ],
    ids=["without ids", "with a path as id", "unknown status", "failed without a reason", "an array"],
)
def test_run_names_the_answer_of_a_service_that_is_not_the_apis(
    answers: list[object], code: int, said: str
) -> None:
    with answering(*answers) as (url, _):
        assert said in veen("query", "run", "-s", STREAM, "--service", url).failed(code)


def test_run_asks_an_endlessly_pending_service_seldom_and_gives_up() -> None:
    with answering(ACCEPTED, {"status": "pending"}) as (url, asked):
        done = veen("query", "run", "-s", STREAM, "--service", url, "--max-wait", 1)
    assert "has not answered the query in 1 s" in done.failed(2)
    assert len(asked) < 8


def test_an_altered_value_that_fits_every_hash_is_caught_by_executing_again(
    world: World, result: Path, tmp_path: Path
) -> None:
    """Hashes can be made to fit, also those of a result with full evidence; the log cannot."""
    file = parse_result(result.read_bytes())
    assert file.descriptor.evidence.mode == "full"
    lie = rewritten(file, [{**row, "payload.status": 200} for row in file.rows()])
    path = tmp_path / "lie.veenq"
    path.write_bytes(lie.encode())
    assert veen("query", "verify", path, "--trust", world.hub_id).code == 0
    done = veen("query", "verify", path, "--execute", *world.flags)
    assert done.code == 3
    assert "executing the query again gives other rows" in done.out


def test_an_old_prefix_is_caught_by_the_log(world: World, tmp_path: Path) -> None:
    """The file ends at the first of three entries, or before all of them, and says that it is of today."""
    early = tmp_path / "early.veenq"
    stream = "record/app/short"
    for count in (0, 1):
        if count:
            emit(world.root, world.url, world.hub_id, [1], stream)
        options = ("-s", stream, "--out", early, "--quiet")
        early.unlink(missing_ok=True)
        assert veen("query", "run", *options, *world.flags).code == 0
        emit(world.root, world.url, world.hub_id, [2, 3], stream)
        veen("query", "verify", early, "--execute", *world.flags).ok()
        file = parse_result(early.read_bytes())
        end = sum(source.to_seq for source in file.digest.coverage)
        late = dataclasses.replace(file.digest, executed_at=file.digest.executed_at + 60_000)
        early.write_bytes(dataclasses.replace(file, digest_json=late.canonical()).encode())
        assert veen("query", "verify", early, "--trust", world.hub_id).code == 0
        for command in (("verify", early, "--execute"), ("compare", early)):
            done = veen("query", *command, *world.flags)
            assert done.code == 3, done
            assert f"committed entry {end + 1} at" in done.out + done.err


def test_an_old_prefix_is_caught_by_a_receipt_that_the_verifier_holds(
    world: World, service: Service, tmp_path: Path
) -> None:
    name = service.completed(query())
    path, mine = tmp_path / "old.veenq", tmp_path / "mine.receipt"
    path.write_bytes(service.ask(f"/api/query/evidence/{name}").body)
    file = parse_result(path.read_bytes())
    assert file.digest.coverage[0].to_seq == 60
    late = dataclasses.replace(file.digest, executed_at=file.digest.executed_at + 86_400_000)
    path.write_bytes(dataclasses.replace(file, digest_json=late.canonical()).encode())
    mine.write_bytes(world.receipts[-1])
    assert veen("query", "verify", path, "--trust", world.hub_id, "--receipt", mine).code == 0
    (newer,) = emit(world.root, world.url, world.hub_id, [60])
    mine.write_bytes(newer)
    done = veen("query", "verify", path, "--trust", world.hub_id, "--receipt", mine)
    assert done.code == 3, done


def test_a_result_of_another_hub_is_refused(result: Path) -> None:
    done = veen("query", "verify", result, "--trust", "cd" * 32)
    assert done.code == 3


def test_token_files_of_others_and_plain_http_to_other_machines_are_refused(
    world: World, tmp_path: Path
) -> None:
    token = tmp_path / "t"
    token.write_text("x")
    token.chmod(0o644)
    far = ("--service", "http://query.example", "--token-file", token, "--trust", world.hub_id)
    assert "can be read by other users" in veen("query", "run", "-s", STREAM, *far).failed(6)
    token.chmod(0o600)
    assert "plain HTTP" in veen("query", "run", "-s", STREAM, *far).failed(6)


def test_a_new_token_is_shown_once_and_written_for_its_owner_only(tmp_path: Path) -> None:
    made = veen("query", "token", "--out", tmp_path / "t", "--json").json
    assert stat.S_IMODE((tmp_path / "t").stat().st_mode) == 0o600
    token = (tmp_path / "t").read_text().strip()
    assert made["hash"] == H(token.encode()).hex()
    assert token not in json.dumps(made)
    assert "not overwritten" in veen("query", "token", "--out", tmp_path / "t").failed(1)


def test_the_program_veen_query_is_the_command_serve(tmp_path: Path) -> None:
    done = subprocess.run(
        [SCRIPTS / "veen-query", "--help"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Run the Query API as a service" in done.stdout


def certificates(folder: Path) -> Any:
    """Make the certificates that the tests of the hub use."""
    path = Path(__file__).parents[2] / "veen-hub/tests/certificates.py"
    spec = importlib.util.spec_from_file_location("hub_test_certificates", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Certificates(folder)


def test_a_client_certificate_names_its_principal_over_tls(world: World, tmp_path: Path) -> None:
    made = certificates(tmp_path)
    cert, key = made.hub
    principals = [
        {"name": "c", "identity": "cc" * 32, "certificates": ["commonName=client"], "streams": [STREAM]}
    ]
    tls = {"cert": str(cert), "key": str(key), "client_ca": str(made.authority)}
    service = world.serve(world.config("tls", tls=tls, principals=principals))
    assert service.url.startswith("https://")
    ask = ("query", "run", "-s", STREAM, "--subject", "user:3", "--service", service.url, "--json")
    trusted = (*ask, "--ca", made.authority, "--trust", world.hub_id)
    client = ("--cert", made.client[0], "--cert-key", made.client[1])
    assert len(json.loads(veen(*trusted, *client).out)["rows"]) >= 12
    assert "unauthorized" in veen(*trusted).failed(4)
    stranger = ("--cert", made.stranger[0], "--cert-key", made.stranger[1])
    assert veen(*trusted, *stranger).code == 2
    assert veen(*ask, "--trust", world.hub_id, *client).code == 2, "the service's certificate is unknown"
    assert service.stop() == 0
