"""Proof-of-work cookies (SH1+ 5.2, H13)."""

import dataclasses

import pytest

from veen_core import H, Ht, HubId, VerificationError, cbor
from veen_core.hashing import u64be
from veen_core.ids import UnixTime
from veen_core.pow import (
    PowCookie,
    accepted_salts,
    challenge,
    leading_zero_bits,
    pow_salt,
    solve,
    verify_cookie,
    work_of,
)

HUB = HubId(bytes(32))
MSG = b"a message"
SALT = pow_salt(HUB, UnixTime(7_200))
CHALLENGE = challenge(SALT, MSG)


def test_a_salt_is_specific_to_the_hub_and_the_hour() -> None:
    assert Ht("veen/pow-salt", HUB + u64be(2)) == SALT
    assert pow_salt(HUB, UnixTime(10_799)) == SALT
    assert pow_salt(HUB, UnixTime(10_800)) != SALT
    assert pow_salt(HubId(b"\x01" * 32), UnixTime(7_200)) != SALT


def test_the_salt_of_the_previous_hour_is_accepted() -> None:
    assert accepted_salts(HUB, UnixTime(10_800)) == (pow_salt(HUB, UnixTime(10_800)), SALT)
    assert accepted_salts(HUB, UnixTime(5)) == (pow_salt(HUB, UnixTime(0)), pow_salt(HUB, UnixTime(0)))


def test_the_challenge_is_salt_and_message_hash() -> None:
    assert SALT + H(MSG) == CHALLENGE


@pytest.mark.parametrize(
    ("value", "bits"), [(b"\xff", 0), (b"\x80\x00", 0), (b"\x01\xff", 7), (b"\x00\x10", 11), (bytes(4), 32)]
)
def test_leading_zero_bits_are_counted_from_the_left(value: bytes, bits: int) -> None:
    assert leading_zero_bits(value) == bits


def test_a_solved_cookie_verifies() -> None:
    cookie = solve(CHALLENGE, 8)
    assert work_of(CHALLENGE, cookie.nonce) == leading_zero_bits(
        Ht("veen/pow", CHALLENGE + u64be(cookie.nonce))
    )
    verify_cookie(cookie, CHALLENGE, 8)
    verify_cookie(cookie, CHALLENGE, 5)  # more work than asked for is fine


def test_the_search_is_upwards_and_deterministic() -> None:
    cookie = solve(CHALLENGE, 6)
    assert all(work_of(CHALLENGE, nonce) < 6 for nonce in range(cookie.nonce))
    later = solve(CHALLENGE, 6, start=cookie.nonce + 1)
    assert later.nonce > cookie.nonce


@pytest.mark.parametrize(
    ("change", "match"),
    [
        pytest.param({"challenge": challenge(SALT, b"another")}, "challenge", id="another message"),
        pytest.param({"difficulty": 7}, "the hub requires 8", id="less than asked for"),
        pytest.param({"difficulty": 60}, "does not reach the claimed difficulty", id="a boast"),
        pytest.param({"difficulty": 256}, "is not a uint8", id="more than there are bits"),
    ],
)
def test_a_cookie_that_does_not_answer_is_refused(change: dict[str, object], match: str) -> None:
    with pytest.raises(VerificationError, match=match):
        verify_cookie(dataclasses.replace(solve(CHALLENGE, 8), **change), CHALLENGE, 8)


def test_a_cookie_is_a_text_map_in_the_documents_order() -> None:
    cookie = PowCookie(challenge=b"c", nonce=1, difficulty=2)
    assert list(cbor.decode(cookie.encode()).items()) == [
        ("challenge", b"c"),
        ("nonce", 1),
        ("difficulty", 2),
    ]
