"""Vectors of the ciphertext and of attachments (§4.2, §4.6, B5, B6)."""

from __future__ import annotations

import dataclasses
from typing import Any

import cbor2
from nacl import bindings

from veen_core import attachment, ciphertext, hpke
from veen_core.attached import Attached, AttachmentRef
from veen_core.ciphertext import Binding, Sealer, open_ciphertext
from veen_core.errors import DecodeError, OpenError
from veen_core.hashing import H
from veen_core.ids import (
    AttRoot,
    AuthRef,
    ClientId,
    ClientSeq,
    Coid,
    Label,
    LeafHash,
    ProfileId,
    StreamSeq,
    UnixTime,
)
from veen_core.keys import DhKey, DhSecret
from veen_core.limits import DEFAULT_LIMITS
from veen_core.payload import PayloadHeader
from veen_core.profile import Profile

from . import cast
from .case import Bad, Context, Good, Object, decoded, readable, unhex
from .crooked import flip

AUTH_REF = cast.token().auth_ref
FULL_HEADER = PayloadHeader(
    schema=cast.SCHEMA,
    parent_id=LeafHash(H(b"parent")),
    att_root=AttRoot(H(b"attachments")),
    cap_ref=AUTH_REF,
    expires_at=UnixTime(cast.BORN + 86_400),
)
TWO_FILES = (b"the first attachment", b"")


# --- ciphertext


def _bound(context: Context) -> Binding:
    given = context["binding"]
    return Binding(
        profile_id=ProfileId(unhex(given, "profile_id")),
        label=Label(unhex(given, "label")),
        client_id=ClientId(unhex(given, "client_id")),
        client_seq=ClientSeq(given["client_seq"]),
        prev_ack=StreamSeq(given["prev_ack"]),
        auth_ref=AuthRef(unhex(given, "auth_ref")) if given["auth_ref"] else None,
    )


def _context(bound: Binding, **more: Any) -> dict[str, Any]:
    fields = {name: getattr(bound, name) for name in Binding.__slots__}
    spelt = {name: value.hex() if isinstance(value, bytes) else value for name, value in fields.items()}
    return {"binding": spelt, "reader_secret": bytes(cast.READER.secret).hex(), **more}


def judge_ciphertext(wire: bytes, context: Context) -> Any:
    """Open it, attachments too; then seal it again with the same ephemeral key: the same bytes."""
    bound, reader = _bound(context), DhKey(DhSecret(unhex(context, "reader_secret")))
    opened = open_ciphertext(reader, bound, wire, DEFAULT_LIMITS.lowered(context.get("limits", {})))
    files = [bytes.fromhex(text) for text in context.get("attachments", ())]
    attachment.check_attachments(
        opened.header.att_root, [Coid(H(file)) for file in files], list(map(len, files)), DEFAULT_LIMITS
    )
    plain = [opened.attachment(index, file) for index, file in enumerate(files)]
    sealer = Sealer(reader.public, bound, DhSecret(unhex(context, "ephemeral")))
    if [sealer.attach(text).ciphertext for text in plain] != files:
        raise AssertionError("the attachments do not seal again to the same bytes")
    if sealer.seal(opened.header, opened.body, pad_block=context["pad_block"]) != wire:
        raise AssertionError("it does not seal again to the same bytes")
    return {
        "header": readable(opened.header),
        "body": opened.body.hex(),
        "attachments": [text.hex() for text in plain],
        "aad": bound.aad.hex(),
        "nonce": bound.nonce.hex(),
        "draft_id": bound.draft_id.hex(),
        "ct_hash": H(wire).hex(),
    }


def _sealed(name: str, bound: Binding, profile: Profile, **how: Any) -> Good:
    made = cast.sealed(bound, profile, **how)
    context = _context(
        bound,
        ephemeral=bytes(cast.EPHEMERAL).hex(),
        pad_block=profile.pad_block,
        attachments=[file.ciphertext.hex() for file in made.attachments],
    )
    return Good(name, made.msg.ciphertext, context)


def _crafted(bound: Binding, header: bytes, body: bytes = b"order 1") -> bytes:
    """Sealed as §4.2 says, around a header that ``Sealer`` would refuse to seal."""
    sealing = hpke.SealContext(cast.READER.public, cast.EPHEMERAL)
    head = sealing.seal(header, bound.aad)
    key = sealing.export(ciphertext.BODY_KEY)
    tail = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(body, bound.aad, bound.nonce, key)
    return sealing.enc + len(head).to_bytes(4, "big") + len(tail).to_bytes(4, "big") + head + tail


