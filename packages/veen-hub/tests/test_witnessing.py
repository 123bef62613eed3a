"""Witness rounds: real hubs against witnesses of two kinds, and against witnesses that misbehave."""

from __future__ import annotations

import base64
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from veen_core.ids import UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.tlog.add_checkpoint import SIZE_CONTENT_TYPE, parse_add_checkpoint
from veen_core.tlog.note import cosign, cosigned_at, parse_key
from veen_core.tlog.tree_head import SignedHead
from veen_hub.ops.hub_log.witness_link import ANSWER_SEC, MAX_ANSWER_BYTES
from veen_hub.witness.folder import WitnessFolder

from .certificates import Certificates
from .conftest import StartHub
from .hub_logs import AT_ONCE, HUB_VKEY, ORIGIN, cosigners, published, reason, wait_for_size
from .independent_witness import Answer, IndependentWitness
from .people import Writer
from .serving import RunningHub, SetClock, until
from .witnessing import WitnessProcess

W1, W2 = "witness.example/w1", "witness.example/w2"


@pytest.fixture
def witness() -> Iterator[IndependentWitness]:
    with IndependentWitness(W1, [HUB_VKEY]) as made:
        yield made


@pytest.fixture
def other() -> Iterator[IndependentWitness]:
    with IndependentWitness(W2, [HUB_VKEY]) as made:
        yield made


def watched_by(*witnesses: IndependentWitness, **more: Any) -> dict[str, Any]:
    """Settings of an open hub with these witnesses."""
    listed = [{"key": witness.vkey, "url": witness.url} for witness in witnesses]
    return {"gating": False, "hub_log__witnesses": listed, **AT_ONCE, **more}


def signs(hub: RunningHub) -> bool:
    return hub.status().not_signing is None


def write(hub: RunningHub, writer: Writer, size: int) -> SignedHead:
    """Write a message and wait until a hub checkpoint of this size is published."""
    until(lambda: signs(hub), "the hub signs")
    hub.accept(writer.next())
    return wait_for_size(hub, size)


def events(hub: RunningHub, caplog: pytest.LogCaptureFixture, name: str) -> list[dict[str, Any]]:  # noqa: ARG001
    return [record.__dict__["fields"] for record in caplog.records if record.getMessage() == name]


# --- rounds


def test_every_witness_cosigns_before_a_checkpoint_is_published(
    start_hub: StartHub, witness: IndependentWitness, other: IndependentWitness
) -> None:
    hub = start_hub(**watched_by(witness, other))
    alice = Writer("alice", hub.hub_id)
    for size in range(1, 12):
        signed = write(hub, alice, size)
        assert signed.head.size == size
        assert cosigners(signed) == {W1, W2}
        for each in (witness, other):
            key = parse_key(each.vkey)
            (line,) = filter(key.is_named_by, signed.note.signatures)
            assert key.is_valid(signed.note.text, line.signature)
            assert each.state[ORIGIN][0] == size
    assert hub.metric("veen_witness_rounds_total") >= 11
    assert hub.metric("veen_witness_failures_total", witness=W1) == 0
    assert set(witness.answered) == {200}, "consistency proofs and old sizes were right the first time"


def test_a_hub_takes_the_old_size_from_the_published_checkpoint_after_a_restart(
    start_hub: StartHub, witness: IndependentWitness
) -> None:
    hub = start_hub(**watched_by(witness))
    alice = Writer("alice", hub.hub_id)
    for size in (1, 2, 3):
        write(hub, alice, size)
    hub.stop()
    witness.answered.clear()
    hub = start_hub(**watched_by(witness))
    write(hub, alice, 4)
    assert set(witness.answered) == {200}


def test_a_witness_that_knows_less_than_expected_is_brought_up_to_date(
    start_hub: StartHub, witness: IndependentWitness
) -> None:
    """409 with a smaller size: the hub takes the size and asks once more."""
    hub = start_hub(**watched_by(witness))
    alice = Writer("alice", hub.hub_id)
    for size in (1, 2, 3):
        write(hub, alice, size)
    witness.forget(ORIGIN)
    witness.answered.clear()
    signed = write(hub, alice, 4)
    assert cosigners(signed) == {W1}
    assert witness.answered[:2] == [409, 200]


def test_a_witness_that_joins_late_gets_a_proof_from_its_own_size(
    start_hub: StartHub, witness: IndependentWitness, other: IndependentWitness
) -> None:
    hub = start_hub(**watched_by(witness))
    alice = Writer("alice", hub.hub_id)
    for size in range(1, 8):
        write(hub, alice, size)
    hub.stop()
    hub = start_hub(**watched_by(witness, other))
    until(lambda: cosigners(published(hub) or pytest.fail("gone")) == {W1, W2}, "both have cosigned")
    assert other.state[ORIGIN][0] == 7


