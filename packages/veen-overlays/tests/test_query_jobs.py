"""Jobs and results of the Query API on disk: states, uniqueness, crashes, modes (query-api-spec 8.1)."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen_core.errors import ConfigError, StateError
from veen_core.ids import ClientId, Label, LeafHash, MmrRoot, StreamSeq, UnixTime
from veen_core.receipt import Receipt
from veen_overlays.live.query_service.counters import ServiceCounters
from veen_overlays.live.query_service.job import FINAL, TRANSITIONS, JobState, QueryJob, RecordedAt
from veen_overlays.live.query_service.job_run import MAX_ATTEMPTS, JobRunner
from veen_overlays.live.query_service.job_store import JobStore
from veen_overlays.live.query_service.principals import (
    Authenticator,
    PrincipalLimits,
    ServicePrincipal,
    check_pattern,
    hash_of_token,
    new_token,
    subject_text,
)
from veen_overlays.live.query_service.recording import RESULT, RESULTS, HubUnavailableError, QueryRecords
from veen_overlays.live.query_service.result_files import ResultFiles, ResultTooLargeError
from veen_overlays.query import canonical_json
from veen_overlays.query.errors import QueryError, QueryErrorCode
from veen_overlays.recorder.records import RecordEvent, UnixMilliseconds

PLACE = RecordedAt(stream="record/query/requests", seq=1, hub_id="aa" * 32, receipt_id="rcpt-1", receipt="00")


def job(number: int = 1, **changes: object) -> QueryJob:
    made = QueryJob(
        result_id=f"r-{number:032x}",
        query_id=f"q-{number}",
        principal="auditor",
        descriptor="{}",
        ends="[]",
        submitted_at=number,
        request_mark="0:0",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    return JobStore(tmp_path / "jobs")


def test_a_job_is_read_back_as_it_was_written(store: JobStore, tmp_path: Path) -> None:
    full = job(request=PLACE, attempts=2, message="ü", is_deleted=True)
    store.add(full, max_pending=1)
    store.close()
    with_reopened = JobStore(tmp_path / "jobs")
    assert with_reopened.by_result(full.result_id) == full
    assert with_reopened.by_query(full.query_id) == full
    assert with_reopened.by_query("q-2") is None


def test_a_query_id_is_used_once_even_after_the_query_has_finished(store: JobStore) -> None:
    store.add(job(), max_pending=9)
    store.change(job().result_id, state=JobState.FAILED)
    with pytest.raises(QueryError) as refused:
        store.add(job(2, query_id="q-1"), max_pending=9)
    assert (refused.value.code, refused.value.status) == (QueryErrorCode.DUPLICATE_QUERY_ID, 409)


def test_a_principal_has_no_more_unfinished_jobs_than_allowed(store: JobStore) -> None:
    store.add(job(1), max_pending=2)
    store.add(job(2), max_pending=2)
    with pytest.raises(QueryError, match="2 unfinished queries"):
        store.add(job(3), max_pending=2)
    store.add(job(4, principal="other"), max_pending=2)
    store.change(job(1).result_id, state=JobState.FAILED)
    store.add(job(3), max_pending=2)


@pytest.mark.parametrize(("old", "new"), list(product(JobState, JobState)))
def test_only_transitions_of_the_state_table_happen(store: JobStore, old: JobState, new: JobState) -> None:
    store.add(job(request=PLACE, result=PLACE, digest="{}", state=old), max_pending=9)
    allowed = new in TRANSITIONS[old] or (old is new and old not in FINAL)
    if allowed:
        store.change(job().result_id, state=new)
    else:
        with pytest.raises(StateError):
            store.change(job().result_id, state=new)
    found = store.by_result(job().result_id)
    assert found is not None
    assert found.state is (new if allowed else old)


@pytest.mark.parametrize("missing", ["request", "result", "digest"])
def test_a_result_is_completed_only_with_both_receipts_and_the_digest(store: JobStore, missing: str) -> None:
    values = {"request": PLACE, "result": PLACE, "digest": "{}"} | {missing: None}
    store.add(job(state=JobState.RUNNING, **values), max_pending=9)
    with pytest.raises(StateError, match="only after its request and digest are recorded"):
        store.change(job().result_id, state=JobState.COMPLETED)


def test_a_second_process_is_refused_and_a_killed_one_leaves_nothing_locked(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from veen_overlays.live.query_service.job_store import JobStore\n"
        "store = JobStore(pathlib.Path(sys.argv[1]))\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "jobs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdin is not None
    assert other.stdout.readline() == b"open\n"
    with pytest.raises(StateError, match="in use by another process"):
        JobStore(tmp_path / "jobs")
    other.send_signal(signal.SIGKILL)
    other.wait()
    other.stdin.close()
    other.stdout.close()
    JobStore(tmp_path / "jobs").close()


def test_a_damaged_store_is_refused_and_says_what_helps(store: JobStore, tmp_path: Path) -> None:
    for number in range(1, 200):
        store.add(job(number, descriptor="x" * 500), max_pending=999)
    store.close()
    path = tmp_path / "jobs/jobs.sqlite"
    content = bytearray(path.read_bytes())
    content[4_096:20_480] = os.urandom(16_384)
    path.write_bytes(content)
    with pytest.raises(StateError, match="requests and digests are in the log"):
        JobStore(tmp_path / "jobs")


def test_files_of_the_service_are_readable_by_their_owner_only(store: JobStore, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        files = ResultFiles(tmp_path / "results")
        with files.rows(job().result_id, max_rows=9, max_bytes=99) as rows:
            rows.add(b"{}")
        files.write_evidence(job().result_id, b"evidence")
        store.add(job(), max_pending=1)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert {name for name, mode in modes.items() if mode & 0o077} == set()
    assert len(modes) >= 6


@given(st.lists(st.binary(max_size=20).map(lambda b: b'{"a":"' + b.hex().encode() + b'"}')), st.data())
def test_pages_have_the_rows_that_were_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[bytes], data: st.DataObject
) -> None:
    files = ResultFiles(tmp_path_factory.mktemp("results"))
    name = job().result_id
    with files.rows(name, max_rows=len(rows), max_bytes=10_000) as writer:
        for row in rows:
            writer.add(row)
    offset, limit = data.draw(st.integers(0, 2 * len(rows))), data.draw(st.integers(1, 2 * len(rows) + 1))
    page = files.page(name, offset, limit)
    assert page.rows == b",".join(rows[offset : offset + limit])
    assert (page.count, page.total) == (len(rows[offset : offset + limit]), len(rows))


def _write_three(files: ResultFiles, max_rows: int, max_bytes: int) -> None:
    with files.rows(job().result_id, max_rows=max_rows, max_bytes=max_bytes) as writer:
        for _ in range(3):
            writer.add(b"{}")


def test_a_result_beyond_its_limits_leaves_no_file(tmp_path: Path) -> None:
    files = ResultFiles(tmp_path)
    for max_rows, max_bytes in ((2, 1_000), (100, 8)):
        with pytest.raises(ResultTooLargeError):
            _write_three(files, max_rows, max_bytes)
        assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_deleted_and_completed_results_stay(tmp_path: Path) -> None:
    files = ResultFiles(tmp_path)
    for number in (1, 2):
        with files.rows(job(number).result_id, max_rows=9, max_bytes=99) as rows:
            rows.add(b"{}")
        files.write_evidence(job(number).result_id, b"evidence")
    (tmp_path / f"{job(1).result_id}.veenq.tmp").write_bytes(b"half")
    assert files.delete_all_but({job(1).result_id}) == 4
    assert {path.suffix for path in tmp_path.iterdir()} == {".rows", ".index", ".veenq"}
    assert files.page(job(1).result_id, 0, 9).rows == b"{}"


def test_a_damaged_page_is_refused(tmp_path: Path) -> None:
    files = ResultFiles(tmp_path)
    with files.rows(job().result_id, max_rows=9, max_bytes=99) as rows:
        rows.add(b'{"a":1}')
        rows.add(b'{"a":2}')
    path = files.path(job().result_id, ".rows")
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(StateError, match="are damaged"):
        files.page(job().result_id, 0, 9)


@pytest.mark.parametrize("name", ["../x", "r-1", "r-" + "A" * 32, "", "r-" + "0" * 33])
def test_no_path_is_made_of_anything_but_a_result_id(tmp_path: Path, name: str) -> None:
    with pytest.raises(StateError, match="not a result_id"):
        ResultFiles(tmp_path).path(name, ".rows")


# --- principals


def principal(name: str = "auditor", **changes: object) -> ServicePrincipal:
    made = ServicePrincipal(name=name, identity=ClientId(b"\x01" * 32), streams=("record/app/*", "record/x"))
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_token_leads_to_its_principal_and_is_kept_as_a_hash_only() -> None:
    token = new_token()
    one = principal(token_hashes=(hash_of_token(token),))
    authenticator = Authenticator([one])
    assert authenticator.authenticate(f"Bearer {token}", None) is one
    assert authenticator.authenticate(f"bearer  {token} ", None) is one
    assert token not in repr(authenticator.principals)


@pytest.mark.parametrize(
    "given",
    [None, "", "Bearer", "Bearer ", "Basic abc", "Bearer wrong", "Bearer \udcff", "Bearer " + "x" * 9_999],
)
def test_wrong_credentials_are_unauthorized(given: str | None) -> None:
    authenticator = Authenticator([principal(token_hashes=(hash_of_token(new_token()),))])
    with pytest.raises(QueryError) as refused:
        authenticator.authenticate(given, None)
    assert refused.value.status == 401


def test_a_certificate_leads_to_its_principal_unless_a_wrong_token_is_sent() -> None:
    certificate = {"subject": ((("organizationName", "Example"),), (("commonName", "auditor"),))}
    subject = subject_text(certificate)
    assert subject == "organizationName=Example,commonName=auditor"
    one = principal(subjects=(subject,))
    authenticator = Authenticator([one])
    assert authenticator.authenticate(None, subject) is one
    for authorization, other in (("Bearer wrong", subject), (None, "commonName=auditor")):
        with pytest.raises(QueryError):
            authenticator.authenticate(authorization, other)
    assert subject_text({}) is subject_text(None) is None


def test_no_value_of_a_certificate_reads_as_the_subject_of_another() -> None:
    forged = {"subject": ((("organizationName", "Example,commonName=auditor"),),)}
    assert subject_text(forged) == r"organizationName=Example\,commonName\=auditor"
    twice = {"subject": ((("organizationName", "Example\\,commonName=auditor"),),)}
    assert subject_text(twice) == r"organizationName=Example\\\,commonName\=auditor"
    authenticator = Authenticator([principal(subjects=("organizationName=Example,commonName=auditor",))])
    with pytest.raises(QueryError):
        authenticator.authenticate(None, subject_text(forged))


def test_a_service_nobody_could_use_is_refused_and_so_are_shared_credentials() -> None:
    with pytest.raises(ConfigError, match="no client could use the service"):
        Authenticator([principal()])
    shared = (hash_of_token("t"),)
    with pytest.raises(ConfigError, match="share a token"):
        Authenticator([principal("a", token_hashes=shared), principal("b", token_hashes=shared)])
    with pytest.raises(ConfigError, match="listed twice"):
        Authenticator([principal(token_hashes=shared), principal()])


def test_a_pattern_matches_below_its_name_only() -> None:
    one = principal()
    allowed = ["record/app/http", "record/app/a/b", "record/x"]
    assert [
        s for s in (*allowed, "record/app", "record/apple", "record/xy", "*") if one.may_read(s)
    ] == allowed
    assert principal(streams=("*",)).may_read("anything")
    for pattern in ("a*", "*/a", "a/*/b", "**"):
        with pytest.raises(ConfigError):
            check_pattern(pattern, "streams")


class FailingLog:
    """A record log whose searches raise the given errors, one after the other."""

    hub_id, identity = bytes(32), ClientId(bytes(32))

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    async def find(self, *_arguments: object) -> Any:
        raise self.errors.pop(0)


def test_a_job_waits_for_the_hub_and_fails_by_any_other_error(store: JobStore, tmp_path: Path) -> None:
    log: Any = FailingLog(
        HubUnavailableError("no answer"), StateError("the state is damaged", action="mend it")
    )
    counters, nothing = ServiceCounters(), cast("Any", None)
    runner = JobRunner(
        nothing,
        store,
        ResultFiles(tmp_path / "results"),
        QueryRecords(log, lambda: 0),
        limits_of=lambda _job: PrincipalLimits(),
        now=lambda: 7,
        counters=counters,
    )
    store.add(job(), max_pending=1)
    asyncio.run(runner.run(job()))
    found = store.by_result(job().result_id)
    assert found is not None
    assert (found.state, found.error_code) == (JobState.FAILED, "execution_failed")
    assert found.message == "the state is damaged; mend it"
    assert (counters.record_failures, log.errors) == (1, [])


class ResultsLog:
    """A record log that has the digest of a job."""

    hub_id, identity = bytes(32), ClientId(bytes(32))

    def __init__(self, digest: str) -> None:
        self.event = RecordEvent(
            subject_id="veen-query",
            principal_id=self.identity,
            event_type=RESULT,
            event_time=UnixMilliseconds(1),
            origin="veen-query",
            payload=digest,
        )

    async def find(self, stream: str, _mark: str, matches: Callable[[RecordEvent], bool]) -> Receipt | None:
        assert stream == RESULTS
        assert matches(self.event)
        return Receipt(
            label=Label(bytes(32)),
            stream_seq=StreamSeq(9),
            leaf_hash=LeafHash(bytes(32)),
            mmr_root=MmrRoot(bytes(32)),
            hub_ts=UnixTime(1),
        )


@pytest.mark.parametrize("attempts", [1, MAX_ATTEMPTS])
def test_a_result_whose_digest_is_recorded_is_completed_without_another_execution(
    store: JobStore, tmp_path: Path, attempts: int
) -> None:
    files, name, nothing = ResultFiles(tmp_path / "results"), job().result_id, cast("Any", None)
    digest = canonical_json.encode({"result_id": name}).decode()
    with files.rows(name, max_rows=9, max_bytes=99) as rows:
        rows.add(b"{}")
    files.write_evidence(name, b"evidence")
    store.add(job(request=PLACE), max_pending=1)
    store.change(name, result_mark="0:0", attempts=attempts)
    assert files.delete_all_but(store.kept()) == 0, "the files of a result that may be committed stay"
    log: Any = ResultsLog(digest)
    runner = JobRunner(
        nothing,
        store,
        files,
        QueryRecords(log, lambda: 0),
        limits_of=lambda _job: PrincipalLimits(),
        now=lambda: 7,
        counters=ServiceCounters(),
    )
    (left,) = store.unfinished()
    asyncio.run(runner.run(left))
    found = store.by_result(name)
    assert found is not None
    assert found.result is not None
    assert (found.state, found.digest, found.result.seq) == (JobState.COMPLETED, digest, 9)
    assert files.page(name, 0, 9).rows == b"{}"


def test_sqlite_is_new_enough_for_strict_tables() -> None:
    assert sqlite3.sqlite_version_info >= (3, 37)
