"""Vectors of cap_token, hub-identity and checkpoint-binding."""

from __future__ import annotations

import dataclasses
from typing import Any

import cbor2

from veen_core import cap, hub_identity
from veen_core.cap import Allow, CapToken, Rate, verify_token
from veen_core.checkpoint import Checkpoint, sign_checkpoint
from veen_core.errors import (
    CapError,
    DecodeError,
    IdentityError,
    SignatureError,
)
from veen_core.hub_identity import CheckpointBinding, HubIdentity, HubKey, bind_checkpoint, sign_identity
from veen_core.ids import (
    ClientId,
    Epoch,
    HubId,
    KeyId,
    Signature,
    StreamSeq,
    UnixTime,
)
from veen_core.keys import SigningKey

from . import cast
from .case import Bad, Context, Good, Object, decoded, read, readable, unhex
from .crooked import Pairs, encode

# --- cap_token


def judge_token(wire: bytes, _context: Context) -> Any:
    token = read(CapToken, wire)
    verify_token(token)
    return readable(token) | {"auth_ref": token.auth_ref.hex(), "token_hash": token.token_hash.hex()}


def _signed(links: int = 1, issuer: SigningKey = cast.ISSUER, **changes: Any) -> CapToken:
    """Sign a token as in §6, even if ``mint`` would refuse it."""
    allow = Allow(stream_ids=(cast.STREAM,), ttl=600)
    token = CapToken(
        issuer_pk=cast.ISSUER.public,
        subject_pk=ClientId(cast.CLIENT.public),
        allow=dataclasses.replace(allow, **changes),
        sig_chain=(),
    )
    chain: tuple[Signature, ...] = ()
    for _ in range(links):
        chain = (*chain, issuer.sign(cap.link_digest(token, chain[-1] if chain else bytes(64))))
    return dataclasses.replace(token, sig_chain=chain)


def _allow(item: Any) -> bytes:
    return encode(cbor2.loads(TOKEN.encode()) | {4: item})


TOKEN = cast.token(Rate(per_sec=5, burst=10))
IDS = TOKEN.allow.stream_ids
SIGS = _signed(2).sig_chain
TEN = cbor2.loads(TOKEN.encode())[4]
CAP_TOKEN = Object(
    name="cap_token",
    judge=judge_token,
    wire=CapToken,
    good=(
        Good("with_rate", TOKEN.encode()),
        Good("one_link", _signed().encode()),
        Good("two_links", _signed(2).encode()),
        Good("eight_links", _signed(8).encode()),
        Good("two_links_with_rate", _signed(2, rate=Rate(per_sec=1, burst=1)).encode()),
        Good("ttl_zero", _signed(ttl=0).encode()),
    ),
    bad=(
        Bad("rate_null", _allow(TEN | {3: None}), DecodeError, "cap_token.allow.rate (core §6): "),
        Bad(
            "allow_unknown_key",
            _allow(TEN | {4: 0}),
            DecodeError,
            "cap_token.allow (core §6): unknown key (int 4)",
        ),
        Bad(
            "allow_misordered",
            _allow(dict(sorted(TEN.items(), reverse=True))),
            DecodeError,
            "keys out of order",
        ),
        Bad("allow_duplicate_key", _allow(Pairs([(2, 1), *TEN.items()])), DecodeError, "not CBOR"),
        Bad(
            "rate_unknown_key",
            _allow(TEN | {3: {1: 1, 2: 1, 3: 1}}),
            DecodeError,
            "rate (core §6): unknown key (int 3)",
        ),
        Bad(
            "rate_burst_missing",
            _allow(TEN | {3: {1: 1}}),
            DecodeError,
            "cap_token.allow.rate.burst (core §6): missing",
        ),
        Bad(
            "stream_id_short",
            _allow(TEN | {1: [bytes(31)]}),
            DecodeError,
            "stream_ids (core §6): [0]: want StreamId",
        ),
        *(
            Bad(name, token.encode(), CapError, match)
            for name, token, match in (
                ("chain_empty", _signed(0), "sig_chain (core §14): 0 signatures, want 1 to 8"),
                ("chain_of_9", _signed(9), "sig_chain (core §14): 9 signatures, want 1 to 8"),
                ("stream_ids_empty", _signed(stream_ids=()), "stream_ids (core §6): must not be empty"),
                (
                    "stream_ids_unsorted",
                    _signed(stream_ids=IDS[::-1]),
                    "must be ascending without duplicates",
                ),
                ("stream_ids_twice", _signed(stream_ids=(IDS[0], IDS[0])), "must be ascending without"),
                (
                    "rate_over_limit",
                    _signed(rate=Rate(per_sec=100_001, burst=1)),
                    "rate (core §14.1): 100001/s",
                ),
                ("burst_over_limit", _signed(rate=Rate(per_sec=1, burst=1_000_001)), "burst 1000001 exceed"),
                (
                    "signed_by_another",
                    _signed(issuer=cast.STRANGER),
                    "sig_chain[0] (core §6) does not verify",
                ),
                (
                    "links_swapped",
                    dataclasses.replace(_signed(2), sig_chain=SIGS[::-1]),
                    "sig_chain[0] (core §6)",
                ),
                (
                    "first_link_again",
                    dataclasses.replace(_signed(2), sig_chain=SIGS[:1] * 2),
                    "sig_chain[1] (core §6)",
                ),
                (
                    "subject_other",
                    dataclasses.replace(_signed(), subject_pk=ClientId(bytes(32))),
                    "sig_chain[0]",
                ),
                (
                    "ttl_longer",
                    dataclasses.replace(_signed(), allow=dataclasses.replace(_signed().allow, ttl=601)),
                    "sig_chain[0] (core §6) does not verify",
                ),
            )
        ),
    ),
)


