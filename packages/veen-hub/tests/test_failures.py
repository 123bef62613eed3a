"""Failures of disk, clock, load or pipeline: only durable messages are acknowledged, and reads still work."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import uvloop

from veen_core import cbor
from veen_core.api import (
    ErrorEnvelope,
    ProofRequest,
    ProofResponse,
    ReceiptRequest,
    ReceiptResponse,
    StreamRequest,
    StreamResponse,
    SubmitResponse,
)
from veen_core.errors import ConfigError, VeenError
from veen_core.ids import StreamSeq, UnixTime
from veen_core.limits import Limits
from veen_core.proof import verify_inclusion
from veen_core.status import CapStatus, CheckpointsResponse, LabelRequest, RetentionResponse
from veen_hub import main
from veen_hub.admission.policy import AdmissionQuestion, AllowAll
from veen_hub.ops import authority_probe
from veen_hub.ops.anchors import FileLedger
from veen_hub.ops.authority_probe import AuthorityProbe
from veen_hub.pipeline import intake
from veen_hub.pipeline.intake import Intake
from veen_hub.server import Server
from veen_storage import Files
from veen_storage.commit.ledger import Ledger
from veen_storage.fsck import fsck
from veen_storage.opening import open_checks

from .certificates import Certificates
from .conftest import StartHub, StartProcess
from .following import Follower
from .people import Writer, envelope
from .serving import CBOR, CBOR_SEQ, PATIENCE, RunningHub, SetClock, make_directory, request, until
from .test_attachments import put

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FailingFiles(Files):
    """Real files until the test says which operation fails, and on what."""

    def __init__(self) -> None:
        self.fails: Callable[[str, str], bool] = lambda _operation, _path: False
        self._paths: dict[int, str] = {}

    def _check(self, operation: str, path: str) -> None:
        if self.fails(operation, path):
            raise FULL

    def open_append(self, path: Path, mode: int = 0o644) -> int:
        self._check("open", str(path))
        fd = super().open_append(path, mode)
        self._paths[fd] = str(path)
        return fd

    def write(self, fd: int, data: bytes, offset: int) -> None:
        self._check("write", self._paths.get(fd, ""))
        super().write(fd, data, offset)

    def sync(self, fd: int) -> None:
        self._check("sync", self._paths.get(fd, ""))
        super().sync(fd)


def journal_fails(operation: str) -> Callable[[str, str], bool]:
    return lambda asked, path: asked == operation and "/journal/" in path


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_when_the_journal_fails_nothing_is_acknowledged_and_everything_can_be_read(
    start_hub: StartHub, operation: str
) -> None:
    files = FailingFiles()
    hub = start_hub(files=files)
    alice = hub.writer()
    receipts = [hub.accept(alice.next()) for _ in range(3)]
    files.fails = journal_fails(operation)
    for wire in (alice.message(4), alice.message(4)):
        answer = hub.submit(wire)
        assert (answer.status, answer.error.code) == (503, "E.UNAVAILABLE")
        assert answer.headers["retry-after"] == "5"
        assert "No space left" not in answer.error.message, "a reason that is none of the client's"
    assert hub.post("/tooling/authorize", Writer("bob", hub.hub_id).token()).status == 503
    assert hub.admin("/tooling/checkpoint").status == 503

    ready = hub.get("/readyz")
    assert (ready.status, ready.json["ok"]) == (503, False)
    assert "No space left" in ready.json["why"]
    assert hub.get("/healthz").status == 200
    assert hub.metric("veen_ready") == 0
    assert hub.metric("veen_submit_err_total", code="E.UNAVAILABLE") == 2
    asked = StreamRequest(label=alice.label, from_seq=StreamSeq(1), with_receipts=True)
    assert [i.receipt for i in hub.ask("/v1/stream", asked, StreamResponse).items] == receipts
    proof = hub.ask(
        "/v1/proof",
        ProofRequest(label=alice.label, stream_seq=StreamSeq(1), tree_size=StreamSeq(3)),
        ProofResponse,
    ).mmr_proof
    verify_inclusion(proof, receipts[2].mmr_root, StreamSeq(1), receipts[0].leaf_hash, 3)
    assert alice.auth_ref is not None
    assert hub.get(f"/tooling/cap/{alice.auth_ref.hex()}").read(CapStatus).known
    with Follower(hub.port, alice.label) as follower:
        assert [item[1] for item in follower.take(3)] == [1, 2, 3]

    hub.stop()
    again = start_hub()
    assert again.get("/readyz").status == 200
    for receipt in receipts:
        question = ReceiptRequest(label=alice.label, stream_seq=receipt.stream_seq)
        assert again.ask("/v1/receipt", question, ReceiptResponse).receipt == receipt
    assert again.submit(alice.message(4)).status in (200, 409)  # its bytes may have reached the disk
    again.stop()
    assert fsck(again.root).faults == []


def test_a_failed_batch_refuses_all_of_its_messages(start_hub: StartHub) -> None:
    files = FailingFiles()
    hub = start_hub(files=files)
    alice = hub.writer()
    files.fails = journal_fails("sync")
    body = b"".join(envelope(alice.next()) for _ in range(5))
    answer = hub.post("/v1/submit", body, "application/cbor-seq")
    assert answer.status == 200
    assert answer.body.count(b"E.UNAVAILABLE") == 5
    assert alice.label not in answer.body

    def entries(stage: str) -> float:
        return hub.metric("veen_stage_entries", stage=stage)

    until(lambda: entries("accepted") == entries("durable") > 0, "nothing of it is counted any more")


def test_when_applying_fails_the_hub_stops_acknowledging_and_says_why(
    start_hub: StartHub, caplog: pytest.LogCaptureFixture
) -> None:
    files = FailingFiles()
    hub = start_hub(files=files)
    alice = hub.writer()
    hub.accept(alice.next())
    assert hub.store.settle()
    files.fails = lambda operation, path: operation == "write" and "/log/" in path
    hub.accept(alice.next())  # durable in the journal
    until(lambda: hub.store.poisoned is not None, "the applier fails")
    for _ in range(3):
        assert hub.submit(alice.message(3)).status == 503
    assert "applying failed" in hub.get("/readyz").json["why"]
    told = [fields for record in caplog.records if "error" in (fields := getattr(record, "fields", {}))]
    assert sum("applying failed" in fields["error"] for fields in told) == 1
    hub.stop()
    again = start_hub()
    assert again.accept(alice.message(3)).stream_seq == 3


def test_an_attachment_that_cannot_be_written_is_unavailable_and_leaves_nothing(start_hub: StartHub) -> None:
    files = FailingFiles()
    hub = start_hub(files=files)
    alice = hub.writer()
    files.fails = lambda operation, path: operation == "sync" and "/attachments/" in path
    answer = put(hub, alice, b"content")
    assert (answer.status, answer.error.code) == (503, "E.UNAVAILABLE")
    assert "content" not in answer.error.message
    assert [path for path in (hub.root / "attachments").rglob("*") if path.is_file()] == []
    assert hub.submit(alice.next()).status == 200
    files.fails = lambda _operation, _path: False
    assert put(hub, alice, b"content").status == 200


@pytest.mark.parametrize("damage", ["zeros", "a folder"])
def test_a_damaged_label_affects_only_its_own_writers(
    start_hub: StartHub, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Its chunk is judged when it is first added to, where opening did not get to it."""
    hub = start_hub(gating=False)
    alice, bob = Writer("alice", hub.hub_id), Writer("bob", hub.hub_id, to="news")
    for writer in (alice, bob):
        hub.accept(writer.next())
    hub.stop()
    (chunk,) = (hub.root / "log").glob(f"chunk-{alice.label.hex()}*")
    if damage == "zeros":
        chunk.write_bytes(bytes(chunk.stat().st_size))
    else:
        chunk.unlink()
        chunk.mkdir()
    monkeypatch.setattr(open_checks, "MAX_CHECKED_LABELS", 0)
    hub = start_hub(gating=False)
    both = hub.post("/v1/submit", envelope(alice.next()) + envelope(bob.next()), CBOR_SEQ)
    refused, accepted = cbor.split_sequence(both.body)
    assert ErrorEnvelope.decode(refused).code == "E.UNAVAILABLE"
    assert SubmitResponse.decode(accepted).receipt.stream_seq == 2
    assert chunk.name not in str(refused)
    with ThreadPoolExecutor(2) as pool:
        puts = [pool.submit(put, hub, alice, b"content") for _ in range(10)]
        assert hub.submit(bob.next()).status == 200
        assert {job.result().status for job in puts} == {503}
    (made,) = hub.admin("/tooling/checkpoint").read(CheckpointsResponse).checkpoints
    assert (made.label_curr, made.upto_seq) == (bob.label, 3)


