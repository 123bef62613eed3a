"""Vectors of identity_card, secrets and keystore."""

from __future__ import annotations

import dataclasses
from typing import Any

import cbor2

from veen_core import card
from veen_core.card import IdentityCard, Prekey, sign_card, sign_prekey, verify_card
from veen_core.errors import DecodeError, KeystoreError, SignatureError, VerificationError
from veen_core.ids import DhPublicKey, UnixTime, VerifyKey
from veen_core.keys import SigningKey
from veen_core.keystore import (
    MIN_COST,
    Keystore,
    KeystoreNonce,
    PrekeySecret,
    Salt,
    Secrets,
    open_keystore,
    seal_keystore,
)

from . import cast
from .case import Bad, Context, Good, Object, decoded, read, readable, unhex
from .crooked import encode

# --- identity_card


def judge_card(wire: bytes, context: Context) -> Any:
    published = read(IdentityCard, wire)
    verify_card(published, pinned=VerifyKey(unhex(context, "pinned")))
    return readable(published) | {"recipient": published.recipient_at(cast.BORN).hex()}


def _card(*prekeys: Prekey, key: SigningKey = cast.CLIENT) -> IdentityCard:
    return sign_card(key, cast.READER.public, prekeys)


def _prekey(days: int, key: SigningKey = cast.CLIENT) -> Prekey:
    return sign_prekey(key, cast.OTHER_READER.public, UnixTime(cast.BORN + 86_400 * days))


CARD = _card(_prekey(-1), _prekey(7))
LONGER = dataclasses.replace(_prekey(7), expires_at=UnixTime(cast.BORN + 86_400 * 8))
OWNER = {"pinned": cast.CLIENT.public.hex()}
IDENTITY_CARD = Object(
    name="identity_card",
    judge=judge_card,
    wire=IdentityCard,
    good=(Good("two_prekeys", CARD.encode(), OWNER), Good("no_prekeys", _card().encode(), OWNER)),
    bad=tuple(
        Bad(name, wire.encode(), error, match, context)
        for name, wire, error, match, context in (
            ("pinned_other", CARD, VerificationError, "identity_card.id_sign is", {"pinned": "00" * 32}),
            (
                "sig_of_another",
                dataclasses.replace(CARD, sig=cast.STRANGER.sign(card.card_digest(CARD))),
                SignatureError,
                "identity_card.sig does not verify",
                OWNER,
            ),
            (
                "id_dh_other",
                dataclasses.replace(CARD, id_dh=DhPublicKey(bytes(32))),
                SignatureError,
                "identity_card.sig",
                OWNER,
            ),
            (
                "prekey_left_out",
                dataclasses.replace(CARD, prekeys=CARD.prekeys[:1]),
                SignatureError,
                "card.sig",
                OWNER,
            ),
            ("prekey_prolonged", _card(LONGER), VerificationError, "identity_card.prekeys[0].sig", OWNER),
            (
                "prekey_of_another",
                _card(_prekey(7, cast.STRANGER)),
                VerificationError,
                "prekeys[0].sig",
                OWNER,
            ),
        )
    ),
)

# --- keystore, at the least cost that argon2id has


def judge_keystore(wire: bytes, context: Context) -> Any:
    keystore = read(Keystore, wire)
    secrets = open_keystore(keystore, context["passphrase"].encode())
    again = seal_keystore(
        secrets, context["passphrase"].encode(), salt=keystore.salt, nonce=keystore.nonce, cost=MIN_COST
    )
    if again != keystore:
        raise AssertionError("it does not seal again to the same bytes")
    return readable(keystore) | {"secrets": readable(secrets)}


SECRETS = Secrets(
    id_sign=cast.CLIENT.seed,
    id_dh=cast.READER.secret,
    created_at=cast.BORN,
    prekeys=(PrekeySecret(secret=cast.OTHER_READER.secret, expires_at=UnixTime(cast.BORN + 86_400)),),
)
PASSPHRASE = {"passphrase": "correct horse battery staple"}
KEYSTORE = seal_keystore(
    SECRETS,
    PASSPHRASE["passphrase"].encode(),
    salt=Salt(bytes([0x71]) * 16),
    nonce=KeystoreNonce(bytes([0x72]) * 24),
    cost=MIN_COST,
)


def _altered(**changes: Any) -> bytes:
    return dataclasses.replace(KEYSTORE, **changes).encode()


def _sealing(content: bytes) -> bytes:
    """A keystore that opens, with something else inside."""

    class Content(Secrets):
        __slots__ = ()

        def encode(self) -> bytes:
            return content

    other = Content(id_sign=SECRETS.id_sign, id_dh=SECRETS.id_dh, created_at=SECRETS.created_at)
    passphrase = PASSPHRASE["passphrase"].encode()
    return seal_keystore(other, passphrase, salt=KEYSTORE.salt, nonce=KEYSTORE.nonce, cost=MIN_COST).encode()


KEYSTORE_OBJECT = Object(
    name="keystore",
    judge=judge_keystore,
    wire=Keystore,
    good=(Good("least_cost", KEYSTORE.encode(), PASSPHRASE),),
    bad=(
        Bad(
            "kdf_other",
            encode(cbor2.loads(KEYSTORE.encode()) | {2: "scrypt"}),
            DecodeError,
            "keystore.kdf (keystore): want",
        ),
        *(
            Bad(name, wire, KeystoreError, match, PASSPHRASE | more)
            for name, wire, match, more in (
                ("passphrase_wrong", KEYSTORE.encode(), "the passphrase is wrong", {"passphrase": "wrong"}),
                (
                    "salt_other",
                    _altered(salt=Salt(bytes(16))),
                    "the passphrase is wrong, or the file is damaged",
                    {},
                ),
                ("nonce_other", _altered(nonce=KeystoreNonce(bytes(24))), "keystore does not open", {}),
                ("sealed_cut", _altered(sealed=KEYSTORE.sealed[:-1]), "keystore does not open", {}),
                ("sealed_empty", _altered(sealed=b""), "keystore does not open", {}),
                ("passes_other", _altered(passes=2), "keystore does not open", {}),
                ("passes_zero", _altered(passes=0), "cost, 0 passes", {}),
                ("passes_17", _altered(passes=17), "out of bounds (at most 16", {}),
                ("memory_too_little", _altered(memory=8_191), "8191 bytes, is out of bounds", {}),
                ("memory_too_much", _altered(memory=2**30 + 1), "is out of bounds", {}),
                ("content_other", _sealing(b"\xa0"), "this version cannot read its content", {}),
            )
        ),
    ),
)


# --- what the keystore seals: of keys that are nobody's

SECRETS_OBJECT = Object(
    name="secrets",
    judge=decoded(Secrets),
    wire=Secrets,
    good=(
        Good("with_prekeys", SECRETS.encode()),
        Good("bare", dataclasses.replace(SECRETS, prekeys=()).encode()),
    ),
    bad=(
        Bad(
            "prekey_short",
            encode(cbor2.loads(SECRETS.encode()) | {5: [{1: bytes(31), 2: 1}]}),
            DecodeError,
            "prekey_secret.secret (keystore): want DhSecret of 32 bytes, found 31",
        ),
    ),
)
OBJECTS = (IDENTITY_CARD, SECRETS_OBJECT, KEYSTORE_OBJECT)
