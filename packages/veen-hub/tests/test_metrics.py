"""Metrics and logs: the names of OBS0 and spec-4, and never a payload or a secret."""

from __future__ import annotations

import json
import re

import pytest

from veen_core.api import ConsistencyRequest, ProofRequest
from veen_core.ids import StreamSeq
from veen_core.limits import Limits
from veen_hub.ops.anchors import FileLedger

from .conftest import StartHub, StartProcess
from .faults import SetPolicy
from .people import HUB_KEY, Writer, ciphertext, signing_key
from .serving import HubProcess, RunningHub, until
from .test_attachments import put

OBS0 = {
    "veen_submit_ok_total": "counter",
    "veen_submit_err_total": "counter",
    "veen_verify_latency_ms": "histogram",
    "veen_commit_latency_ms": "histogram",
    "veen_end_to_end_latency_ms": "histogram",
    "veen_queue_depth": "gauge",
    "veen_rate_limited_total": "counter",
    "veen_checkpoint_interval": "histogram",
    "veen_anchor_fail_total": "counter",
}
SPEC_4 = {
    "veen_stream_appends_total": "counter",  # message append count per stream
    "veen_checkpoints_total": "counter",  # checkpoint creation rate
    "veen_cap_checks_total": "counter",  # capability validation success and failure
    "veen_revocation_view_lag_seconds": "gauge",
    "veen_wal_bytes": "gauge",
    "veen_attachment_bytes_total": "counter",
    "veen_attachments_total": "counter",
}
CORE_12 = {"veen_fsync_latency_ms": "histogram", "veen_proof_latency_ms": "histogram"}


def kinds(hub: RunningHub) -> dict[str, str]:
    answer = hub.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", answer.body.decode(), re.MULTILINE))


def test_every_metric_of_the_specification_is_there_under_its_name(hub: RunningHub) -> None:
    found = kinds(hub)
    for name, kind in (OBS0 | SPEC_4 | CORE_12).items():
        assert found.get(name, found.get(name.removesuffix("_total"))) == kind, name


def test_metrics_move_with_what_happens(start_hub: StartHub) -> None:
    hub = start_hub(streams=["orders"], policy=SetPolicy())
    alice, bob = hub.writer("alice"), hub.writer("bob", to="elsewhere")
    for _ in range(5):
        hub.accept(alice.next())
    hub.accept(bob.next())
    hub.submit(alice.message(1))
    hub.post("/v1/submit", b"")
    hub.post("/tooling/authorize", Writer("x", hub.hub_id).token(issuer=signing_key("nobody")))
    hub.admin("/tooling/checkpoint")
    hub.post("/v1/proof", ProofRequest(label=alice.label, stream_seq=StreamSeq(1)))
    hub.post(
        "/v1/consistency", ConsistencyRequest(label=alice.label, from_seq=StreamSeq(1), to_seq=StreamSeq(2))
    )
    put(hub, alice, b"12345")
    for name, labels, value in (
        ("veen_submit_ok_total", {}, 6),
        ("veen_submit_err_total", {"code": "E.SEQ"}, 1),
        ("veen_submit_err_total", {"code": "E.FORMAT"}, 1),
        ("veen_stream_appends_total", {"stream": "orders"}, 5),
        ("veen_stream_appends_total", {"stream": "other"}, 3),
        ("veen_cap_checks_total", {"outcome": "ok"}, 2),
        ("veen_cap_checks_total", {"outcome": "issuer"}, 1),
        ("veen_proof_latency_ms_count", {}, 2),
        ("veen_attachments_total", {}, 1),
        ("veen_attachment_bytes_total", {}, 5),
        ("veen_queue_depth", {}, 0),
        ("veen_revocation_view_lag_seconds", {}, 7),
    ):
        assert hub.metric(name, **labels) == value, (name, labels)
    until(lambda: hub.metric("veen_checkpoints_total") == 3, "checkpoints are counted")
    assert hub.metric("veen_checkpoint_interval_sum") == 8
    for name in ("verify", "commit", "end_to_end", "fsync"):
        assert hub.metric(f"veen_{name}_latency_ms_count") > 0, name
        assert hub.metric(f"veen_{name}_latency_ms_sum") > 0, name
    assert hub.metric("veen_batch_messages_count") > 0


def test_a_hub_is_counted_as_ready_before_the_first_probe(start_hub: StartHub) -> None:
    assert start_hub().metric("veen_ready") == 1
    stale = SetPolicy()
    stale.says_stale = "the view is old"
    assert start_hub("another", policy=stale).metric("veen_ready") == 0