def test_a_damaged_label_does_not_stop_anchors_and_retention_of_others(
    start_hub: StartHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub = start_hub(gating=False, limits=Limits(max_checkpoint_interval=4))
    alice, bob = Writer("alice", hub.hub_id), Writer("bob", hub.hub_id, to="news")
    for writer in (alice, bob):
        for _ in range(9):
            hub.accept(writer.next())
    hub.admin("/tooling/checkpoint")
    hub.stop()
    for chunk in (hub.root / "log").glob(f"chunk-{alice.label.hex()}*"):
        chunk.write_bytes(bytes(chunk.stat().st_size))
    monkeypatch.setattr(open_checks, "MAX_CHECKED_LABELS", 0)
    ledger, short = FileLedger(tmp_path / "ledger"), {"max_age_sec": 10}
    hub = start_hub(gating=False, anchor=ledger, retention__streams={"orders": short, "news": short})
    (done,) = hub.admin("/tooling/anchor").read(CheckpointsResponse).checkpoints
    assert (done.label_curr, done.upto_seq) == (bob.label, 9)
    asked = LabelRequest(label=alice.label).encode()
    assert hub.admin("/tooling/anchor", asked).detail == "E.UNAVAILABLE"
    assert alice.label not in (tmp_path / "ledger").read_bytes(), "what the hub refuses is not published"
    hub.clock.time += 100
    assert hub.admin("/tooling/retention").read(RetentionResponse).entries == 8


def test_a_tenant_is_ready_while_its_authority_can_be_reached(
    start_hub: StartHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """spec-4 §10.1."""
    monkeypatch.setattr(authority_probe, "PROBE_INTERVAL_SEC", 0.0)
    ruler = start_hub("authority")
    tenant = start_hub("tenant", authority_url=ruler.url)
    assert tenant.get("/readyz").status == 200
    ruler.stop()
    ready = tenant.get("/readyz")
    assert ready.status == 503
    assert ready.json["why"].startswith(f"authority: {ruler.url} cannot be reached")
    assert tenant.get("/healthz").status == 200
    assert tenant.submit(tenant.writer().next()).status == 200  # what it has decided stays decided


def test_an_authority_with_a_private_certificate_is_trusted_with_authority_ca(
    start_hub: StartHub, certificates: Certificates
) -> None:
    cert, key = certificates.hub
    ruler = start_hub("authority", tls={"cert": str(cert), "key": str(key)})
    stranger = start_hub("stranger", authority_url=ruler.url)
    assert "certificate" in stranger.get("/readyz").json["why"].lower()
    tenant = start_hub("tenant", authority_url=ruler.url, authority_ca=str(certificates.authority))
    assert tenant.get("/readyz").status == 200
    with pytest.raises(ConfigError, match="authority_ca: "):
        AuthorityProbe(ruler.url, key)


def test_the_authority_is_asked_no_more_often_than_every_few_seconds(start_hub: StartHub) -> None:
    ruler = start_hub("authority")
    tenant = start_hub("tenant", authority_url=ruler.url)
    assert tenant.get("/readyz").status == 200
    ruler.stop()
    assert tenant.get("/readyz").status == 200


ODD_ANSWERS = {
    "a redirect": (b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n", "answers 302"),
    "no HTTP": (b"\x00\xff garbage\r\n\r\n", "does not answer in HTTP"),
    "nothing": (b"", "cannot be reached: Server disconnected"),
}


@pytest.mark.parametrize(("answer", "why"), ODD_ANSWERS.values(), ids=ODD_ANSWERS)
def test_an_authority_with_a_wrong_answer_counts_as_unreachable(
    start_hub: StartHub, answer: bytes, why: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as odd, ThreadPoolExecutor(1) as pool:
        url = f"http://127.0.0.1:{odd.getsockname()[1]}"
        tenant = start_hub("tenant", authority_url=url)

        def answering() -> None:
            while True:
                connection, _address = odd.accept()
                with connection:
                    if not connection.recv(65_536).startswith(b"GET /healthz "):
                        return
                    connection.sendall(answer)

        served = pool.submit(answering)
        ready = tenant.get("/readyz")
        with socket.create_connection(odd.getsockname()) as last:
            last.sendall(b"end")
            served.result(PATIENCE)
    assert (ready.status, ready.json["why"]) == (503, f"authority: {url} {why}")


def test_a_directory_that_vanished_makes_the_hub_not_ready(start_hub: StartHub) -> None:
    hub = start_hub()
    (hub.root / "registry.cbor").rename(hub.root / "hidden")
    ready = hub.get("/readyz")
    assert (ready.status, ready.json["ok"]) == (503, False)
    assert ready.json["why"].startswith("data directory")
    (hub.root / "hidden").rename(hub.root / "registry.cbor")
    assert hub.get("/readyz").status == 200


# --- time


def test_hub_ts_never_decreases_when_the_clock_jumps_back_even_across_a_restart(start_hub: StartHub) -> None:
    clock = SetClock()
    hub = start_hub(clock=clock)
    alice = hub.writer()
    clock.time += 1_000
    high = hub.accept(alice.next()).hub_ts
    clock.time -= 5_000
    assert hub.accept(alice.next()).hub_ts == high
    assert hub.status().hub_ts == high
    hub.stop()
    again = start_hub(clock=clock)
    assert again.status().hub_ts == high
    assert again.accept(alice.next()).hub_ts == high
    clock.time = high + 1
    assert again.accept(alice.next()).hub_ts == high + 1


# --- one directory, one hub


def test_a_second_hub_on_one_directory_ends_with_a_one_line_error(
    start_process: StartProcess, tmp_path: Path
) -> None:
    first = start_process("data")
    second = subprocess.run(
        [sys.executable, "-m", "veen_hub.main", f"--data-dir={tmp_path / 'data'}", "--port=0"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert second.returncode == 4
    (line,) = second.stderr.splitlines()
    assert line.startswith("veen-hub: ")
    assert f"in use by process {first.process.pid}" in line
    assert first.get("/readyz").status == 200


def test_a_port_that_is_taken_is_a_one_line_error(start_process: StartProcess, tmp_path: Path) -> None:
    first = start_process("data")
    make_directory(tmp_path / "other")
    second = subprocess.run(
        [sys.executable, "-m", "veen_hub.main", f"--data-dir={tmp_path / 'other'}", f"--port={first.port}"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert second.returncode == 1
    assert "Address already in use" in second.stderr
    assert "Traceback" not in second.stderr


# --- load, and a policy with a bug


class Gate(AllowAll):
    """A policy that holds the sequencer until the test lets go."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()

    def not_primary(self, question: AdmissionQuestion) -> str | None:  # noqa: ARG002
        self.reached.set()
        self.open.wait(PATIENCE)
        return None


def test_a_full_queue_is_answered_at_once_with_retry_after(start_hub: StartHub) -> None:
    gate = Gate()
    hub = start_hub(policy=gate, max_waiting=4)
    writers = [hub.writer(f"writer {n}") for n in range(5)]
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(hub.submit, writer.next()) for writer in writers[:4]]
        assert gate.reached.wait(PATIENCE)
        until(lambda: hub.do(lambda: hub.hub._intake.waiting) == 4, "the queue is full")
        refused = hub.submit(writers[4].message(1))
        assert (refused.status, refused.error.code) == (503, "E.UNAVAILABLE")
        assert refused.headers["retry-after"] == "1"
        assert refused.error.retry_after == 1
        assert hub.get("/healthz").status == 200
        gate.open.set()
        assert [job.result(PATIENCE).status for job in waiting] == [200] * 4
    assert hub.submit(writers[4].message(1)).status == 200


class Broken(AllowAll):
    """A policy with a bug."""

    broken = True

    def not_primary(self, question: AdmissionQuestion) -> str | None:  # noqa: ARG002
        if self.broken:
            raise ZeroDivisionError("a bug in a policy")
        return None


def test_a_bug_in_a_policy_refuses_its_batch_and_the_hub_keeps_running(start_hub: StartHub) -> None:
    policy = Broken()
    hub = start_hub(policy=policy)
    alice = hub.writer()
    answer = hub.submit(alice.message(1))
    assert (answer.status, answer.error.code) == (503, "E.UNAVAILABLE")
    assert "ZeroDivision" not in answer.error.message
    policy.broken = False
    assert hub.submit(alice.message(1)).status == 200


def test_a_request_about_an_empty_label_does_not_fail_the_batch_around_it(hub: RunningHub) -> None:
    """A request about a label without entries is refused by itself."""
    alice = hub.writer()
    with ThreadPoolExecutor(8) as pool:
        wrong = [
            pool.submit(hub.post, "/v1/receipt", ReceiptRequest(label=alice.label, stream_seq=StreamSeq(99)))
            for _ in range(20)
        ]
        right = [pool.submit(hub.submit, hub.writer(f"w{n}").next()) for n in range(20)]
        assert {job.result(PATIENCE).status for job in right} == {200}
        assert {job.result(PATIENCE).status for job in wrong} == {404}


# --- failures of the pipeline itself


class BrokenClock(SetClock):
    """A clock extension that can start to fail."""

    broken = False

    def now(self) -> UnixTime:
        if self.broken:
            raise RuntimeError("the time server is gone")
        return super().now()


def test_with_a_failing_clock_the_hub_refuses_messages_and_is_not_ready(
    start_hub: StartHub,
) -> None:
    clock = BrokenClock()
    hub = start_hub(clock=clock)
    alice = hub.writer()
    clock.broken = True
    assert hub.submit(alice.message(1)).error.code == "E.UNAVAILABLE"
    assert "time server" in hub.get("/readyz").json["why"]
    assert hub.get("/metrics").status == 200
    assert hub.get(f"/tooling/cap/{alice.auth_ref.hex()}").error.code == "E.UNAVAILABLE"  # type: ignore[union-attr]
    clock.broken = False
    assert hub.get("/readyz").status == 200
    assert hub.accept(alice.message(1)).stream_seq == 1


def test_a_failed_read_in_the_sequencer_is_not_answered_as_absence(
    hub: RunningHub, alice: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "the disk does not answer")

    monkeypatch.setattr(Ledger, "cap", broken)
    answer = hub.get(f"/tooling/cap/{alice.auth_ref.hex()}")  # type: ignore[union-attr]
    assert (answer.status, answer.error.code) == (503, "E.UNAVAILABLE")


def test_an_observer_that_fails_loses_no_message(hub: RunningHub, alice: Writer) -> None:
    hub.hub._sequencer._observe = lambda *_about: 1 / 0  # type: ignore[assignment, return-value]
    assert hub.accept(alice.next()).stream_seq == 1
    assert hub.accept(alice.next()).stream_seq == 2


def test_an_answer_that_cannot_be_sent_makes_the_hub_not_ready_and_ends_it(
    hub: RunningHub, alice: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "outcome_of", lambda _ticket: 1 / 0)
    with pytest.raises(TimeoutError):
        request(hub.port, "POST", "/v1/submit", envelope(alice.next()), {"Content-Type": CBOR}, timeout=0.5)
    until(lambda: hub.hub.failure, "the failure is recorded")
    assert "sequencer failed" in hub.get("/readyz").json["why"]
    assert hub.get(f"/tooling/cap/{alice.auth_ref.hex()}").error.code == "E.UNAVAILABLE"  # type: ignore[union-attr]
    hub.stop()


def test_a_worker_that_fails_makes_the_hub_not_ready_and_ends_it(
    hub: RunningHub, alice: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Intake, "_hand_over", lambda *_about: 1 / 0)
    body = b"".join(envelope(alice.next()) for _ in range(2))
    with pytest.raises(TimeoutError):
        request(hub.port, "POST", "/v1/submit", body, {"Content-Type": CBOR_SEQ}, timeout=0.5)
    until(lambda: hub.hub.failure, "the failure is recorded")
    assert "intake failed" in hub.get("/readyz").json["why"]
    hub.stop()


def test_a_running_hub_needs_no_new_thread_for_messages_and_reads(
    hub: RunningHub, alice: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Process limits or memory may keep threads from starting at any time."""

    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    bodies = [b"".join(envelope(alice.next()) for _ in range(3)) for _ in range(3)]
    monkeypatch.setattr(threading.Thread, "start", refused)
    for body in bodies:
        assert hub.post("/v1/submit", body, kind=CBOR_SEQ).status == 200
    assert hub.get("/readyz").status == 200
    assert put(hub, alice, b"some bytes").error.code == "E.UNAVAILABLE"
    assert hub.do(lambda: hub.hub._intake.waiting) == 0
    hub.run(hub.server.stop())
    hub._stopped = True
    monkeypatch.undo()


def test_a_hub_whose_pipeline_fails_ends_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_directory(tmp_path / "data")
    config = main.parse([f"--data-dir={tmp_path / 'data'}", "--port=0", "--open"])

    async def fails_soon(server: Server) -> str:
        url = await start(server)
        server.hub._fail("the intake failed: a bug")
        return url

    start = Server.start
    monkeypatch.setattr(Server, "start", fails_soon)
    with pytest.raises(VeenError, match="the intake failed: a bug; see the log"):
        uvloop.run(main.serve(config))


def test_a_refused_message_gets_the_same_code_alone_and_in_a_group_on_a_poisoned_hub(
    hub: RunningHub, alice: Writer
) -> None:
    """I13: what the stateless checks refuse does not depend on the hub's storage."""
    hub.store._journal.poison("the disk failed")
    good, bad = alice.message(1), alice.message(1, sig=bytes(64))
    assert hub.submit(bad).error.code == "E.SIG"
    assert hub.submit(good).error.code == "E.UNAVAILABLE"
    answer = hub.post("/v1/submit", envelope(good) + envelope(bad), kind=CBOR_SEQ)
    codes = [ErrorEnvelope.decode(item).code for item in cbor.split_sequence(answer.body)]
    assert codes == ["E.UNAVAILABLE", "E.SIG"]