BOUND, WITH_TOKEN = cast.binding(), cast.binding(auth_ref=AUTH_REF)
PLAIN = _sealed("bulk", BOUND, cast.BULK)
PADDED = _sealed("padded", cast.binding(cast.DEFAULT), cast.DEFAULT)
ATTACHED = _sealed("with_attachments", BOUND, cast.BULK, attachments=TWO_FILES)
CT = PLAIN.wire
NULL_HEADER = cbor2.dumps({1: bytes(cast.SCHEMA), 2: None})


def with_lengths(hdr_len: int, body_len: int) -> bytes:
    return CT[:32] + hdr_len.to_bytes(4, "big") + body_len.to_bytes(4, "big") + CT[40:]


CIPHERTEXT = Object(
    name="ciphertext",
    judge=judge_ciphertext,
    good=(
        PLAIN,
        PADDED,
        _sealed("with_auth_ref", WITH_TOKEN, cast.BULK),
        ATTACHED,
        _sealed("padded_with_attachments", cast.binding(cast.DEFAULT), cast.DEFAULT, attachments=TWO_FILES),
        _sealed("empty_body", BOUND, cast.BULK, body=b""),
        _sealed("exactly_one_block", cast.binding(cast.DEFAULT), cast.DEFAULT, body=bytes(148)),
    ),
    bad=tuple(
        Bad(name, wire, error, match, context or PLAIN.context)
        for name, wire, error, match, context in (
            ("empty", b"", DecodeError, "0 bytes are too few: enc, hdr_len and body_len take 40", None),
            ("prefix_cut", CT[:39], DecodeError, "39 bytes are too few", None),
            (
                "hdr_len_over_limit",
                with_lengths(16_385, 0),
                DecodeError,
                "exceeds max_hdr_bytes = 16384",
                None,
            ),
            ("hdr_len_4_gib", with_lengths(2**32 - 1, 0), DecodeError, "hdr_len 4294967295 exceeds", None),
            ("body_len_over_limit", with_lengths(0, 1_048_321), DecodeError, "exceeds max_body_bytes", None),
            ("body_cut", CT[:-1], DecodeError, "are fewer than the", None),
            (
                "hdr_len_one_more",
                with_lengths(CT[35] + 1, CT[39] - 1),
                OpenError,
                "header does not open",
                None,
            ),
            ("padding_not_zero", flip(PADDED.wire, -1), DecodeError, "not zero", PADDED.context),
            ("padding_first_byte", CT + b"\x01\x00", DecodeError, "not zero", None),
            ("enc_zero", bytes(32) + CT[32:], OpenError, "enc is not a usable X25519 key", None),
            ("enc_other", flip(CT, 3), OpenError, "the payload header does not open", None),
            ("header_flipped", flip(CT, 41), OpenError, "the payload header does not open", None),
            ("body_none", with_lengths(CT[35], 0)[: 40 + CT[35]], OpenError, "the body does not open", None),
            ("header_none", with_lengths(0, CT[39]), DecodeError, "padding", None),
            ("body_flipped", flip(CT, -1), OpenError, "the body does not open", None),
            ("cap_ref_without_auth_ref", _crafted(BOUND, FULL_HEADER.encode()), OpenError, "cap_ref", None),
            (
                "cap_ref_not_auth_ref",
                _crafted(WITH_TOKEN, dataclasses.replace(FULL_HEADER, cap_ref=AuthRef(bytes(32))).encode()),
                OpenError,
                "payload_hdr.cap_ref (core §6): is not the auth_ref of its MSG",
                _context(WITH_TOKEN),
            ),
            (
                "header_with_null",
                _crafted(BOUND, NULL_HEADER),
                DecodeError,
                "parent_id (core §4.5): want",
                None,
            ),
            ("header_trailing", _crafted(BOUND, CT[:0] + b"\xa0\x00"), DecodeError, "not canonical", None),
            (
                "other_client_seq",
                CT,
                OpenError,
                "the payload header does not open",
                _context(cast.binding(client_seq=2)),
            ),
            ("other_prev_ack", CT, OpenError, "does not open", _context(cast.binding(prev_ack=1))),
            ("other_auth_ref", CT, OpenError, "does not open", _context(WITH_TOKEN)),
            (
                "other_reader",
                CT,
                OpenError,
                "another reader key",
                _context(BOUND) | {"reader_secret": bytes(cast.OTHER_READER.secret).hex()},
            ),
            (
                "attachments_swapped",
                ATTACHED.wire,
                OpenError,
                "att_root (core §4.6): is not the root of these attachments",
                {**ATTACHED.context, "attachments": ATTACHED.context["attachments"][::-1]},
            ),
            (
                "attachment_left_out",
                ATTACHED.wire,
                OpenError,
                "att_root (core §4.6): is not the root",
                {**ATTACHED.context, "attachments": ATTACHED.context["attachments"][:1]},
            ),
        )
    ),
)


