"""Cap tokens: the rules of §6, one by one."""

import dataclasses
from collections.abc import Callable

import pytest

from veen_core import CapToken, ClientId, DecodeError, H, Ht, Limits, StreamId, cbor, mint, verify_token
from veen_core.cap import Allow, Rate, check_rules, link_digest, resign, verify_ttl
from veen_core.errors import CapError
from veen_core.ids import Signature, UnixTime
from veen_core.limits import MAX_CAP_CHAIN
from veen_core.status import AuthorizeResponse

from .simulator import BORN, Hub, flip, signing_key

ISSUER = signing_key("issuer")
SUBJECT = ClientId(signing_key("alice").public)
A, B = StreamId(b"\x0a" * 32), StreamId(b"\x0b" * 32)
RATE = Rate(per_sec=10, burst=20)


@pytest.fixture
def token() -> CapToken:
    return mint(ISSUER, SUBJECT, [B, A], ttl=3_600, rate=RATE)


def _chained(token: CapToken) -> CapToken:
    """Sign a token without checking its rules."""
    bare = dataclasses.replace(token, sig_chain=())
    return dataclasses.replace(bare, sig_chain=(ISSUER.sign(link_digest(bare, bytes(64))),))


def _allowing(token: CapToken, **changes: object) -> CapToken:
    return _chained(dataclasses.replace(token, allow=dataclasses.replace(token.allow, **changes)))


# --- minting (§6.1)


def test_minting_is_deterministic_in_its_inputs(token: CapToken) -> None:
    assert mint(ISSUER, SUBJECT, [A, B, A], ttl=3_600, rate=RATE).encode() == token.encode()


def test_a_minted_token_verifies_and_names_its_parties(token: CapToken) -> None:
    verify_token(token)
    assert (token.issuer_pk, token.subject_pk) == (ISSUER.public, SUBJECT)


def test_minting_sorts_the_stream_ids(token: CapToken) -> None:
    assert token.allow.stream_ids == (A, B)


def test_auth_ref_is_the_tagged_hash_of_the_whole_token(token: CapToken) -> None:
    assert token.auth_ref == Ht("veen/cap", token.encode())


def test_token_hash_is_the_bare_hash_of_the_whole_token(token: CapToken) -> None:
    assert token.token_hash == H(token.encode())  # spec-2 §4.3


def test_resigning_lengthens_the_chain_and_changes_auth_ref(token: CapToken) -> None:
    again = resign(ISSUER, token)
    verify_token(again)
    assert again.sig_chain[:1] == token.sig_chain
    assert len(again.sig_chain) == 2
    assert again.auth_ref != token.auth_ref
    assert again.claims_ref == token.claims_ref != token.auth_ref


def test_each_link_signs_the_token_without_its_chain_and_the_previous_signature(token: CapToken) -> None:
    items = {k: v for k, v in token.codec.write(token).items() if k != 5}
    first = ISSUER.sign(Ht("veen/cap-link", cbor.encode(items) + bytes(64)))
    second = ISSUER.sign(Ht("veen/cap-link", cbor.encode(items) + first))
    assert resign(ISSUER, token).sig_chain == (first, second)


def test_only_the_issuer_can_sign_a_token_again(token: CapToken) -> None:
    with pytest.raises(CapError, match="only the issuer"):
        resign(signing_key("mallory"), token)


def test_a_token_comes_back_from_its_bytes(token: CapToken) -> None:
    assert CapToken.decode(token.encode()) == token


def test_an_absent_rate_is_omitted(token: CapToken) -> None:
    bare = mint(ISSUER, SUBJECT, [A], ttl=1)
    assert list(bare.codec.write(bare)[4]) == [1, 2]
    assert list(token.codec.write(token)[4]) == [1, 2, 3]


# --- rules that need no signature


RULES: dict[str, tuple[Callable[[CapToken], CapToken], str]] = {
    "stream_ids empty": (lambda t: _allowing(t, stream_ids=()), "must not be empty"),
    "stream_ids unsorted": (lambda t: _allowing(t, stream_ids=(B, A)), "ascending"),
    "stream_ids duplicated": (lambda t: _allowing(t, stream_ids=(A, A)), "without duplicates"),
    "no signature": (lambda t: dataclasses.replace(t, sig_chain=()), "0 signatures, want 1 to 8"),
    "nine signatures": (
        lambda t: dataclasses.replace(t, sig_chain=t.sig_chain * 9),
        "9 signatures, want 1 to 8",
    ),
    "per_sec too high": (lambda t: _allowing(t, rate=Rate(per_sec=100_001, burst=1)), "rate .core §14.1."),
    "burst too high": (lambda t: _allowing(t, rate=Rate(per_sec=1, burst=1_000_001)), "rate .core §14.1."),
}


