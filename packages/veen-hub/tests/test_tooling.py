"""Tooling: authorization of tokens, evidence of equivocation, signed requests of admins (H5, H18, H19)."""

from __future__ import annotations

import dataclasses
import logging

import pytest

from veen_core.cap import Rate, resign
from veen_core.checkpoint import Checkpoint
from veen_core.equivocation import Equivocation, Statement, evidence_of
from veen_core.hashing import H
from veen_core.ids import HubId, HubPk, Label, LeafHash, MmrRoot, Signature, StreamSeq, UnixTime
from veen_core.keys import SigningKey
from veen_core.limits import Limits
from veen_core.receipt import Receipt, sign_receipt
from veen_core.status import (
    CapStatus,
    CheckpointsResponse,
    LabelRequest,
    OkResponse,
    RetentionResponse,
)
from veen_hub.ops.anchors import AnchoredRoot, AnchorError, FileLedger

from .conftest import StartHub
from .people import ADMIN, BORN, HUB_KEY, Writer, admin_headers, signing_key
from .serving import CBOR, Answer, RunningHub, SetClock, until

PATH = "/tooling/checkpoint"


# --- tokens


def test_authorizing_again_returns_the_first_receipt(start_hub: StartHub) -> None:
    clock = SetClock()
    hub = start_hub(clock=clock)
    token = Writer("alice", hub.hub_id).token()
    first = hub.authorize(token)
    clock.time += 500
    assert hub.authorize(token) == first
    hub.stop()
    again = start_hub(clock=clock)
    assert again.authorize(token) == first
    other = again.authorize(Writer("bob", hub.hub_id).token())
    assert other.receipt.stream_seq == first.receipt.stream_seq + 1


def test_a_token_that_was_signed_again_is_another_one(hub: RunningHub) -> None:
    token = Writer("alice", hub.hub_id).token()
    longer = resign(ADMIN, token)
    assert hub.authorize(token).auth_ref != hub.authorize(longer).auth_ref


def test_a_shortened_chain_gains_neither_messages_nor_time(start_hub: StartHub) -> None:
    """A holder of a token with several links can present each prefix: all share one bucket and issued_at."""
    hub = start_hub()
    alice = Writer("alice", hub.hub_id)
    short = alice.token(ttl=100, rate=Rate(per_sec=0, burst=3))
    long = resign(ADMIN, short)
    alice.auth_ref = hub.authorize(long).auth_ref
    for _ in range(3):
        hub.accept(alice.next())
    hub.clock.time += 60
    again = hub.authorize(short)
    alice.auth_ref = again.auth_ref
    assert again.expires_at == BORN + 100
    assert hub.submit(alice.message(4)).detail == "CAP_RATE"
    hub.clock.time += 60
    assert hub.submit(alice.message(4)).detail == "CAP_TTL"


def test_a_token_authorized_before_a_restart_is_still_valid(start_hub: StartHub) -> None:
    hub = start_hub()
    alice = hub.writer()
    hub.accept(alice.next())
    hub.stop()
    again = start_hub()
    assert again.accept(alice.next()).stream_seq == 2


def test_an_issuer_that_the_configuration_names_is_accepted(start_hub: StartHub) -> None:
    notary = signing_key("notary")
    hub = start_hub(issuers=[notary.public.hex()])
    alice = Writer("alice", hub.hub_id)
    alice.auth_ref = hub.authorize(alice.token(issuer=notary)).auth_ref
    assert hub.submit(alice.next()).status == 200


def test_a_token_is_sent_as_cbor(hub: RunningHub) -> None:
    token = Writer("alice", hub.hub_id).token()
    answer = hub.post("/tooling/authorize", token.to_json().encode(), "application/json")
    assert (answer.status, answer.error.code) == (400, "E.BAD_REQUEST")


def test_the_hub_returns_the_status_of_a_token(hub: RunningHub) -> None:
    token = Writer("alice", hub.hub_id).token(ttl=77)
    given = hub.authorize(token)
    known = hub.get(f"/tooling/cap/{token.auth_ref.hex()}").read(CapStatus)
    assert known.known
    assert (known.issued_at, known.expires_at) == (given.receipt.hub_ts, given.receipt.hub_ts + 77)
    assert (known.issuer_pk, known.subject_pk) == (token.issuer_pk, token.subject_pk)
    unknown = hub.get("/tooling/cap/" + "00" * 32)
    assert (unknown.status, unknown.error.code) == (404, "E.NOT_FOUND")
    assert hub.get("/tooling/cap/nothing").error.code == "E.BAD_REQUEST"