# --- attachments


def judge_attachment(wire: bytes, context: Context) -> Any:
    key, draft, index = unhex(context, "key"), LeafHash(unhex(context, "draft_id")), context["index"]
    plain = attachment.open_(key, draft, index, wire)
    made = attachment.seal(key, draft, index, plain)
    if made.ciphertext != wire:
        raise AssertionError("it does not seal again to the same bytes")
    return {"plaintext": plain.hex(), "coid": made.coid.hex(), "nonce": attachment.nonce(draft, index).hex()}


ATT_KEY, ATT_DRAFT = H(b"k_att"), BOUND.draft_id
ATT_CONTEXT = {"key": ATT_KEY.hex(), "draft_id": ATT_DRAFT.hex(), "index": 0}
ONE_FILE = attachment.seal(ATT_KEY, ATT_DRAFT, 0, TWO_FILES[0]).ciphertext
ATTACHMENT = Object(
    name="attachment",
    judge=judge_attachment,
    good=(
        Good("first", ONE_FILE, ATT_CONTEXT),
        Good(
            "last",
            attachment.seal(ATT_KEY, ATT_DRAFT, 1_023, b"last").ciphertext,
            ATT_CONTEXT | {"index": 1_023},
        ),
        Good("empty", attachment.seal(ATT_KEY, ATT_DRAFT, 0, b"").ciphertext, ATT_CONTEXT),
    ),
    bad=tuple(
        Bad(name, wire, OpenError, "does not open: altered, or from another message", ATT_CONTEXT | change)
        for name, wire, change in (
            ("other_index", ONE_FILE, {"index": 1}),
            ("other_message", ONE_FILE, {"draft_id": "00" * 32}),
            ("other_key", ONE_FILE, {"key": "00" * 32}),
            ("flipped", flip(ONE_FILE, 0), {}),
            ("shorter_than_a_tag", ONE_FILE[:15], {}),
        )
    ),
)


def judge_att_root(wire: bytes, context: Context) -> Any:
    coids = [Coid(bytes.fromhex(text)) for text in context["coids"]]
    claimed = AttRoot(wire) if wire else None
    limits = DEFAULT_LIMITS.lowered(context.get("limits", {}))
    attachment.check_attachments(claimed, coids, context["sizes"], limits)
    return {"att_root": attachment.att_root(coids).hex()}


def _coids(count: int, **more: Any) -> dict[str, Any]:
    return {"coids": [H(b"%d" % n).hex() for n in range(count)], "sizes": [1] * count, **more}


def _att_root(count: int) -> AttRoot:
    return attachment.att_root([Coid(bytes.fromhex(text)) for text in _coids(count)["coids"]])


ATT_ROOT = Object(
    name="att_root",
    judge=judge_att_root,
    good=tuple(
        Good(name, _att_root(count), _coids(count))
        for name, count in (("none", 0), ("one", 1), ("two", 2), ("three", 3), ("seven", 7), ("eight", 8))
    ),
    bad=(
        Bad("one_too_few", _att_root(3), OpenError, "is not the root", _coids(2)),
        Bad("one_bare", bytes.fromhex(_coids(1)["coids"][0]), OpenError, "is not the root", _coids(1)),
        Bad("not_claimed", b"", OpenError, "2 attachments, but payload_hdr has no att_root", _coids(2)),
        Bad("short", b"\x00" * 31, DecodeError, "want AttRoot of 32 bytes, found 31", _coids(1)),
        Bad(
            "too_many",
            _att_root(3),
            OpenError,
            "3 attachments exceed max_attachments_per_msg = 2",
            _coids(3, limits={"max_attachments_per_msg": 2}),
        ),
        Bad(
            "too_large",
            _att_root(3),
            OpenError,
            "an attachment exceeds max_attachment_bytes = 0",
            _coids(3, limits={"max_attachment_bytes": 0}),
        ),
    ),
)


ATTACHED = Object(
    name="attached",
    judge=decoded(Attached),
    wire=Attached,
    good=(
        Good(
            "two",
            Attached(
                schema=cast.SCHEMA,
                body=b"order 1",
                attachments=(
                    AttachmentRef(coid=Coid(H(b"first")), size=5),
                    AttachmentRef(coid=Coid(H(b"second")), size=6),
                ),
            ).encode(),
        ),
    ),
    bad=(Bad("empty", b"\xa0", DecodeError, "attached.ver (core §4.6): missing"),),
)
OBJECTS = (CIPHERTEXT, ATTACHMENT, ATT_ROOT, ATTACHED)
