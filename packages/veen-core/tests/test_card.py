"""Identity cards and prekeys (KEX0.2, spec-1 §3, H11)."""

import dataclasses

import pytest

from veen_core import Ht, IdentityCard, VerificationError, verify_card
from veen_core.card import Prekey, card_digest, prekey_digest, sign_card, sign_prekey
from veen_core.errors import SignatureError
from veen_core.hashing import u64be
from veen_core.ids import Signature, UnixTime

from .simulator import BORN, dh_key, flip, signing_key

OWNER = signing_key("owner")
LONG_TERM = dh_key("owner").public
EARLY = sign_prekey(OWNER, dh_key("early").public, UnixTime(BORN + 100))
LATE = sign_prekey(OWNER, dh_key("late").public, UnixTime(BORN + 200))


@pytest.fixture
def card() -> IdentityCard:
    return sign_card(OWNER, LONG_TERM, [EARLY, LATE])


def test_a_card_verifies_and_comes_back_from_its_bytes(card: IdentityCard) -> None:
    verify_card(card, pinned=OWNER.public)
    assert IdentityCard.decode(card.encode()) == card


def test_a_prekey_is_signed_together_with_its_expiry() -> None:
    digest = Ht("veen/prekey", OWNER.public + EARLY.dh_pk + u64be(BORN + 100))
    assert prekey_digest(OWNER.public, EARLY.dh_pk, EARLY.expires_at) == digest
    assert EARLY.sig == OWNER.sign(digest)


def test_the_card_signs_everything_but_its_signature(card: IdentityCard) -> None:
    assert card_digest(card) == card_digest(dataclasses.replace(card, sig=Signature(b"\x01" * 64)))


def test_another_owner_than_the_pinned_one_is_refused(card: IdentityCard) -> None:
    with pytest.raises(VerificationError, match="pinned key is"):
        verify_card(card, pinned=signing_key("somebody else").public)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"id_dh": dh_key("mallory").public}, id="another receiving key"),
        pytest.param({"prekeys": (EARLY,)}, id="a prekey dropped"),
        pytest.param({"prekeys": (LATE, EARLY)}, id="prekeys swapped"),
        pytest.param({"id_sign": signing_key("mallory").public}, id="another owner"),
        pytest.param({"sig": Signature(bytes(64))}, id="no signature"),
    ],
)
def test_a_changed_card_is_refused(card: IdentityCard, change: dict[str, object]) -> None:
    with pytest.raises(SignatureError, match=r"identity_card\.sig"):
        verify_card(dataclasses.replace(card, **change))


@pytest.mark.parametrize(
    "prekey",
    [
        pytest.param(dataclasses.replace(LATE, expires_at=UnixTime(BORN + 9_999)), id="a longer life"),
        pytest.param(dataclasses.replace(LATE, sig=Signature(flip(LATE.sig))), id="a flipped signature"),
        pytest.param(
            sign_prekey(signing_key("mallory"), dh_key("late").public, LATE.expires_at), id="another signer"
        ),
    ],
)
def test_a_prekey_its_owner_did_not_sign_is_refused_even_on_a_signed_card(prekey: Prekey) -> None:
    card = sign_card(OWNER, LONG_TERM, [EARLY, prekey])
    with pytest.raises(VerificationError, match=r"prekeys\[1\]\.sig"):
        verify_card(card)


@pytest.mark.parametrize(
    ("offset", "recipient"),
    [
        pytest.param(0, LATE.dh_pk, id="the freshest prekey"),
        pytest.param(199, LATE.dh_pk, id="its last second"),
        pytest.param(200, LONG_TERM, id="all expired"),
    ],
)
def test_messages_are_sealed_to_the_freshest_prekey_else_to_the_long_term_key(
    card: IdentityCard, offset: int, recipient: bytes
) -> None:
    assert card.recipient_at(UnixTime(BORN + offset)) == recipient


def test_a_card_without_prekeys_receives_under_its_long_term_key() -> None:
    card = sign_card(OWNER, LONG_TERM)
    verify_card(card)
    assert card.recipient_at(BORN) == LONG_TERM