def test_an_auth_ref_that_was_used_but_not_authorized_has_issued_at_and_no_token(start_hub: StartHub) -> None:
    """§6: without gating, the first message that uses an auth_ref fixes issued_at, once and for all."""
    clock = SetClock()
    hub = start_hub(gating=False, clock=clock)
    alice = Writer("alice", hub.hub_id)
    token = alice.token(ttl=100)
    alice.auth_ref = token.auth_ref
    began = hub.accept(alice.next()).hub_ts
    seen = hub.get(f"/tooling/cap/{token.auth_ref.hex()}").read(CapStatus)
    assert (seen.known, seen.issued_at, seen.expires_at) == (False, began, None)
    clock.time += 50
    assert hub.authorize(token).expires_at == began + 100


# --- who may


def signed(hub: RunningHub, path: str = PATH, body: bytes = b"", **changes: str) -> Answer:
    names = {name.replace("_", "-"): value for name, value in changes.items()}
    headers = admin_headers(hub.hub_id, path, body, hub.clock.time) | {"Content-Type": CBOR} | names
    return hub.call("POST", path, body, headers)


@pytest.mark.parametrize("path", ["/tooling/checkpoint", "/tooling/anchor", "/tooling/retention"])
def test_requests_that_change_state_need_an_admin(hub: RunningHub, path: str) -> None:
    answer = hub.call("POST", path)
    assert (answer.status, answer.error.code) == (401, "E.UNAUTHORIZED")


@pytest.mark.parametrize("name", ["VEEN-Admin-Ts", "VEEN-Admin-Sig"])
def test_an_incomplete_signature_is_refused(hub: RunningHub, name: str) -> None:
    headers = admin_headers(hub.hub_id, PATH, b"", hub.clock.time)
    del headers[name]
    assert hub.call("POST", PATH, b"", headers).error.code == "E.UNAUTHORIZED"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("VEEN_Admin_Ts", "yesterday"),
        ("VEEN_Admin_Ts", "-5"),
        ("VEEN_Admin_Ts", "9" * 30),
        ("VEEN_Admin_Ts", ""),
        ("VEEN_Admin_Sig", "zz"),
        ("VEEN_Admin_Sig", "00"),
    ],
)
def test_a_signature_that_cannot_be_read_is_unauthorized(hub: RunningHub, name: str, text: str) -> None:
    assert signed(hub, **{name: text}).error.code == "E.UNAUTHORIZED"


def test_an_admin_signature_is_valid_a_minute_before_and_after_its_time(hub: RunningHub) -> None:
    now = hub.clock.time
    for at, status in ((now - 61, 401), (now + 61, 401), (now - 60, 200), (now + 60, 200), (now, 200)):
        assert hub.admin(PATH, at=at).status == status, at - now


def test_a_signature_is_for_one_request_only(hub: RunningHub) -> None:
    now = hub.clock.time
    for headers in (
        admin_headers(hub.hub_id, "/tooling/retention", b"", now),
        admin_headers(hub.hub_id, PATH, LabelRequest().encode(), now),
        admin_headers(hub.hub_id, PATH, b"", now, method="PUT"),
        admin_headers(hub.hub_id, PATH, b"", now) | {"VEEN-Admin-Ts": str(now + 1)},
        admin_headers(hub.hub_id, PATH, b"", now, by=signing_key("mallory")),
        admin_headers(hub.hub_id, PATH, b"", now, by=HUB_KEY),
        admin_headers(HubId(H(b"another hub of the same admin")), PATH, b"", now),
    ):
        answer = hub.call("POST", PATH, b"", headers)
        assert (answer.status, answer.error.code) == (403, "E.FORBIDDEN")


def test_a_signed_request_is_carried_out_once(hub: RunningHub) -> None:
    headers = admin_headers(hub.hub_id, PATH, b"", hub.clock.time)
    assert hub.call("POST", PATH, b"", headers).status == 200
    again = hub.call("POST", PATH, b"", headers)
    assert (again.status, again.error.code) == (409, "E.CONFLICT")
    hub.clock.time += 61
    assert hub.call("POST", PATH, b"", headers).error.code == "E.UNAUTHORIZED"


