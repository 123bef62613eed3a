"""Every row of the admission table, by a real request; and their order, by pairs (§8.1, §8.2, H1).

``ATT_ROOT`` cannot be triggered: att_root is in the encrypted payload header, which a hub never opens (§4.5,
§8.3); clients check it (I5), and the hub says so in ``cannot_enforce``. ``CAP_INVALID`` is a token's: a token
whose chain does not verify is refused when it is authorized, and none is kept, so that no message can be
refused for it later.
"""

from __future__ import annotations

import dataclasses
import http.client
import re
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from veen_core import cbor, rejection
from veen_core import pow as proof_of_work
from veen_core.api import ErrorEnvelope, SubmitRequest, SubmitResponse
from veen_core.cap import CapToken, Rate
from veen_core.hashing import H
from veen_core.ids import AuthRef, Label, Signature, UnixTime
from veen_core.limits import Limits
from veen_core.msg import Msg
from veen_core.profile import PROFILES
from veen_core.rejection import HTTP_STATUS, TABLE, Rejection
from veen_core.status import AuthorizeResponse
from veen_hub.admission import stateless, table
from veen_hub.admission.class_rates import ClassRates

from .conftest import StartHub
from .faults import FAULTS, LIMITS, NOTARY, GrantingPolicy, SetPolicy, can_both_be_wrong, play
from .people import SEALED, Writer, ciphertext, envelope, signing_key
from .serving import CBOR, CBOR_SEQ, JSON, Answer, RunningHub, SetClock

NOT_A_MESSAGES = {rejection.ATT_ROOT, rejection.CAP_INVALID}
PAIRS = [(a, b) for a, b in combinations(FAULTS, 2) if can_both_be_wrong(a, b)]


def is_refused_by(row: Rejection, answer: Answer) -> None:
    error = answer.error
    assert error.detail is not None, error
    assert (error.detail.detail_enum, error.detail.stage, error.code) == (
        row.detail,
        row.stage.value,
        row.code.value,
    ), error.message
    assert not re.search(r"\b17\d{8}\b", error.message), "a time in seconds since 1970"
    assert answer.status == HTTP_STATUS[row.code]
    assert error.request_id is not None
    assert answer.headers["veen-request-id"] == error.request_id


# --- the table


def test_the_code_has_one_rule_per_row_in_the_tables_order() -> None:
    in_code = [
        rejection.SIZE_PREFILTER,
        rejection.PREFILTER_REJECT,
        *(stateless.DECODING[fault] for fault in sorted(stateless.DECODING)),
        *(row for row, _holds in stateless.STATELESS),
        *(row for row, _failure in table.STATEFUL),
    ]
    assert in_code == [row for row in TABLE if row not in NOT_A_MESSAGES]


def test_every_row_that_a_message_can_break_has_a_request_that_breaks_it() -> None:
    assert list(FAULTS) == [row for row in TABLE if row not in NOT_A_MESSAGES]


def test_a_message_without_a_fault_is_accepted(start_hub: StartHub) -> None:
    assert play(start_hub, []).read(SubmitResponse).receipt.stream_seq == 1


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row.detail)
def test_a_request_triggers_exactly_its_row(start_hub: StartHub, row: Rejection) -> None:
    is_refused_by(row, play(start_hub, [row]))


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=lambda row: row.detail)
def test_of_two_faults_the_earlier_row_wins(start_hub: StartHub, first: Rejection, second: Rejection) -> None:
    is_refused_by(first, play(start_hub, [second, first]))


def test_a_message_with_every_fault_is_refused_by_its_size(start_hub: StartHub) -> None:
    rows = [row for row in FAULTS if row is not rejection.CAP_MISSING]
    is_refused_by(rejection.SIZE_PREFILTER, play(start_hub, rows))


def test_a_refused_message_changes_nothing(hub: RunningHub, alice: Writer) -> None:
    hub.accept(alice.next())
    for wire in (
        alice.message(1),
        alice.message(9),
        alice.message(2, prev_ack=7),
        alice.message(2, sig=bytes(64)),
    ):
        assert hub.submit(wire).status == 409
    assert hub.accept(alice.next()).stream_seq == 2


# --- the prefilter


@pytest.fixture
def small_hub(start_hub: StartHub) -> RunningHub:
    return start_hub(limits=LIMITS)


