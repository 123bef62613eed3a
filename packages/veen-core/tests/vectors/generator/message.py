"""Vectors of profile, derivations, payload_hdr and MSG."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import cbor2

from veen_core import attachment, msg, stream
from veen_core.errors import DecodeError, EncodeError, SignatureError, VerificationError
from veen_core.hashing import H
from veen_core.ids import (
    ClientId,
    CtHash,
    Epoch,
    HubId,
    HubPk,
    RoutingKey,
    StreamId,
)
from veen_core.keys import SigningKey
from veen_core.limits import DEFAULT_LIMITS
from veen_core.msg import Msg
from veen_core.payload import PayloadHeader
from veen_core.profile import Profile

from . import cast
from .case import Bad, Context, Good, Judge, Object, decoded, read, readable, unhex
from .crooked import flip
from .sealing import BOUND, CT, FULL_HEADER, TWO_FILES, WITH_TOKEN, with_lengths

# --- profile


def judge_profile(wire: bytes, _context: Context) -> Any:
    profile = read(Profile, wire)
    return readable(profile) | {"profile_id": profile.profile_id.hex()}


def _other_profile(key: int, value: object) -> bytes:
    return cbor2.dumps(cbor2.loads(cast.DEFAULT.encode()) | {key: value})


PROFILE = Object(
    name="profile",
    judge=judge_profile,
    wire=Profile,
    good=tuple(Good(name, profile.encode()) for name, profile in cast.PROFILES.items()),
    bad=(
        Bad(
            "aead_other",
            _other_profile(1, "aes256gcm"),
            DecodeError,
            "profile.aead (core §3.2): want 'xchacha20",
        ),
        Bad(
            "mmr_hash_other",
            _other_profile(8, "sha512"),
            DecodeError,
            "profile.mmr_hash (core §3.2): want 'sha256'",
        ),
        Bad(
            "pad_block_text",
            _other_profile(7, "256"),
            DecodeError,
            "profile.pad_block (core §3.2): want uint",
        ),
        Bad("epoch_sec_65_bits", _other_profile(6, 2**64), DecodeError, "tags are not allowed"),
        Bad("pad_block_over_1_mib", _other_profile(7, 2**20 + 1), DecodeError, "pad_block 1048577 exceeds"),
    ),
)


# --- derivations: what is derived from context.json is in wire.hex


def _derivation(derive: Callable[[Context], bytes]) -> Judge:
    def judge(wire: bytes, context: Context) -> Any:
        derived = derive(context)
        if derived != wire:
            raise AssertionError(f"derived {derived.hex()}, the vector says {wire.hex()}")
        return derived.hex()

    return judge


def _label(context: Context) -> bytes:
    routing, of = RoutingKey(unhex(context, "routing_key")), StreamId(unhex(context, "stream_id"))
    return stream.label(routing, of, Epoch(context["epoch"]))


STREAM_ID = Object(
    name="stream_id",
    judge=_derivation(lambda context: stream.stream_id(context["name"])),
    good=tuple(
        Good(case, wire, {"name": name})
        for case, name, wire in (
            ("word", "orders", H(b"orders")),
            ("beyond_ascii", "注文", H("注文".encode())),
            ("empty", "", H(b"")),
            ("hex_is_the_id_itself", "ab" * 32, b"\xab" * 32),
            ("uppercase_hex_too", "AB" * 32, b"\xab" * 32),
            ("hex_of_63_digits_is_a_name", "a" * 63, H(b"a" * 63)),
            ("64_characters_not_hex_is_a_name", "g" * 64, H(b"g" * 64)),
        )
    ),
)
HUB_ID = Object(
    name="hub_id",
    judge=_derivation(lambda context: stream.hub_id(HubPk(unhex(context, "hub_pk")))),
    good=(Good("first_key", cast.HUB_ID, {"hub_pk": cast.HUB.public.hex()}),),
    bad=(Bad("hub_pk_short", None, DecodeError, "want HubPk of 32 bytes, found 31", {"hub_pk": "00" * 31}),),
)
ROUTING_KEY = Object(
    name="routing_key",
    judge=_derivation(lambda context: stream.routing_key(HubId(unhex(context, "hub_id")))),
    good=(Good("of_hub_id", cast.ROUTING_KEY, {"hub_id": cast.HUB_ID.hex()}),),
    bad=(Bad("hub_id_long", None, DecodeError, "want HubId of 32 bytes, found 33", {"hub_id": "00" * 33}),),
)
LABEL_INPUTS = {"routing_key": cast.ROUTING_KEY.hex(), "stream_id": cast.STREAM.hex(), "epoch": 0}
LABEL = Object(
    name="label",
    judge=_derivation(_label),
    good=tuple(
        Good(f"epoch_{name}", _label(LABEL_INPUTS | {"epoch": epoch}), LABEL_INPUTS | {"epoch": epoch})
        for name, epoch in (("zero", 0), ("of_a_minute", 28_333_333), ("last", 2**64 - 1))
    ),
    bad=(
        Bad("routing_key_short", None, DecodeError, "RoutingKey of 32", LABEL_INPUTS | {"routing_key": "00"}),
        Bad("stream_id_short", None, DecodeError, "StreamId of 32", LABEL_INPUTS | {"stream_id": "00" * 31}),
        Bad("epoch_65_bits", None, EncodeError, "not an unsigned 64-bit", LABEL_INPUTS | {"epoch": 2**64}),
        Bad(
            "epoch_negative", None, EncodeError, "-1 is not an unsigned 64-bit", LABEL_INPUTS | {"epoch": -1}
        ),
    ),
)


# --- payload_hdr

PAYLOAD_HDR = Object(
    name="payload_hdr",
    judge=decoded(PayloadHeader),
    wire=PayloadHeader,
    good=(
        Good("full", FULL_HEADER.encode()),
        Good("schema_only", PayloadHeader(schema=cast.SCHEMA).encode()),
        Good(
            "empty_att_root", PayloadHeader(schema=cast.SCHEMA, att_root=attachment.EMPTY_ATT_ROOT).encode()
        ),
    ),
    bad=(
        Bad("empty_map", b"\xa0", DecodeError, "payload_hdr.schema (core §4.5): missing"),
        Bad("schema_text", cbor2.dumps({1: "orders.v1"}), DecodeError, "want bstr32, found tstr of 9"),
    ),
)


# --- MSG


def judge_msg(wire: bytes, context: Context) -> Any:
    limits = DEFAULT_LIMITS.lowered(context.get("limits", {}))
    value, leaf = msg.verify_msg(wire, limits)
    return readable(value) | {"leaf_hash": leaf.hex(), "signing_digest": msg.signing_digest(wire).hex()}


def _resigned(key: SigningKey = cast.CLIENT, **changes: Any) -> bytes:
    """The first MSG with some fields changed and a signature that covers the change."""
    bent = dataclasses.replace(FIRST, **changes)
    return dataclasses.replace(bent, sig=key.sign(msg.signing_digest(bent.encode()))).encode()


def _carrying(sealed: bytes) -> bytes:
    return _resigned(ciphertext=sealed, ct_hash=CtHash(H(sealed)))


FIRST = cast.sealed(BOUND).msg
MSG = Object(
    name="msg",
    judge=judge_msg,
    wire=Msg,
    bend="with_auth_ref",
    good=(
        Good("bulk", FIRST.encode()),
        Good("padded", cast.sealed(cast.binding(cast.DEFAULT), cast.DEFAULT).msg.encode()),
        Good("with_auth_ref", cast.sealed(WITH_TOKEN).msg.encode()),
        Good("with_attachments", cast.sealed(BOUND, attachments=TWO_FILES).msg.encode()),
        Good("later", cast.sealed(cast.binding(client_seq=24, prev_ack=2**32)).msg.encode()),
    ),
    bad=(
        Bad("auth_ref_left_out", cbor2.dumps([1, *[bytes(32)] * 8]), DecodeError, "found array of 9"),
        Bad(
            "client_id_null",
            cbor2.dumps([1, bytes(32), bytes(32), None, *[1] * 6]),
            DecodeError,
            "want bstr32",
        ),
        Bad(
            "ct_hash_other",
            _resigned(ct_hash=CtHash(bytes(32))),
            VerificationError,
            "is not the hash of the ciphertext",
        ),
        Bad("sig_flipped", flip(FIRST.encode(), -64), SignatureError, "MSG.sig (core §4.1) does not verify"),
        Bad(
            "sig_of_another_key",
            _resigned(cast.OTHER_CLIENT),
            SignatureError,
            "MSG.sig (core §4.1) does not verify",
        ),
        Bad("client_seq_changed", flip(FIRST.encode(), 104), SignatureError, "MSG.sig (core §4.1)"),
        Bad(
            "client_id_zero", _resigned(client_id=ClientId(bytes(32))), SignatureError, "MSG.sig (core §4.1)"
        ),
        Bad(
            "padding_not_zero",
            _carrying(CT + b"\x00\x01"),
            DecodeError,
            "padding contains a byte that is not",
        ),
        Bad("hdr_len_over_limit", _carrying(with_lengths(16_385, 0)), DecodeError, "max_hdr_bytes"),
        Bad("body_len_over_limit", _carrying(with_lengths(0, 1_048_321)), DecodeError, "max_body_bytes"),
        Bad("ciphertext_cut", _carrying(CT[:-1]), DecodeError, "MSG.ciphertext (core §4.2): 1"),
        Bad(
            "ciphertext_empty", _carrying(b""), DecodeError, "MSG.ciphertext (core §4.2): 0 bytes are too few"
        ),
        Bad(
            "over_max_msg_bytes",
            FIRST.encode(),
            DecodeError,
            f"exceed max_msg_bytes = {len(FIRST.encode()) - 1} (core §14.2)",
            {"limits": {"max_msg_bytes": len(FIRST.encode()) - 1}},
        ),
    ),
)

OBJECTS = (
    PROFILE,
    STREAM_ID,
    HUB_ID,
    ROUTING_KEY,
    LABEL,
    PAYLOAD_HDR,
    MSG,
)
