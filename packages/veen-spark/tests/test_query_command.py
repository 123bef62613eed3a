"""``veen spark query``: verified logs in, rows and a result file out, equal to the plain loop."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from veen_cli.frame import Exit
from veen_core.ids import ClientId, HubId
from veen_overlays.query.request.descriptor import normalise
from veen_overlays.query.result.digest import rows_hash
from veen_overlays.query.result.result_file import Execution, make_digest, parse_result
from veen_overlays.query.verify.verification import ResultTrust, verify_result
from veen_overlays.recorder.records import sign_continuity

from .commands import Result, run
from .logs import Hub, reader_key, signing_key
from .recorder_hub import HTTP, LOGIN, READER, event, fill, plain_engine

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

QUERIES = {"failures": FAILURES, "by-user": BY_USER}


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
    for name, item in QUERIES.items():
        (place / f"{name}.json").write_text(json.dumps(item))
    yield hub
    hub.close()


def query(place: Path, name: str, *args: str | Path) -> Result:
    return run("query", "--descriptor", place / f"{name}.json", "--reader", place / "reader", *args)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", ["failures", "by-user"])
@pytest.mark.parametrize("logs", ["clone", "exports"])
def test_the_result_file_has_the_digest_of_the_plain_loop_and_verifies_offline(
    hub: Hub, place: Path, tmp_path: Path, name: str, logs: str
) -> None:
    out = tmp_path / "result.veenq"
    result = query(place, name, place / logs, "--hub-id", hub.hub_id.hex(), "--out", out, "--json")
    assert result.exit_code == 0, result.stderr
    file = parse_result(out.read_bytes())
    descriptor, engine = normalise(QUERIES[name], new_query_id=""), plain_engine(hub, LOGIN, HTTP)
    answer = engine.execute(descriptor, engine.prefixes(descriptor.scope))
    expected = make_digest(descriptor, answer, Execution(executed_at=0, hub_id=hub.hub_id.hex()))
    shown = json.loads(result.stdout)["result_digest"]
    for field in ("result_id", "rows_hash", "evidence_hash", "row_count"):
        assert shown[field] == getattr(expected, field), field
    assert out.stat().st_mode & 0o777 == 0o600
    verdict = verify_result(file, ResultTrust(pinned={HubId(hub.hub_id)}))
    assert verdict.digest.rows_hash == rows_hash(answer.rows)


@pytest.mark.usefixtures("spark")
def test_a_clone_shows_that_a_stream_has_no_entries_and_the_result_verifies(
    hub: Hub, place: Path, tmp_path: Path
) -> None:
    descriptor, out = tmp_path / "empty.json", tmp_path / "result.veenq"
    descriptor.write_text(json.dumps(FAILURES | {"scope": [LOGIN, "record/none"]}))
    made = run(
        "query", "--descriptor", descriptor, "--reader", place / "reader", place / "clone", "--out", out
    )
    assert made.exit_code == 0, made.stderr
    verdict = verify_result(parse_result(out.read_bytes()), ResultTrust(pinned={HubId(hub.hub_id)}))
    assert [source.to_seq > 0 for source in verdict.digest.coverage] == [True, False]


@pytest.mark.usefixtures("spark")
def test_a_grown_log_gives_the_earlier_result_again(hub: Hub, place: Path, tmp_path: Path) -> None:
    first, again, grown = (tmp_path / name for name in ("first.veenq", "again.veenq", "grown.veenq"))
    early = (place / "exports" / "login", place / "exports" / "http")
    assert query(place, "by-user", *early, "--out", first).exit_code == 0
    assert query(place, "by-user", place / "clone", "--out", grown).exit_code == 0
    assert query(place, "by-user", place / "clone", "--at", first, "--out", again).exit_code == 0
    digests = [parse_result(path.read_bytes()).digest for path in (first, again, grown)]
    assert digests[0].result_id == digests[1].result_id != digests[2].result_id
    assert digests[0].evidence_hash == digests[1].evidence_hash != digests[2].evidence_hash
    assert digests[0].rows_hash == digests[1].rows_hash
    assert hub.hub_id.hex() == digests[0].hub_id


@pytest.mark.usefixtures("spark", "hub")
def test_rows_are_shown_as_a_table_with_the_digest_on_stderr(place: Path) -> None:
    shown = query(place, "by-user", place / "clone")
    assert shown.exit_code == 0, shown.stderr
    names, *rows = shown.stdout.splitlines()
    assert names.split("\t")[:3] == ["attributed", "avg(payload.status)", "count"]
    assert len(rows) == 4
    assert "record/security/login at hub " in shown.stderr
    assert "32 scanned, 30 matched, 1 unopened" in shown.stderr
    assert "rows_hash " in shown.stderr
    quiet = query(place, "by-user", place / "clone", "--quiet", "--limit", "1")
    assert len(quiet.stdout.splitlines()) == 1


@pytest.mark.usefixtures("spark", "hub")
def test_no_row_is_read_from_a_log_that_does_not_verify(place: Path, tmp_path: Path) -> None:
    damaged, out = tmp_path / "damaged", tmp_path / "result.veenq"
    shutil.copytree(place / "exports" / "login", damaged)
    (chunk, *_) = sorted(damaged.glob("chunk-*.log"))
    content = chunk.read_bytes()
    chunk.write_bytes(content[:500] + bytes([content[500] ^ 1]) + content[501:])
    refused = query(place, "failures", damaged, place / "exports" / "http", "--out", out)
    assert refused.exit_code == Exit.PROTOCOL
    assert "so the query reads nothing; run `veen spark verify`" in refused.stderr
    other = query(place, "failures", place / "clone", "--hub-id", "00" * 32, "--out", out)
    assert other.exit_code == Exit.PROTOCOL
    assert "is not pinned" in other.stderr
    late = query(place, "failures", place / "exports" / "login-2", "--out", out)
    assert late.exit_code == Exit.PROTOCOL
    assert "entries 1 to 20 are missing; give the log from entry 1 on" in late.stderr
    assert not out.exists()


@pytest.mark.usefixtures("spark", "hub")
def test_every_wrong_query_has_its_code_and_the_next_step(place: Path, tmp_path: Path) -> None:
    log = (place / "exports" / "http",)
    unknown = query(place, "failures", *log)
    assert unknown.exit_code == Exit.USAGE
    assert f"forbidden_scope: scope (query-api §4.2): the stream '{LOGIN}' is not in the" in unknown.stderr
    bad = {"{": "invalid_json", "{}": "invalid_query_descriptor", '{"version": 2}': "unsupported_version"}
    for text, code in bad.items():
        (tmp_path / "bad.json").write_text(text)
        refused = run("query", *log, "--descriptor", tmp_path / "bad.json", "--master", "spark://127.0.0.1:1")
        assert (refused.exit_code, code in refused.stderr) == (Exit.USAGE, True), refused.stderr
    (tmp_path / "kept").write_text("kept")
    there = query(place, "failures", *log, "--out", tmp_path / "kept", "--master", "spark://127.0.0.1:1")
    assert there.exit_code == Exit.USAGE
    assert (tmp_path / "kept").read_text() == "kept"
    missing = run("query", *log, "--descriptor", tmp_path / "none.json")
    assert missing.exit_code == Exit.USAGE


def test_the_command_explains_itself_without_starting_spark() -> None:
    text = run("query", "--help").stdout
    for flag in (
        "--descriptor",
        "--reader",
        "--key",
        "--hub-id",
        "--held-in",
        "--at",
        "--out",
        "--json",
        "--master",
    ):
        assert flag in text


@pytest.mark.usefixtures("spark", "hub")
def test_an_event_is_attributed_by_an_earlier_signed_link_only(
    make_hub: Callable[..., Hub], place: Path, tmp_path: Path
) -> None:
    hub, alice = make_hub("linked"), signing_key("alice")
    link = sign_continuity(alice, ClientId(signing_key("device").public))
    for record in (event(1), link, event(2)):  # the device signs what alice claims
        hub.send_records(HTTP, [record], reader=READER, who="device")
    hub.send_records(HTTP, [event(3)], reader=READER, who="mallory")
    hub.clone(tmp_path / "clone")
    item = FAILURES | {"scope": [HTTP], "filter": {}, "projection": ["attributed", "payload.status"]}
    (tmp_path / "query.json").write_text(json.dumps(item))
    shown = run(
        "query",
        tmp_path / "clone",
        "--descriptor",
        tmp_path / "query.json",
        "--key",
        place / "reader",
        "--json",
    )
    assert shown.exit_code == 0, shown.stderr
    rows = json.loads(shown.stdout)["rows"]
    assert [(row["payload.status"], row["attributed"]) for row in rows] == [
        (201, False),
        (202, True),
        (203, False),
    ]