def test_a_message_as_large_as_the_limit_is_accepted(small_hub: RunningHub) -> None:
    alice = small_hub.writer()
    room = LIMITS.max_msg_bytes - len(alice.message(1)) + len(SEALED) - len(ciphertext(b""))
    largest = max(
        (alice.message(1, ciphertext=ciphertext(bytes(n))) for n in range(room - 4, room + 1)),
        key=lambda wire: len(wire) * (len(wire) <= LIMITS.max_msg_bytes),
    )
    assert len(largest) == LIMITS.max_msg_bytes
    assert small_hub.submit(largest).status == 200


def test_a_message_just_over_the_limit_is_a_field_too_large(small_hub: RunningHub) -> None:
    alice = small_hub.writer()
    over = LIMITS.max_msg_bytes - len(alice.message(1)) + len(SEALED)
    wire = alice.message(1, ciphertext=ciphertext(bytes(over - 32)))
    assert LIMITS.max_msg_bytes < len(wire) < LIMITS.max_msg_bytes + 64
    is_refused_by(rejection.FIELD_SIZE, small_hub.submit(wire))


def test_content_length_is_checked_before_a_byte_is_sent(small_hub: RunningHub) -> None:
    headers = {"Content-Type": CBOR, "Content-Length": "99999999999"}
    is_refused_by(rejection.SIZE_PREFILTER, small_hub.call("POST", "/v1/submit", None, headers))


def test_a_chunked_body_is_refused_once_it_exceeds_the_cap(small_hub: RunningHub) -> None:
    def parts() -> Iterator[bytes]:
        yield from [bytes(512)] * 8

    answer = small_hub.call("POST", "/v1/submit", parts(), {"Content-Type": CBOR})
    is_refused_by(rejection.SIZE_PREFILTER, answer)


@pytest.mark.parametrize(
    ("allow", "deny", "may"),
    [
        ([], ["127.0.0.0/8"], False),
        (["10.0.0.0/8"], [], False),
        (["127.0.0.0/8"], ["127.0.0.1/32"], False),
        (["127.0.0.0/8"], ["10.0.0.0/8"], True),
        (["::1/128", "127.0.0.1/32"], [], True),
    ],
    ids=["denied", "not allowed", "denied wins", "allowed", "listed among others"],
)
def test_addresses_are_allowed_and_denied(
    start_hub: StartHub, allow: list[str], deny: list[str], may: bool
) -> None:
    hub = start_hub(network__allow=allow, network__deny=deny)
    answer = hub.submit(hub.writer().next())
    if may:
        assert answer.status == 200
    else:
        is_refused_by(rejection.PREFILTER_REJECT, answer)


def cookie(hub: RunningHub, wire: bytes, difficulty: int) -> str:
    challenge = proof_of_work.challenge(hub.status().pow_salt, wire)
    return proof_of_work.solve(challenge, difficulty).encode().hex()


@pytest.fixture
def working_hub(start_hub: StartHub) -> RunningHub:
    return start_hub(pow__difficulty=6)


def test_a_cookie_for_the_message_is_accepted_and_the_status_names_the_difficulty(
    working_hub: RunningHub,
) -> None:
    alice = working_hub.writer()
    assert working_hub.status().pow_difficulty == 6
    wire = alice.next()
    assert working_hub.submit(wire, VEEN_PoW=cookie(working_hub, wire, 6)).status == 200


def test_a_cookie_is_valid_in_its_hour_and_the_next_one(
    start_hub: StartHub,
) -> None:
    clock = SetClock()
    hub = start_hub(pow__difficulty=4, clock=clock)
    alice = hub.writer()
    wires = [alice.next(), alice.next()]
    cookies = [cookie(hub, wire, 4) for wire in wires]
    clock.time += 3_600
    assert hub.submit(wires[0], VEEN_PoW=cookies[0]).status == 200
    clock.time += 3_600
    is_refused_by(rejection.PREFILTER_REJECT, hub.submit(wires[1], VEEN_PoW=cookies[1]))


@pytest.mark.parametrize("wrong", ["too weak", "another message's", "claims more", "not hex", "not a cookie"])
def test_an_invalid_cookie_is_refused(working_hub: RunningHub, wrong: str) -> None:
    alice = working_hub.writer()
    wire, other = alice.message(1), alice.message(2)
    challenge = proof_of_work.challenge(working_hub.status().pow_salt, wire)
    lazy = next(n for n in range(1_000) if proof_of_work.work_of(challenge, n) < 6)
    claims = dataclasses.replace(proof_of_work.solve(challenge, 0), nonce=lazy, difficulty=6)
    header = {
        "too weak": cookie(working_hub, wire, 3),
        "another message's": cookie(working_hub, other, 6),
        "claims more": claims.encode().hex(),
        "not hex": "zz",
        "not a cookie": "a0",
    }[wrong]
    is_refused_by(rejection.PREFILTER_REJECT, working_hub.submit(wire, VEEN_PoW=header))