def test_a_restart_does_not_forget_which_signed_requests_were_carried_out(start_hub: StartHub) -> None:
    hub = start_hub()
    headers = admin_headers(hub.hub_id, PATH, b"", hub.clock.time)
    assert hub.call("POST", PATH, b"", headers).status == 200
    hub.stop()
    again = start_hub().call("POST", PATH, b"", headers)
    assert (again.status, again.error.code) == (409, "E.CONFLICT")


def test_a_hub_without_an_admin_key_accepts_no_admin_request(start_hub: StartHub) -> None:
    hub = start_hub()
    hub.do(lambda: setattr(hub.hub.admission, "admins", frozenset()))
    assert signed(hub).error.code == "E.FORBIDDEN"


# --- checkpoints, retention, anchors


def test_a_checkpoint_now_covers_every_label_that_grew(hub: RunningHub) -> None:
    writers = [hub.writer("alice", to=f"stream {n}") for n in range(5)]
    for writer in writers:
        hub.accept(writer.next())
    made = hub.admin(PATH).read(CheckpointsResponse).checkpoints
    control = hub.status().control_label
    assert {c.label_curr for c in made} == {w.label for w in writers} | {control}
    hub.clock.time += 1
    assert hub.admin(PATH).read(CheckpointsResponse).checkpoints == ()


def test_a_checkpoint_of_one_label_is_its_latest(hub: RunningHub, alice: Writer) -> None:
    hub.accept(alice.next())
    asked = LabelRequest(label=alice.label).encode()
    (made,) = hub.admin(PATH, asked).read(CheckpointsResponse).checkpoints
    hub.clock.time += 1
    (same,) = hub.admin(PATH, asked).read(CheckpointsResponse).checkpoints
    assert made == same
    assert made.upto_seq == 1


def test_a_checkpoint_of_a_label_without_entries_is_not_found_and_affects_no_other_request(
    hub: RunningHub, alice: Writer
) -> None:
    answer = hub.admin(PATH, LabelRequest(label=Label(bytes(32))).encode())
    assert (answer.status, answer.error.code) == (404, "E.NOT_FOUND")
    assert hub.submit(alice.next()).status == 200


def test_a_body_that_is_no_label_is_a_bad_request(hub: RunningHub) -> None:
    assert hub.admin(PATH, b"\xff").error.code == "E.BAD_REQUEST"


def test_checkpoints_are_made_by_time_too(start_hub: StartHub) -> None:
    hub = start_hub(checkpoints__every_sec=1)
    alice = hub.writer()
    hub.accept(alice.next())

    def latest() -> Checkpoint | None:
        return hub.store.read.latest_checkpoint(alice.label)

    until(lambda: latest() is not None, "a checkpoint is made")
    assert (
        latest()
        == hub.admin(PATH, LabelRequest(label=alice.label).encode()).read(CheckpointsResponse).checkpoints[0]
    )


def test_a_retention_request_returns_how_much_was_pruned(start_hub: StartHub) -> None:
    clock = SetClock()
    limits = Limits(max_msg_bytes=2_048, max_chunk_bytes=65_536, max_checkpoint_interval=4)
    hub = start_hub(clock=clock, limits=limits, retention__streams={"orders": {"max_age_sec": 10}})
    orders, kept = hub.writer("alice"), hub.writer("bob", to="kept")
    for _ in range(9):
        hub.accept(orders.next())
        hub.accept(kept.next())
    assert hub.store.settle()
    clock.time += 11
    gone = hub.admin("/tooling/retention").read(RetentionResponse)
    assert (gone.chunks, gone.entries) == (2, 8)


def test_anchoring_needs_an_anchor(hub: RunningHub) -> None:
    answer = hub.admin("/tooling/anchor")
    assert (answer.status, answer.error.code) == (404, "E.NOT_FOUND")
    assert "anchor.backend" in answer.error.message


def test_an_anchor_request_writes_the_newest_checkpoints_to_the_ledger(start_hub: StartHub) -> None:
    hub = start_hub()
    ledger = FileLedger(hub.root.parent / "ledger")
    hub.stop()
    hub = start_hub(anchor=ledger)
    alice = hub.writer()
    receipts = [hub.accept(alice.next()) for _ in range(3)]
    hub.admin(PATH)
    done = hub.admin("/tooling/anchor").read(CheckpointsResponse).checkpoints
    (checkpoint,) = [c for c in done if c.label_curr == alice.label]
    assert checkpoint.mmr_root == receipts[-1].mmr_root
    assert hub.store.settle()
    anchor_ref = hub.store.read.anchor(alice.label, StreamSeq(3))
    assert anchor_ref is not None
    root = AnchoredRoot(
        hub_id=hub.hub_id,
        label=alice.label,
        upto_seq=StreamSeq(3),
        mmr_root=receipts[-1].mmr_root,
        epoch=checkpoint.epoch,
        ts=UnixTime(hub.clock.time),
    )
    assert hub.run(ledger.verify(root, anchor_ref))
    hub.clock.time += 1
    assert hub.admin("/tooling/anchor").read(CheckpointsResponse).checkpoints == ()