@pytest.mark.parametrize("name", RULES)
def test_a_token_that_breaks_a_rule_is_refused_although_it_is_signed(token: CapToken, name: str) -> None:
    breaking, match = RULES[name]
    with pytest.raises(CapError, match=match):
        verify_token(breaking(token))


def test_minting_refuses_what_verifying_would_refuse() -> None:
    with pytest.raises(CapError, match="must not be empty"):
        mint(ISSUER, SUBJECT, [], ttl=1)


def test_a_chain_has_at_most_eight_signatures(token: CapToken) -> None:
    while len(token.sig_chain) < MAX_CAP_CHAIN:
        token = resign(ISSUER, token)
    verify_token(token)
    with pytest.raises(CapError, match="9 signatures"):
        resign(ISSUER, token)


def test_a_hub_with_lower_limits_refuses_a_faster_token(token: CapToken) -> None:
    check_rules(token)
    with pytest.raises(CapError, match="10/s and burst 20 exceed 9/s"):
        verify_token(token, Limits(max_cap_rate_per_sec=9))


# --- the chain


CHAINS: dict[str, Callable[[CapToken], CapToken]] = {
    "first link flipped": lambda t: dataclasses.replace(
        t, sig_chain=(Signature(flip(t.sig_chain[0])), t.sig_chain[1])
    ),
    "second link flipped": lambda t: dataclasses.replace(
        t, sig_chain=(t.sig_chain[0], Signature(flip(t.sig_chain[1])))
    ),
    "links swapped": lambda t: dataclasses.replace(t, sig_chain=t.sig_chain[::-1]),
    "first link dropped": lambda t: dataclasses.replace(t, sig_chain=t.sig_chain[1:]),
    "another subject": lambda t: dataclasses.replace(t, subject_pk=ClientId(bytes(32))),
    "another issuer": lambda t: dataclasses.replace(t, issuer_pk=signing_key("mallory").public),
    "a longer ttl": lambda t: dataclasses.replace(t, allow=dataclasses.replace(t.allow, ttl=9_999)),
    "no rate": lambda t: dataclasses.replace(t, allow=Allow(stream_ids=t.allow.stream_ids, ttl=3_600)),
}


@pytest.mark.parametrize("name", CHAINS)
def test_every_link_of_the_chain_is_verified_under_the_issuer(token: CapToken, name: str) -> None:
    with pytest.raises(CapError, match=r"sig_chain\[\d\] .core §6. does not verify"):
        verify_token(CHAINS[name](resign(ISSUER, token)))


# --- form


def _items(token: CapToken) -> dict[int, object]:
    return token.codec.write(token)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        pytest.param({1: 2}, "cap_token.ver", id="ver is not 1"),
        pytest.param({6: 0}, "unknown key", id="unknown key in cap_token"),
        pytest.param({4: {1: [A], 2: 1, 4: 0}}, "unknown key", id="unknown key in allow"),
        pytest.param({4: {1: [A], 2: 1, 3: {1: 1, 2: 1, 3: 1}}}, "unknown key", id="unknown key in rate"),
        pytest.param({4: {1: [A], 2: 1, 3: None}}, "rate", id="null for an absent rate"),
        pytest.param({4: {1: [A]}}, "ttl", id="no ttl"),
        pytest.param({4: {1: [A], 2: -1}}, "want uint", id="negative ttl"),
    ],
)
def test_a_token_of_another_shape_does_not_decode(
    token: CapToken, change: dict[int, object], match: str
) -> None:
    items = _items(token) | change
    with pytest.raises(DecodeError, match=match):
        CapToken.decode(cbor.encode(items))


# --- ttl


@pytest.mark.parametrize(
    ("age", "holds"),
    [
        pytest.param(0, True, id="when issued"),
        pytest.param(3_600, True, id="on the last second"),
        pytest.param(3_601, False, id="a second later"),
    ],
)
def test_a_token_is_valid_up_to_and_including_issued_at_plus_ttl(
    token: CapToken, age: int, holds: bool
) -> None:
    assert token.expires_at(BORN) == BORN + 3_600
    if holds:
        verify_ttl(token, BORN, UnixTime(BORN + age))
    else:
        with pytest.raises(CapError, match=r"expired at \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ, the time is \d{4}-"):
            verify_ttl(token, BORN, UnixTime(BORN + age))


@pytest.mark.parametrize("ttl", [2**64 - 1, 2**64 - BORN])
def test_an_expiry_beyond_the_largest_time_is_capped(ttl: int) -> None:
    token = mint(ISSUER, SUBJECT, [A], ttl=ttl)
    verify_token(token)
    assert token.expires_at(BORN) == 2**64 - 1
    verify_ttl(token, BORN, UnixTime(2**64 - 1))
    receipt = Hub().write("bob")[0]
    told = AuthorizeResponse(auth_ref=token.auth_ref, expires_at=token.expires_at(BORN), receipt=receipt)
    assert AuthorizeResponse.decode(told.encode()) == told