def test_cosignatures_of_a_hub_that_does_not_change_are_renewed(
    start_hub: StartHub, witness: IndependentWitness
) -> None:
    hub = start_hub(**watched_by(witness, hub_log__recosign_sec=1))
    signed = write(hub, Writer("alice", hub.hub_id), 1)
    key = parse_key(witness.vkey)

    def cosigned() -> int:
        now = published(hub)
        assert now is not None
        assert now.head == signed.head
        (line,) = filter(key.is_named_by, now.note.signatures)
        return cosigned_at(line.signature)

    first = cosigned()
    until(lambda: cosigned() > first + 1, "the cosignature is renewed")


def test_a_dead_witness_delays_the_live_one_for_one_round_only(
    start_hub: StartHub, witness: IndependentWitness, other: IndependentWitness
) -> None:
    hub = start_hub(**watched_by(witness, other))
    alice = Writer("alice", hub.hub_id)
    write(hub, alice, 1)
    other.delay_sec = 60  # it takes requests and does not answer
    write(hub, alice, 2)
    started = time.monotonic()
    for size in range(3, 13):
        assert cosigners(write(hub, alice, size)) == {W1}
    assert time.monotonic() - started < ANSWER_SEC
    assert hub.metric("veen_witness_failures_total", witness=W2) >= 1
    assert hub.metric("veen_witness_failures_total", witness=W1) == 0


def test_no_submit_waits_for_a_witness(start_hub: StartHub, witness: IndependentWitness) -> None:
    hub = start_hub(**watched_by(witness))
    alice = Writer("alice", hub.hub_id)
    write(hub, alice, 1)
    witness.delay_sec = 60
    started = time.monotonic()
    for _ in range(50):
        hub.accept(alice.next())
    assert time.monotonic() - started < ANSWER_SEC / 2


def test_a_witness_that_comes_back_cosigns_the_checkpoint_that_is_published(
    start_hub: StartHub, witness: IndependentWitness, other: IndependentWitness
) -> None:
    hub = start_hub(**watched_by(witness, other))
    alice = Writer("alice", hub.hub_id)
    write(hub, alice, 1)
    other.answer = lambda _body: Answer(503, "maintenance\n")
    signed = write(hub, alice, 2)
    assert cosigners(signed) == {W1}
    other.answer = lambda _body: None
    until(lambda: cosigners(published(hub) or signed) == {W1, W2}, "the other witness has cosigned")
    assert published(hub) != signed
    answered = len(other.answered)
    write(hub, alice, 3)
    assert len(other.answered) > answered, "it is part of the rounds again"


def test_at_most_one_request_is_in_flight_per_witness(
    start_hub: StartHub, witness: IndependentWitness
) -> None:
    inside = [0]
    most = [0]

    def count(_body: bytes) -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.02)
        inside[0] -= 1

    hub = start_hub(**watched_by(witness))
    alice = Writer("alice", hub.hub_id)
    write(hub, alice, 1)
    witness.answer = count
    for _ in range(40):
        hub.accept(alice.next())
    until(lambda: hub.store.hub_log.moved == 0, "the hub log covers everything")
    wait_for_size(hub, hub.store.hub_log.size)
    assert most[0] == 1


def test_a_draining_hub_has_its_last_checkpoint_cosigned(
    start_hub: StartHub, witness: IndependentWitness
) -> None:
    settings = watched_by(witness, hub_log__interval_sec=2**31 - 1, hub_log__max_entries=2**31 - 1)
    hub = start_hub(**settings)
    until(lambda: signs(hub), "the hub signs")
    hub.accept(Writer("alice", hub.hub_id).next())
    hub.stop()
    hub = start_hub(**settings)
    signed = published(hub)
    assert signed is not None
    assert cosigners(signed) == {W1}