def test_attachments_are_counted_from_the_first_not_from_the_last_start(start_hub: StartHub) -> None:
    hub = start_hub()
    for content in (b"12345", b"678"):
        put(hub, hub.writer(), content)
    hub.stop()
    hub = start_hub()
    put(hub, hub.writer("bob"), b"9")
    assert hub.metric("veen_attachments_total") == 3
    assert hub.metric("veen_attachment_bytes_total") == 9


class NeverFolded(SetPolicy):
    def describe(self) -> dict[str, str]:
        return {"level": "hardened", "lag_sec": "never"}


def test_a_view_that_was_never_folded_has_no_finite_lag(start_hub: StartHub) -> None:
    assert start_hub(policy=NeverFolded()).metric("veen_revocation_view_lag_seconds") == float("inf")


def stages(hub: RunningHub) -> dict[str, float]:
    names = ("accepted", "durable", "applied", "checkpointed", "anchored")
    return {name: hub.metric("veen_stage_entries", stage=name) for name in names}


def test_the_lag_of_a_stage_is_the_difference_of_two_gauges(start_hub: StartHub) -> None:
    hub = start_hub()
    hub.stop()
    hub = start_hub(anchor=FileLedger(hub.root.parent / "ledger"))
    until(lambda: hub.get("/readyz").status == 200, "the ledger, which is a memory, has been asked")
    alice = hub.writer()
    for _ in range(9):
        hub.accept(alice.next())
    assert hub.store.settle()
    assert stages(hub) == {"accepted": 10, "durable": 10, "applied": 10, "checkpointed": 0, "anchored": 0}
    hub.admin("/tooling/checkpoint")
    until(lambda: stages(hub)["checkpointed"] == 10, "they are checkpointed")
    hub.admin("/tooling/anchor")
    until(lambda: stages(hub)["anchored"] == 10, "and anchored")
    hub.accept(alice.next())
    assert hub.store.settle()
    assert stages(hub) == {"accepted": 11, "durable": 11, "applied": 11, "checkpointed": 10, "anchored": 10}


def test_checkpoints_that_full_chunks_bring_are_counted_and_anchored(start_hub: StartHub) -> None:
    """Nobody asks for those: they come with the entry that begins the next chunk."""
    hub = start_hub(limits=Limits(max_checkpoint_interval=4))
    hub.stop()
    hub = start_hub(anchor=FileLedger(hub.root.parent / "ledger"))
    alice = hub.writer()
    for _ in range(10):
        hub.accept(alice.next())
    until(lambda: stages(hub)["durable"] == 11, "all are counted")
    assert stages(hub)["checkpointed"] == 8
    assert hub.metric("veen_checkpoints_total") == 2
    assert hub.metric("veen_checkpoint_interval_sum") == 8
    hub.admin("/tooling/anchor")
    assert hub.store.read.anchor(alice.label, StreamSeq(8)) is not None
    until(lambda: stages(hub)["anchored"] == 8, "and anchored")
    hub.clock.time += 1
    hub.admin("/tooling/checkpoint")
    until(lambda: stages(hub)["checkpointed"] == 11, "nothing is behind any more")


def test_after_a_restart_the_lag_of_checkpoints_is_still_known(start_hub: StartHub) -> None:
    hub = start_hub()
    alice = hub.writer()
    for _ in range(4):
        hub.accept(alice.next())
    hub.stop()
    hub = start_hub()
    left = {"accepted": 5, "durable": 5, "applied": 5, "checkpointed": 0, "anchored": 0}
    until(lambda: stages(hub) == left, "the labels of the last run are found")
    hub.accept(alice.next())
    assert hub.store.settle()
    hub.admin("/tooling/checkpoint")
    until(lambda: stages(hub)["durable"] == stages(hub)["checkpointed"], "no entry is without a checkpoint")
    assert stages(hub)["durable"] == stages(hub)["applied"]