def test_proof_of_work_is_checked_before_anything_is_decoded(working_hub: RunningHub) -> None:
    is_refused_by(rejection.PREFILTER_REJECT, working_hub.post("/v1/submit", b"\xff not CBOR"))


def test_difficulty_rises_with_the_queue(start_hub: StartHub) -> None:
    hub = start_hub(pow__difficulty=2, pow__max_difficulty=10, max_waiting=100)
    room = hub.hub.waiting_room
    for waiting, expected in ((0, 2), (50, 6), (100, 10)):
        hub.do(lambda waiting=waiting: setattr(room, "waiting", waiting))
        assert hub.status().pow_difficulty == expected
    hub.do(lambda: setattr(room, "waiting", 0))


# --- structure


CROOKED = {
    "an item too few": lambda wire: envelope(b"\x89" + wire[1:-66]),
    "an indefinite array": lambda wire: envelope(b"\x9f" + wire[1:] + b"\xff"),
    "a long integer": lambda wire: envelope(wire[:1] + b"\x18\x01" + wire[2:]),
    "a tag": lambda wire: envelope(b"\xc1" + wire),
    "nothing": lambda _wire: b"",
    "no envelope": lambda wire: wire,
    "an unknown key": lambda wire: b"\xa3\x01\x01\x02" + wire + b"\x03\x00",
    "keys out of order": lambda wire: b"\xa2\x02" + wire + b"\x01\x01",
    "a text where bytes belong": lambda wire: envelope(wire.replace(b"\x58\x20", b"\x78\x20", 1)),
    "only its half": lambda wire: envelope(wire[: len(wire) // 2]),
}


@pytest.mark.parametrize("crooked", CROOKED)
def test_bytes_that_are_no_message_are_invalid_cbor(hub: RunningHub, alice: Writer, crooked: str) -> None:
    answer = hub.post("/v1/submit", CROOKED[crooked](alice.message(1)))
    is_refused_by(rejection.CBOR_INVALID, answer)


@pytest.mark.parametrize("field", ["profile_id", "label", "client_id", "auth_ref", "ct_hash"])
def test_a_field_of_another_length_is_refused_by_field_size(
    hub: RunningHub, alice: Writer, field: str
) -> None:
    for size in (0, 31, 33):
        is_refused_by(rejection.FIELD_SIZE, hub.submit(alice.message(1, **{field: bytes(size)})))


def test_the_ciphertexts_own_lengths_are_bounds_too(hub: RunningHub, alice: Writer) -> None:
    head = bytes(32)
    for lengths in ((20_000, 0), (0, 2_000_000), (10, 10)):
        sealed = head + lengths[0].to_bytes(4, "big") + lengths[1].to_bytes(4, "big")
        is_refused_by(rejection.FIELD_SIZE, hub.submit(alice.message(1, ciphertext=sealed)))


def test_padding_that_is_not_zero_is_refused(hub: RunningHub, alice: Writer) -> None:
    is_refused_by(rejection.FIELD_SIZE, hub.submit(alice.message(1, ciphertext=SEALED + b"\x00\x01")))


def test_an_envelope_of_another_version_is_refused_by_version(hub: RunningHub, alice: Writer) -> None:
    is_refused_by(rejection.VERSION, hub.post("/v1/submit", b"\xa2\x01\x02\x02" + alice.message(1)))


def test_json_is_refused_by_the_same_rows(hub: RunningHub, alice: Writer) -> None:
    good = SubmitRequest(msg=Msg.decode(alice.message(1))).to_json()
    short = good.replace(alice.label.hex(), alice.label.hex()[2:])
    for text, row in (
        (good.replace('"ver":1', '"ver":2', 1), rejection.VERSION),
        (good[:-1] + ',"more":1}', rejection.CBOR_INVALID),
        (short, rejection.FIELD_SIZE),
        ("{", rejection.CBOR_INVALID),
    ):
        is_refused_by(row, hub.post("/v1/submit", text.encode(), JSON))


# --- authority


def test_a_token_whose_chain_does_not_verify_is_invalid(hub: RunningHub) -> None:
    alice = Writer("alice", hub.hub_id)
    forged = dataclasses.replace(alice.token(), sig_chain=(Signature(bytes(64)),))
    is_refused_by(rejection.CAP_INVALID, hub.post("/tooling/authorize", forged))


@pytest.mark.parametrize(
    "wrong", ["no signature", "nine signatures", "no stream", "streams out of order", "too fast"]
)
def test_a_token_that_breaks_a_rule_is_invalid(hub: RunningHub, wrong: str) -> None:
    token = Writer("alice", hub.hub_id).token(streams=["a", "b"])
    allow = token.allow
    broken = {
        "no signature": dataclasses.replace(token, sig_chain=()),
        "nine signatures": dataclasses.replace(token, sig_chain=token.sig_chain * 9),
        "no stream": dataclasses.replace(token, allow=dataclasses.replace(allow, stream_ids=())),
        "streams out of order": dataclasses.replace(
            token, allow=dataclasses.replace(allow, stream_ids=allow.stream_ids[::-1])
        ),
        "too fast": dataclasses.replace(
            token, allow=dataclasses.replace(allow, rate=Rate(per_sec=10**9, burst=1))
        ),
    }[wrong]
    is_refused_by(rejection.CAP_INVALID, hub.post("/tooling/authorize", broken))


def test_an_invalid_chain_comes_before_an_unknown_issuer(hub: RunningHub) -> None:
    alice = Writer("alice", hub.hub_id)
    by_notary = alice.token(issuer=NOTARY)
    is_refused_by(rejection.CAP_ISSUER, hub.post("/tooling/authorize", by_notary))
    forged = dataclasses.replace(by_notary, sig_chain=(Signature(bytes(64)),))
    is_refused_by(rejection.CAP_INVALID, hub.post("/tooling/authorize", forged))


def test_bytes_that_are_no_token_are_invalid_cbor(hub: RunningHub) -> None:
    is_refused_by(rejection.CBOR_INVALID, hub.post("/tooling/authorize", b"\xa0"))
    is_refused_by(rejection.SIZE_PREFILTER, hub.post("/tooling/authorize", bytes(70_000)))


def test_an_auth_ref_that_was_never_authorized_is_refused_by_cap_missing(hub: RunningHub) -> None:
    alice = Writer("alice", hub.hub_id, auth_ref=AuthRef(bytes(32)))
    is_refused_by(rejection.CAP_MISSING, hub.submit(alice.next()))


def test_an_open_hub_needs_no_token_but_enforces_one_that_is_sent(start_hub: StartHub) -> None:
    hub = start_hub(gating=False)
    alice = Writer("alice", hub.hub_id)
    assert hub.submit(alice.next()).status == 200
    expires = hub.authorize(alice.token(ttl=5))
    alice.auth_ref = expires.auth_ref
    assert hub.submit(alice.next()).status == 200
    hub.clock.time += 6
    is_refused_by(rejection.CAP_TTL, hub.submit(alice.next()))


def test_a_token_is_valid_to_its_last_second_counted_from_its_receipt(start_hub: StartHub) -> None:
    clock = SetClock()
    hub = start_hub(clock=clock)
    alice = Writer("alice", hub.hub_id)
    token = alice.token(ttl=10)
    given = hub.authorize(token)
    alice.auth_ref = given.auth_ref
    assert given.expires_at == given.receipt.hub_ts + 10
    clock.time = given.expires_at
    assert hub.submit(alice.next()).status == 200
    clock.time += 1
    assert hub.authorize(token).expires_at == given.expires_at  # asking again does not renew it (H5)
    is_refused_by(rejection.CAP_TTL, hub.submit(alice.message(2)))


def test_a_rate_is_a_bucket_of_whole_seconds_and_its_refusal_has_retry_after(start_hub: StartHub) -> None:
    clock = SetClock()
    hub = start_hub(clock=clock)
    alice = Writer("alice", hub.hub_id)
    alice.auth_ref = hub.authorize(alice.token(rate=Rate(per_sec=2, burst=3))).auth_ref
    assert [hub.submit(alice.next()).status for _ in range(3)] == [200] * 3
    answer = hub.submit(alice.message(4))
    is_refused_by(rejection.CAP_RATE, answer)
    assert answer.headers["retry-after"] == "1"
    assert answer.error.retry_after == 1
    clock.time += 1
    assert [hub.submit(alice.next()).status for _ in range(3)] == [200, 200, 429]
    assert hub.metric("veen_rate_limited_total") == 2


def test_only_accepted_messages_use_up_the_rate(start_hub: StartHub) -> None:
    hub = start_hub()
    alice = Writer("alice", hub.hub_id)
    alice.auth_ref = hub.authorize(alice.token(rate=Rate(per_sec=1, burst=2))).auth_ref
    assert [hub.submit(alice.message(9)).status for _ in range(5)] == [409] * 5
    assert hub.submit(alice.next()).status == 200


def test_a_rate_of_the_policy_replaces_the_tokens_own(start_hub: StartHub) -> None:
    """LCLASS0 6.2: a class may allow less, or more, and a writer without a rate gets one."""
    clock, policy = SetClock(), SetPolicy()
    hub = start_hub(clock=clock, policy=policy)
    alice, bob = Writer("alice", hub.hub_id), hub.writer("bob")
    alice.auth_ref = hub.authorize(alice.token(rate=Rate(per_sec=2, burst=4))).auth_ref
    policy.says_rate = Rate(per_sec=1, burst=2)
    for writer in (alice, bob):
        assert [hub.submit(writer.next()).status for _ in range(2)] == [200] * 2
        is_refused_by(rejection.CAP_RATE, hub.submit(writer.message(3)))
    clock.time += 1
    assert [hub.submit(writer.next()).status for writer in (alice, bob, alice)] == [200, 200, 429]
    alice.seq -= 1
    policy.says_rate = Rate(per_sec=50, burst=60)
    clock.time += 1
    assert [hub.submit(alice.next()).status for _ in range(30)] == [200] * 30
    policy.says_rate = None
    is_refused_by(rejection.CAP_RATE, hub.submit(alice.message(alice.seq + 1)))


def test_a_restart_does_not_refill_a_bucket_of_the_policy(start_hub: StartHub) -> None:
    clock, policy = SetClock(), SetPolicy()
    policy.says_rate = Rate(per_sec=1, burst=2)
    hub = start_hub(clock=clock, policy=policy)
    alice = Writer("alice", hub.hub_id)
    alice.auth_ref = hub.authorize(alice.token(rate=Rate(per_sec=1, burst=2))).auth_ref
    assert [hub.submit(alice.next()).status for _ in range(2)] == [200] * 2
    hub.stop()
    hub = start_hub(clock=clock, policy=policy)
    is_refused_by(rejection.CAP_RATE, hub.submit(alice.message(3)))


def test_a_restart_does_not_refill_the_bucket_of_a_grant(start_hub: StartHub) -> None:
    """The bucket of an older grant starts empty and has been refilled since the hub's last receipt."""
    clock, policy = SetClock(), GrantingPolicy()
    hub = start_hub(clock=clock, policy=policy, streams=["orders"])
    alice, bob = Writer("alice", hub.hub_id), Writer("bob", hub.hub_id)
    alice.auth_ref = policy.grant(alice.token(rate=Rate(per_sec=1, burst=3)), clock.time)
    assert [hub.submit(alice.next()).status for _ in range(3)] == [200] * 3
    hub.stop()
    clock.time += 2
    hub = start_hub(clock=clock, policy=policy, streams=["orders"])
    assert [hub.submit(alice.next()).status for _ in range(3)] == [200, 200, 429]
    bob.auth_ref = policy.grant(bob.token(rate=Rate(per_sec=1, burst=3)), clock.time)
    assert [hub.submit(bob.next()).status for _ in range(4)] == [200, 200, 200, 429]


def test_an_evicted_bucket_of_a_grant_is_not_full_again() -> None:
    rate, rates = Rate(per_sec=1, burst=5), ClassRates(UnixTime(100), max_buckets=1)
    keys = [(bytes([n]) * 32, Label(bytes(32))) for n in range(2)]

    def left(n: int, now: int) -> int:
        return rates.grant_bucket(keys[n], rate, UnixTime(now), UnixTime(101)).tokens

    for n in (0, 1):
        rates.take(keys[n], rate, rates.grant_bucket(keys[n], rate, UnixTime(110), UnixTime(101)))
    assert (left(1, 110), left(0, 110), left(0, 112)) == (4, 0, 2)


def test_a_policy_requires_padding_of_the_ciphertext(start_hub: StartHub) -> None:
    """LCLASS0 6.2, §4.2 step 11."""
    policy = SetPolicy()
    hub = start_hub(policy=policy, profile=PROFILES["bulk"])
    alice = hub.writer()
    policy.says_pad_block = len(Msg.decode(alice.message(1)).ciphertext)
    hub.accept(alice.next())
    policy.says_pad_block -= 1
    is_refused_by(rejection.PADDING, hub.submit(alice.message(2)))
    content = b"not a ciphertext of a MSG"
    path, headers = f"/v1/attachment/{H(content).hex()}", alice.attachment_headers(content)
    assert hub.call("PUT", path, content, headers).status == 200


@pytest.mark.parametrize(("level", "bounded"), [("federated", False), ("hardened", True), ("meta", True)])
def test_from_level_hardened_on_client_keys_have_bounds(
    start_hub: StartHub, tmp_path: Path, level: str, bounded: bool
) -> None:
    """KEX1+ 4.1: deployments MUST configure them, so what is not configured is what it recommends."""
    hub = start_hub(policy=SetPolicy(), level=level, realm={"id": "r", "key": str(tmp_path)})
    assert ("client key bounds" in hub.status().enforces) == bounded
    alice = Writer("alice", hub.hub_id)
    alice.auth_ref = hub.authorize(alice.token(ttl=200_000)).auth_ref
    hub.accept(alice.next())
    hub.clock.time += 86_401
    assert hub.submit(alice.next()).status == (403 if bounded else 200)


def test_a_client_id_has_a_lifetime_on_a_label_if_configured(start_hub: StartHub) -> None:
    clock = SetClock()
    hub = start_hub(clock=clock, client_keys__max_client_id_lifetime_sec=100)
    alice = hub.writer()
    hub.accept(alice.next())
    clock.time += 100
    hub.accept(alice.next())
    clock.time += 1
    is_refused_by(rejection.CLIENT_BOUNDS, hub.submit(alice.next()))


def test_a_policy_gets_label_writer_token_size_and_time_of_a_message(start_hub: StartHub) -> None:
    policy = SetPolicy()
    hub = start_hub(policy=policy)
    alice = hub.writer()
    wire = alice.next()
    hub.accept(wire)
    asked = policy.asked[-1]
    assert (asked.label, asked.client_id, asked.auth_ref) == (alice.label, alice.client_id, alice.auth_ref)
    assert (asked.size, asked.hub_ts) == (len(wire), hub.clock.time)
    assert asked.token is not None
    assert asked.token.subject_pk == alice.client_id
    assert hub.status().level == "hardened"
    assert "what the test wants" in hub.status().enforces


def test_with_a_stale_policy_view_the_hub_accepts_nothing_and_is_not_ready(start_hub: StartHub) -> None:
    policy = SetPolicy()
    hub = start_hub(policy=policy)
    alice = hub.writer()
    policy.says_stale = "the view is 400 s old"
    answer = hub.submit(alice.next())
    assert (answer.status, answer.error.code) == (503, "E.UNAVAILABLE")
    assert "400 s old" in answer.error.message
    ready = hub.get("/readyz")
    assert ready.status == 503
    assert "400 s old" in ready.json["why"]
    policy.says_stale = None
    assert hub.submit(alice.message(1)).status == 200
    assert hub.get("/readyz").status == 200


# --- epochs


@pytest.fixture
def rotating(start_hub: StartHub) -> RunningHub:
    return start_hub(profile=PROFILES["rotating"], clock=SetClock())


@pytest.mark.parametrize("offset", [-1, 0, 1], ids=["previous", "current", "next"])
def test_epochs_within_the_skew_are_accepted(rotating: RunningHub, offset: int) -> None:
    epoch = rotating.status().epoch + offset
    assert rotating.submit(rotating.writer(epoch=epoch).next()).status == 200


@pytest.mark.parametrize("offset", [-2, 2, -64, 64])
def test_epochs_outside_the_skew_are_refused(rotating: RunningHub, offset: int) -> None:
    epoch = rotating.status().epoch + offset
    is_refused_by(rejection.EPOCH, rotating.submit(rotating.writer(epoch=epoch).next()))


def test_the_window_moves_with_the_hubs_time(rotating: RunningHub) -> None:
    alice = rotating.writer()
    rotating.accept(alice.next())
    rotating.clock.time += 119
    rotating.accept(alice.next())
    rotating.clock.time += 1
    is_refused_by(rejection.EPOCH, rotating.submit(alice.message(3)))


def test_a_stream_that_the_configuration_names_has_an_epoch_without_a_token(start_hub: StartHub) -> None:
    """Without gating, the labels of unknown streams are opaque and always current (H4)."""
    hub = start_hub(profile=PROFILES["rotating"], clock=SetClock(), gating=False, streams=["orders"])
    epoch = hub.status().epoch
    assert hub.submit(Writer("alice", hub.hub_id, hub.profile, epoch=epoch + 1).next()).status == 200
    for offset in (-5, 2, 5, 64):
        wrong = Writer("alice", hub.hub_id, hub.profile, epoch=epoch + offset)
        is_refused_by(rejection.EPOCH, hub.submit(wrong.next()))
    opaque = Writer("alice", hub.hub_id, hub.profile, to="nobody knows", epoch=epoch + 1_000)
    assert hub.submit(opaque.next()).status == 200


def test_only_rows_independent_of_the_message_run_once_per_writer_and_batch() -> None:
    rows = {row for row, _failure in table.STATEFUL}
    assert rows > table.WRITER_ROWS
    assert {row for row, _failure in table.MESSAGE_ROWS} == rows - table.WRITER_ROWS


def test_later_messages_of_a_batch_are_checked_by_every_row_that_depends_on_the_message(
    start_hub: StartHub,
) -> None:
    """And by what the ones before them changed: rate, place and number."""
    hub = start_hub(clock=SetClock())
    alice, bob = hub.writer(), hub.writer("bob")
    alice.auth_ref = hub.authorize(alice.token(rate=Rate(per_sec=1, burst=3))).auth_ref
    messages = [
        alice.message(1),
        alice.message(1),
        alice.message(3),
        alice.message(2, prev_ack=2),
        alice.message(2, prev_ack=1),
        bob.message(1, auth_ref=bytes(alice.auth_ref)),
        alice.message(3),
        alice.message(4),
    ]
    answers = cbor.split_sequence(hub.post("/v1/submit", b"".join(map(envelope, messages)), CBOR_SEQ).body)
    details = [None if one[:1] == b"\xa3" else ErrorEnvelope.decode(one).detail for one in answers]
    assert [detail and detail.detail_enum for detail in details] == [
        None,
        "DUPLICATE",
        "CLIENT_SEQ",
        "PREV_ACK",
        None,
        "AUTH_REF",
        None,
        "CAP_RATE",
    ]


def test_no_client_may_write_to_the_control_label_even_on_an_open_hub(start_hub: StartHub) -> None:
    """It holds tokens only and is never pruned (H5): messages there would stay for ever."""
    hub = start_hub(gating=False)
    alice = hub.writer()
    is_refused_by(rejection.CAP_SCOPE, hub.submit(alice.message(1, label=hub.status().control_label)))
    assert hub.submit(alice.next()).status == 200


def test_a_message_out_of_scope_costs_the_same_whatever_its_token_names(rotating: RunningHub) -> None:
    """Looking for its epoch in all of a large token's streams would hold up everybody."""
    alice, bob = rotating.writer(), rotating.writer("bob")
    many = alice.token(streams=[f"stream {n}" for n in range(1_500)])
    alice.auth_ref = rotating.authorize(many).auth_ref
    rotating.accept(bob.next())
    began = time.monotonic()
    for seq in range(1, 6):
        is_refused_by(rejection.CAP_SCOPE, rotating.submit(alice.message(seq)))
    assert time.monotonic() - began < 2  # deriving all their labels took a second a message


# --- sequences


def answers(hub: RunningHub, wires: list[bytes]) -> list[SubmitResponse | ErrorEnvelope]:
    answer = hub.post("/v1/submit", b"".join(map(envelope, wires)), "application/cbor-seq")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/cbor-seq")
    return [
        (ErrorEnvelope if b"E." in item[:8] else SubmitResponse).decode(item)
        for item in cbor.split_sequence(answer.body)
    ]


def test_an_oversized_message_is_refused_by_the_same_row_alone_and_in_a_sequence(start_hub: StartHub) -> None:
    hub = start_hub(limits=LIMITS)
    large = envelope(bytes(LIMITS.max_msg_bytes + 100))
    is_refused_by(rejection.SIZE_PREFILTER, hub.post("/v1/submit", large))
    answer = hub.post("/v1/submit", cbor.encode(large), "application/cbor-seq")
    error = ErrorEnvelope.decode(answer.body)
    assert error.detail is not None
    assert error.detail.detail_enum == "SIZE_PREFILTER"


def test_a_sequence_of_too_many_messages_is_refused_before_any_is_examined(hub: RunningHub) -> None:
    began = time.monotonic()
    is_refused_by(rejection.SIZE_PREFILTER, hub.post("/v1/submit", b"\x01" * 600_000, "application/cbor-seq"))
    assert time.monotonic() - began < 5  # answering each took a minute
    assert hub.get("/healthz").status == 200


def test_a_sequence_is_answered_in_order_however_long_it_is(hub: RunningHub, alice: Writer) -> None:
    found = answers(hub, [alice.next() for _ in range(500)])
    assert [a.receipt.stream_seq for a in found if isinstance(a, SubmitResponse)] == list(range(1, 501))


def test_each_message_of_a_sequence_is_checked_by_itself(hub: RunningHub, alice: Writer) -> None:
    wires = [alice.message(1), alice.message(2, sig=bytes(64)), b"\x80", alice.message(2), alice.message(2)]
    found = answers(hub, wires)
    codes = [a.code if isinstance(a, ErrorEnvelope) else "ok" for a in found]
    assert codes == ["ok", "E.SIG", "E.FORMAT", "ok", "E.SEQ"]
    assert all(a.request_id for a in found if isinstance(a, ErrorEnvelope))


def test_an_invalid_envelope_in_a_sequence_is_refused_at_its_position(hub: RunningHub, alice: Writer) -> None:
    body = envelope(alice.message(1)) + b"\xa1\x01\x01" + envelope(alice.message(2))
    answer = hub.post("/v1/submit", body, "application/cbor-seq")
    assert answer.status == 200
    assert answer.body.count(b"CBOR_INVALID") == 1
    assert answer.body.count(alice.label) == 2


def test_a_sequence_that_cannot_be_split_is_refused_whole(hub: RunningHub, alice: Writer) -> None:
    answer = hub.post("/v1/submit", envelope(alice.message(1)) + b"\xff", "application/cbor-seq")
    is_refused_by(rejection.CBOR_INVALID, answer)
    assert hub.accept(alice.message(1)).stream_seq == 1


def test_an_empty_sequence_has_an_empty_answer(hub: RunningHub) -> None:
    answer = hub.post("/v1/submit", b"", "application/cbor-seq")
    assert (answer.status, answer.body) == (200, b"")


def test_a_sequence_may_carry_a_cookie_per_message(working_hub: RunningHub) -> None:
    alice = working_hub.writer()
    wires = [alice.next() for _ in range(3)]
    connection = http.client.HTTPConnection("127.0.0.1", working_hub.port, timeout=10)
    connection.putrequest("POST", "/v1/submit")
    body = b"".join(map(envelope, wires))
    connection.putheader("Content-Type", "application/cbor-seq")
    connection.putheader("Content-Length", str(len(body)))
    for wire in wires[:2]:
        connection.putheader("VEEN-PoW", cookie(working_hub, wire, 6))
    connection.endheaders(body)
    answer = connection.getresponse().read()
    connection.close()
    assert answer.count(alice.label) == 2
    assert answer.count(b"PREFILTER_REJECT") == 1


def test_a_sequence_longer_than_the_queue_is_too_large_for_ever(start_hub: StartHub) -> None:
    hub = start_hub(max_waiting=10)
    alice = hub.writer()
    body = b"".join(envelope(alice.next()) for _ in range(11))
    is_refused_by(rejection.SIZE_PREFILTER, hub.post("/v1/submit", body, "application/cbor-seq"))


def test_authorizing_brings_a_stream_into_scope_at_once(hub: RunningHub) -> None:
    for name in ("one", "two", "three"):
        writer = hub.writer("alice", to=name)
        assert hub.submit(writer.next()).status == 200


def test_lowered_limits_are_enforced(start_hub: StartHub) -> None:
    hub = start_hub(limits=Limits(max_hdr_bytes=16, max_msg_bytes=4_096, max_chunk_bytes=65_536))
    alice = hub.writer()
    sealed = bytes(32) + (17).to_bytes(4, "big") + bytes(4) + bytes(17)
    is_refused_by(rejection.FIELD_SIZE, hub.submit(alice.message(1, ciphertext=sealed)))


def test_a_token_is_answered_with_its_receipt(hub: RunningHub) -> None:
    token: CapToken = Writer("alice", hub.hub_id).token()
    answer = hub.post("/tooling/authorize", token).read(AuthorizeResponse)
    assert answer.auth_ref == token.auth_ref
    assert answer.receipt.label == hub.status().control_label
    assert signing_key("alice").public == token.subject_pk