# --- hub-identity


def judge_identity(wire: bytes, context: Context) -> Any:
    identity = read(HubIdentity, wire)
    hub_identity.verify_identity(identity, pinned=HubId(unhex(context, "pinned")))
    hub_identity.verify_identity_signature(identity, Signature(unhex(context, "signature")))
    key_map = {key_id.hex(): hub_pk.hex() for key_id, hub_pk in identity.key_map.items()}
    return readable(identity) | {"key_map": key_map}


ONE_KEY, TWO_KEYS = cast.identity(), cast.rotated_identity()
FIRST, SECOND = TWO_KEYS.hub_keys


def _anchored(identity: HubIdentity, key: SigningKey = cast.NEXT_HUB, **more: Any) -> dict[str, Any]:
    return {"pinned": cast.HUB_ID.hex(), "signature": sign_identity(key, identity).hex()} | more


def _keys(*keys: HubKey) -> bytes:
    return dataclasses.replace(TWO_KEYS, hub_keys=keys).encode()


def _second(**changes: Any) -> bytes:
    return _keys(FIRST, dataclasses.replace(SECOND, **changes))


def _endorsed(valid_from: int, by: SigningKey = cast.HUB) -> HubKey:
    digest = hub_identity.endorsement_digest(cast.HUB_ID, SECOND.hub_pk, UnixTime(valid_from))
    return dataclasses.replace(SECOND, valid_from=UnixTime(valid_from), endorsement=by.sign(digest))


ANCHORED = _anchored(TWO_KEYS)
HUB_IDENTITY = Object(
    name="hub_identity",
    judge=judge_identity,
    wire=HubIdentity,
    good=(
        Good("one_key", ONE_KEY.encode(), _anchored(ONE_KEY, cast.HUB)),
        Good("rotated", TWO_KEYS.encode(), ANCHORED),
    ),
    bad=(
        Bad(
            "anchoring_other",
            encode(cbor2.loads(ONE_KEY.encode()) | {4: "dns"}),
            DecodeError,
            "anchoring (core §8.4)",
        ),
        Bad(
            "signature_of_the_old_key",
            TWO_KEYS.encode(),
            SignatureError,
            "sig (core §8.4)",
            _anchored(TWO_KEYS, cast.HUB),
        ),
        Bad(
            "pinned_other",
            TWO_KEYS.encode(),
            IdentityError,
            "the pinned hub is 0000",
            ANCHORED | {"pinned": "00" * 32},
        ),
        *(
            Bad(name, wire, IdentityError, match, ANCHORED)
            for name, wire, match in (
                ("no_keys", _keys(), "hub_keys (core §8.4): empty"),
                ("first_key_missing", _keys(SECOND), "hub_id is not the hash of the first key"),
                (
                    "first_key_endorsed",
                    _keys(dataclasses.replace(FIRST, endorsement=SECOND.endorsement), SECOND),
                    "hub_id is not the hash of the first key",
                ),
                ("key_twice", _keys(FIRST, SECOND, SECOND), "a key is listed twice"),
                (
                    "key_id_other",
                    _second(key_id=KeyId(bytes(32))),
                    "key_id (core §8.4): is not the id of hub_pk",
                ),
                (
                    "valid_until_before",
                    _second(valid_until=cast.ROTATED),
                    "valid_until (core §8.4): is not after",
                ),
                ("unendorsed", _second(endorsement=None), "hub_key.endorsement (core §8.4): missing"),
                (
                    "endorsed_by_a_stranger",
                    _keys(FIRST, _endorsed(cast.ROTATED, cast.STRANGER)),
                    "does not verify",
                ),
                (
                    "endorsed_by_itself",
                    _keys(FIRST, _endorsed(cast.ROTATED, cast.NEXT_HUB)),
                    "does not verify",
                ),
                (
                    "valid_from_moved",
                    _second(valid_from=cast.ROTATED + 1),
                    "endorsement (core §8.4) does not verify",
                ),
                (
                    "keys_not_in_order",
                    _keys(FIRST, _endorsed(cast.BORN - 1)),
                    "not in the order of valid_from",
                ),
                (
                    "keys_of_one_moment",
                    _keys(FIRST, _endorsed(cast.BORN)),
                    "not in the order of valid_from",
                ),
            )
        ),
    ),
)


# --- checkpoint-binding: the manifest line of a checkpoint that this hub signed


def _bound(key: SigningKey, signer: HubKey) -> bytes:
    checkpoint = Checkpoint(
        label_prev=cast.LABEL,
        label_curr=cast.LABEL,
        upto_seq=StreamSeq(7),
        mmr_root=cast.log().root(7),
        epoch=Epoch(0),
    )
    return bind_checkpoint(TWO_KEYS, signer, sign_checkpoint(key, checkpoint)).encode()


CHECKPOINT_BINDING = Object(
    name="checkpoint_binding",
    judge=decoded(CheckpointBinding),
    wire=CheckpointBinding,
    good=(Good("first_key", _bound(cast.HUB, FIRST)), Good("second_key", _bound(cast.NEXT_HUB, SECOND))),
)
OBJECTS = (CAP_TOKEN, HUB_IDENTITY, CHECKPOINT_BINDING)