def test_an_unexpected_error_while_publishing_is_logged_and_does_not_end_the_rounds(
    start_hub: StartHub,
    witness: IndependentWitness,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hub = start_hub(**watched_by(witness))
    publish = hub.store.publish

    def fails_once(_signed: SignedHead) -> None:
        monkeypatch.setattr(hub.store, "publish", publish)
        raise RuntimeError("unexpected")

    monkeypatch.setattr(hub.store, "publish", fails_once)
    assert cosigners(write(hub, Writer("alice", hub.hub_id), 1)) == {W1}
    assert any(record.getMessage() == "publish_failed" for record in caplog.records)


def test_a_checkpoint_that_a_witness_contradicts_is_not_published(
    start_hub: StartHub, witness: IndependentWitness
) -> None:
    hub = start_hub(**watched_by(witness))
    alice = Writer("alice", hub.hub_id)
    write(hub, alice, 1)
    witness.state[ORIGIN] = (1_000, "A" * 43 + "=")
    hub.accept(alice.next())
    until(lambda: not signs(hub), "the witness has answered")
    assert hub.store.hub_log.size == 2
    hub.stop()
    assert hub.store.hub_log.published is not None
    assert hub.store.hub_log.published.head.size == 1


# --- cosignatures


def test_signatures_of_unknown_keys_are_ignored(start_hub: StartHub, witness: IndependentWitness) -> None:
    stranger = SigningKey(SigningSeed(os.urandom(32)))

    def add_more(body: bytes) -> Answer:
        text = parse_add_checkpoint(body).checkpoint.note.text
        own = witness.add_checkpoint(body)
        strange = cosign(stranger, "stranger.example/w", text, UnixTime(1_800_000_000)).line
        false_name = cosign(stranger, W1, text, UnixTime(1_800_000_000)).line
        return Answer(own.status, strange + false_name + own.body)

    hub = start_hub(**watched_by(witness))
    witness.answer = add_more
    signed = write(hub, Writer("alice", hub.hub_id), 1)
    assert cosigners(signed) == {W1}
    assert len(signed.note.signatures) == 2


def with_flipped_bit(witness: IndependentWitness) -> Callable[[bytes], Answer]:
    def answer(body: bytes) -> Answer:
        own = witness.add_checkpoint(body)
        dash, name, value = own.body.strip().split(" ")
        broken = bytearray(base64.b64decode(value))
        broken[-1] ^= 1
        return Answer(200, f"{dash} {name} {base64.b64encode(broken).decode()}\n")

    return answer


BAD_ANSWERS: dict[str, Callable[[IndependentWitness], Callable[[bytes], Answer]]] = {
    "a cosignature that does not verify": with_flipped_bit,
    "no signature": lambda _w: lambda _body: Answer(200, ""),
    "no signature line": lambda _w: lambda _body: Answer(200, "hello\n"),
    "no UTF-8": lambda _w: lambda _body: Answer(200, "\udcff\n"),
    "a very long answer": lambda _w: lambda _body: Answer(200, "x" * (MAX_ANSWER_BYTES + 1)),
    "404": lambda _w: lambda _body: Answer(404, "who are you\n"),
    "403": lambda _w: lambda _body: Answer(403, "no\n"),
    "400": lambda _w: lambda _body: Answer(400, "what\n"),
    "500": lambda _w: lambda _body: Answer(500, "oops\n"),
    "302": lambda _w: lambda _body: Answer(302, ""),
    "409 without a size": lambda _w: lambda _body: Answer(409, "another size\n"),
    "409 with a size that is none": lambda _w: lambda _body: Answer(409, "12 leaves\n", SIZE_CONTENT_TYPE),
    "409 and again 409": lambda _w: (
        lambda body: Answer(409, "0\n" if body.startswith(b"old 1\n") else "1\n", SIZE_CONTENT_TYPE)
    ),
}


@pytest.mark.parametrize("bad", BAD_ANSWERS)
def test_a_bad_answer_costs_the_cosignature_and_nothing_else(
    start_hub: StartHub, witness: IndependentWitness, other: IndependentWitness, bad: str
) -> None:
    hub = start_hub(**watched_by(witness, other))
    alice = Writer("alice", hub.hub_id)
    write(hub, alice, 1)
    other.answer = BAD_ANSWERS[bad](other)
    assert cosigners(write(hub, alice, 2)) == {W1}
    assert cosigners(write(hub, alice, 3)) == {W1}
    assert signs(hub)
    assert hub.metric("veen_witness_failures_total", witness=W2) >= 1


def test_a_witness_that_does_not_know_the_log_is_told_apart(
    start_hub: StartHub, caplog: pytest.LogCaptureFixture
) -> None:
    with IndependentWitness(W1, []) as stranger:
        hub = start_hub(**watched_by(stranger))
        until(lambda: events(hub, caplog, "memory_silent"), "it is logged")
        (event,) = events(hub, caplog, "memory_silent")
        assert "answers 404; add this hub's key to the witness" in event["error"]
        assert not signs(hub)


# --- contradictions


def stopped_with(hub: RunningHub, what: str, caplog: pytest.LogCaptureFixture) -> None:
    """The hub signs nothing any more, says so, and still serves reads."""
    until(lambda: what in (hub.status().not_signing or ""), f"it stops: {what}")
    answer = hub.submit(Writer("bob", hub.hub_id, to="other").next())
    assert answer.error.code == "E.UNAVAILABLE"
    assert what in str(answer.error.message)
    assert hub.get("/readyz").status == 503
    assert hub.get("/log/checkpoint").status == 200
    assert hub.metric("veen_signing") == 0
    (event,) = events(hub, caplog, "signing_stopped")
    assert "veen hub fork" in event["action"]


def test_a_witness_that_cosigned_more_than_the_hub_has_stops_it(
    start_hub: StartHub, witness: IndependentWitness, caplog: pytest.LogCaptureFixture
) -> None:
    hub = start_hub(**watched_by(witness))
    alice = Writer("alice", hub.hub_id)
    write(hub, alice, 1)
    witness.answer = lambda _body: Answer(409, "7\n", SIZE_CONTENT_TYPE)
    hub.accept(alice.next())
    stopped_with(hub, "remembers a hub log of size 7 and this one has size 2, 5 less", caplog)
    size = hub.store.hub_log.size
    hub.stop()
    assert start_hub(gating=False).store.hub_log.size == size, "not even the last checkpoint was signed"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(409, "another root\n"),
        Answer(409, "2\n", SIZE_CONTENT_TYPE),
    ],
    ids=["a text", "a size"],
)
def test_a_witness_that_knows_another_root_of_the_same_size_stops_the_hub(
    start_hub: StartHub, witness: IndependentWitness, answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    hub = start_hub(**watched_by(witness))
    alice = Writer("alice", hub.hub_id)
    write(hub, alice, 1)

    def contradict(body: bytes) -> Answer:
        return Answer(409, "2\n", SIZE_CONTENT_TYPE) if body.startswith(b"old 1\n") else answer

    witness.answer = contradict
    hub.accept(alice.next())
    stopped_with(hub, "remembers another root at size 2", caplog)


def test_a_witness_to_which_a_right_proof_does_not_lead_stops_the_hub(
    start_hub: StartHub, witness: IndependentWitness, caplog: pytest.LogCaptureFixture
) -> None:
    hub = start_hub(**watched_by(witness))
    alice = Writer("alice", hub.hub_id)
    write(hub, alice, 1)
    witness.state[ORIGIN] = (1, base64.b64encode(bytes(32)).decode())
    hub.accept(alice.next())
    stopped_with(hub, "remembers another root at size 1", caplog)


# --- settings


def test_an_address_where_nothing_listens_is_a_silent_witness(start_hub: StartHub) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with IndependentWitness(W1, [HUB_VKEY]) as witness:
            settings = watched_by(witness)
            settings["hub_log__witnesses"][0]["url"] = url
            hub = start_hub(**settings)
            until(lambda: "cannot be reached" in reason(hub), "it is noticed")
            assert hub.submit(Writer("alice", hub.hub_id).next()).error.code == "E.UNAVAILABLE"


def test_a_hub_is_cosigned_by_a_witness_process_over_tls(
    start_hub: StartHub, witness: IndependentWitness, tmp_path: Path, certificates: Certificates
) -> None:
    WitnessFolder(tmp_path / "witness").create("ours.example/w", SigningSeed(bytes(32)), [HUB_VKEY])
    cert, key = certificates.hub
    ours = WitnessProcess(tmp_path / "witness", f"--tls-cert={cert}", f"--tls-key={key}")
    settings = watched_by(witness)
    entry = {"key": ours.vkey, "url": ours.url, "ca": str(certificates.authority)}
    settings["hub_log__witnesses"].append(entry)
    try:
        hub = start_hub(**settings)
        alice = Writer("alice", hub.hub_id)
        for size in range(1, 6):
            assert cosigners(write(hub, alice, size)) == {W1, "ours.example/w"}
        hub.stop()
        del entry["ca"]
        hub = start_hub(**{**settings, "hub_log__memories": {"required": 2}})
        until(lambda: "cannot be reached" in reason(hub), "its certificate is refused")
    finally:
        ours.stop()


def test_the_age_of_each_witnesss_cosignature_is_a_metric(
    start_hub: StartHub, witness: IndependentWitness
) -> None:
    clock = SetClock(int(time.time()))
    hub = start_hub(**watched_by(witness), clock=clock)
    write(hub, Writer("alice", hub.hub_id), 1)
    clock.time += 500
    assert 499 <= hub.metric("veen_cosignature_age_seconds", witness=W1) <= 510
    hub.stop()
    hub = start_hub(**watched_by(witness), clock=clock)
    assert hub.metric("veen_cosignature_age_seconds", witness=W1) <= 510