def test_a_failed_anchor_is_counted_and_repeated(start_hub: StartHub) -> None:
    class Flaky:
        down = True

        async def publish(self, root: AnchoredRoot) -> bytes:
            if self.down:
                raise AnchorError("the ledger is down")
            return root.encode()

        async def verify(self, root: AnchoredRoot, anchor_ref: bytes) -> bool:
            return root.encode() == anchor_ref

    flaky = Flaky()
    hub = start_hub(anchor=flaky)
    hub.accept(hub.writer().next())
    hub.admin(PATH)
    refused = hub.admin("/tooling/anchor")
    assert (refused.status, refused.headers["retry-after"]) == (503, "30")
    assert hub.metric("veen_anchor_fail_total") == 1
    flaky.down = False
    hub.clock.time += 1
    assert len(hub.admin("/tooling/anchor").read(CheckpointsResponse).checkpoints) == 2


# --- equivocation


def statement(leaf: bytes, key: SigningKey = HUB_KEY) -> Statement:
    receipt = Receipt(
        label=Label(bytes(32)),
        stream_seq=StreamSeq(1),
        leaf_hash=LeafHash(leaf * 32),
        mmr_root=MmrRoot(leaf * 32),
        hub_ts=UnixTime(1),
    )
    return Statement(hub_pk=HubPk(key.public), receipt=sign_receipt(key, receipt))


def test_evidence_of_two_histories_is_verified_counted_and_logged_as_critical(
    hub: RunningHub, caplog: pytest.LogCaptureFixture
) -> None:
    evidence = evidence_of(statement(b"a"), statement(b"b"))
    with caplog.at_level(logging.INFO, logger="veen.hub"):
        assert hub.post("/tooling/equivocation", evidence).read(OkResponse).ok
    (record,) = [r for r in caplog.records if r.getMessage() == "equivocation"]
    assert record.levelno == logging.CRITICAL
    assert record.fields["this_hub"] is True  # type: ignore[attr-defined]
    assert record.fields["hub_pk"] == HUB_KEY.public.hex()  # type: ignore[attr-defined]
    assert hub.metric("veen_equivocation_reports_total", whose="this hub") == 1


def test_evidence_against_another_hub_is_accepted(hub: RunningHub, caplog: pytest.LogCaptureFixture) -> None:
    other = signing_key("other hub")
    evidence = evidence_of(statement(b"a", other), statement(b"b", other))
    with caplog.at_level(logging.INFO, logger="veen.hub"):
        assert hub.post("/tooling/equivocation", evidence).status == 200
        assert hub.post("/tooling/equivocation", evidence).status == 200  # counted and told once
    (record,) = [r for r in caplog.records if r.getMessage() == "equivocation"]
    assert record.fields["this_hub"] is False  # type: ignore[attr-defined]
    assert record.levelno == logging.ERROR
    assert hub.metric("veen_equivocation_reports_total", whose="another") == 1


def test_evidence_that_proves_nothing_is_refused_and_not_counted(hub: RunningHub) -> None:
    good = evidence_of(statement(b"a"), statement(b"b"))
    unsigned = dataclasses.replace(good.first.receipt, hub_sig=Signature(bytes(64)))
    for wrong in (
        Equivocation(first=good.first, second=good.first),
        Equivocation(first=good.second, second=good.first),
        Equivocation(first=dataclasses.replace(good.first, receipt=unsigned), second=good.second),
    ):
        answer = hub.post("/tooling/equivocation", wrong)
        assert (answer.status, answer.error.code) == (400, "E.BAD_REQUEST")
    assert hub.post("/tooling/equivocation", b"\xa0").error.code == "E.BAD_REQUEST"
    for whose in ("this hub", "another"):
        assert hub.metric("veen_equivocation_reports_total", whose=whose) == 0