def test_after_a_restart_the_lag_of_anchors_is_still_known(start_hub: StartHub) -> None:
    hub = start_hub()
    hub.stop()
    ledger = FileLedger(hub.root.parent / "ledger")
    hub = start_hub(anchor=ledger)
    alice = hub.writer()
    for anchored in (True, False):
        for _ in range(3):
            hub.accept(alice.next())
        hub.admin("/tooling/checkpoint")
        if anchored:
            hub.admin("/tooling/anchor")
        hub.clock.time += 1
    hub.accept(alice.next())
    hub.stop()
    hub = start_hub(anchor=ledger, clock=hub.clock)
    left = {"accepted": 4, "durable": 4, "applied": 4, "checkpointed": 3, "anchored": 0}
    until(lambda: stages(hub) == left, "the labels of the last run are found")
    hub.admin("/tooling/anchor")
    until(lambda: stages(hub)["anchored"] == 3, "what waited for an anchor does not any more")
    hub.clock.time += 1
    hub.admin("/tooling/checkpoint")
    hub.admin("/tooling/anchor")
    until(lambda: set(stages(hub).values()) == {4}, "nothing is behind")


# --- logs


SECRET_WORDS = b"the quick brown payload 5f3a"


@pytest.fixture
def talkative(start_process: StartProcess) -> HubProcess:
    return start_process(
        "data",
        "--open",
        "--role=tenant",
        "--log-level=debug",
        environment={"VEEN_TENANT_ID": "acme", "VEEN_UNIVERSE_ID": "stage-1"},
    )


def test_every_line_is_an_object_with_the_fields_that_operators_need(talkative: HubProcess) -> None:
    alice = Writer("alice", talkative.status().identity.hub_id)
    talkative.accept(alice.next())
    talkative.submit(alice.message(1))
    talkative.stop()
    lines = talkative.lines
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["ts"])
        assert line["level"] in {"debug", "info", "warn", "error", "critical"}
        assert (line["component"], line["role"], line["tenant_id"]) == ("hub", "tenant", "acme")
        assert line["universe_id"] == "stage-1"
        assert line["event"]
    (accepted,) = [line for line in lines if line["event"] == "accepted"]
    for field in (
        "label",
        "client_id_prefix",
        "stream_seq",
        "leaf_hash_prefix",
        "bytes_in",
        "bytes_out",
        "verify_ms",
        "commit_ms",
    ):
        assert field in accepted, field
    assert accepted["label"] == alice.label.hex()
    assert accepted["client_id_prefix"] == alice.client_id.hex()[:8]
    (refused,) = [line for line in lines if line["event"] == "refused"]
    assert refused["code"] == "E.SEQ"
    assert refused["request_id"]


def test_no_line_ever_holds_a_payload_or_a_secret(talkative: HubProcess) -> None:
    alice = Writer("alice", talkative.status().identity.hub_id)
    sealed = ciphertext(SECRET_WORDS)
    talkative.accept(alice.next(ciphertext=sealed))
    for wire in (
        alice.message(1, ciphertext=sealed),
        alice.message(2, ciphertext=sealed, sig=bytes(64)),
        alice.message(2, ciphertext=SECRET_WORDS),
        alice.message(2, ciphertext=sealed, ver=SECRET_WORDS.decode()),
        alice.message(2, ciphertext=sealed)[:-40],
        alice.message(2, ciphertext=sealed) + SECRET_WORDS,
    ):
        assert talkative.submit(wire).status >= 400
    for body, kind in (
        (b'{"ver": 1, "msg": ["' + SECRET_WORDS + b'"]}', "application/json"),
        (b'{"' + SECRET_WORDS + b'": 1}', "application/json"),
        (SECRET_WORDS, "application/cbor"),
        (b"\x78\x1c" + SECRET_WORDS, "application/cbor"),
        (b"\xa1\x78\x1c" + SECRET_WORDS + b"\x01", "application/cbor-seq"),
    ):
        for path in ("/v1/submit", "/v1/stream", "/tooling/authorize", "/tooling/equivocation"):
            talkative.post(path, body, kind)
    talkative.stop()
    logged = talkative.log.read_bytes()
    words = SECRET_WORDS.decode()
    for told in (words, words[:12], SECRET_WORDS.hex(), sealed.hex()[:64], sealed.hex()[-40:]):
        assert told.encode() not in logged, told
    assert HUB_KEY.seed.hex().encode() not in logged
    assert json.loads(logged.splitlines()[-1])


def test_at_info_messages_are_summarized_not_logged_one_by_one(start_process: StartProcess) -> None:
    hub = start_process("data", "--open")
    alice = Writer("alice", hub.status().identity.hub_id)
    for _ in range(5):
        hub.accept(alice.next())
    hub.submit(alice.message(1))
    hub.stop()
    assert not [line for line in hub.lines if line["event"] in {"accepted", "refused"}]
    (summary,) = [line for line in hub.lines if line["event"] == "submits"]
    assert (summary["accepted"], summary["refused"]) == (5, {"E.SEQ": 1})
