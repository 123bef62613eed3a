"""MSG and its ciphertext: shape, binding, signature (§4.1, §4.2, §4.5)."""

import dataclasses
from collections.abc import Callable

import pytest

from veen_core import (
    DEFAULT_LIMITS,
    DEFAULT_PROFILE,
    PROFILES,
    ClientId,
    DecodeError,
    H,
    Ht,
    Label,
    LeafHash,
    Msg,
    PayloadHeader,
    VerificationError,
    cbor,
    operation_id,
    seal_msg,
    verify_msg,
)
from veen_core.attachment import EMPTY_ATT_ROOT
from veen_core.ciphertext import PREFIX_SIZE, Sealer, pad, split
from veen_core.errors import DecodeFault, OpenError, SignatureError, StateError
from veen_core.hashing import u64be
from veen_core.ids import AttRoot, AuthRef, ClientSeq, CtHash, ProfileId, SchemaId, Signature, StreamSeq
from veen_core.keys import DhSecret
from veen_core.msg import check_ct_hash, sign_msg, signing_digest

from .simulator import READER, SCHEMA, Hub, dh_key, flip, seal, signing_key


@pytest.fixture
def msg(hub: Hub) -> Msg:
    return hub.compose("bob", b"hello")


# --- shape and signature (§4.1)


def test_a_message_is_an_array_of_ten(msg: Msg) -> None:
    items = cbor.decode(msg.encode())
    assert items == [
        1,
        msg.profile_id,
        msg.label,
        msg.client_id,
        1,
        0,
        None,
        msg.ct_hash,
        msg.ciphertext,
        msg.sig,
    ]


def test_an_auth_ref_takes_the_place_of_the_null(hub: Hub) -> None:
    with_ref = hub.compose("bob", auth_ref=AuthRef(bytes(32)))
    assert cbor.decode(with_ref.encode())[6] == bytes(32)
    assert verify_msg(with_ref.encode())[0] == with_ref


def test_the_signature_covers_the_array_without_it(msg: Msg) -> None:
    nine = cbor.encode(cbor.decode(msg.encode())[:9])
    assert signing_digest(msg.encode()) == Ht("veen/sig", nine)
    assert msg.sig == signing_key("bob").sign(Ht("veen/sig", nine))


def test_a_message_verifies_on_its_own(msg: Msg) -> None:
    assert verify_msg(msg.encode()) == (msg, msg.leaf_hash)


def test_msg_id_is_the_leaf_hash(msg: Msg) -> None:
    leaf = Ht("veen/leaf", msg.label + msg.profile_id + msg.ct_hash + msg.client_id + u64be(msg.client_seq))
    assert msg.leaf_hash == leaf
    assert operation_id(LeafHash(leaf)) == Ht("veen/operation-id", leaf)  # spec-3 §1


@pytest.mark.parametrize(
    ("change", "error"),
    [
        pytest.param({"label": Label(bytes(32))}, SignatureError, id="label"),
        pytest.param({"profile_id": ProfileId(bytes(32))}, SignatureError, id="profile_id"),
        pytest.param({"client_id": ClientId(signing_key("x").public)}, SignatureError, id="client_id"),
        pytest.param({"client_seq": ClientSeq(2)}, SignatureError, id="client_seq"),
        pytest.param({"prev_ack": StreamSeq(1)}, SignatureError, id="prev_ack"),
        pytest.param({"auth_ref": AuthRef(bytes(32))}, SignatureError, id="auth_ref"),
        pytest.param({"sig": Signature(bytes(64))}, SignatureError, id="sig"),
        pytest.param({"ct_hash": CtHash(bytes(32))}, VerificationError, id="ct_hash"),
        pytest.param({"ciphertext": bytes(40)}, VerificationError, id="ciphertext"),
    ],
)
def test_no_field_can_be_changed(msg: Msg, change: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        verify_msg(dataclasses.replace(msg, **change).encode())


def test_ct_hash_is_the_hash_of_the_padded_ciphertext(msg: Msg) -> None:
    assert msg.ct_hash == H(msg.ciphertext)
    check_ct_hash(msg)


def test_a_key_signs_for_its_own_client_id_only(msg: Msg) -> None:
    with pytest.raises(VerificationError, match="cannot sign for client_id"):
        sign_msg(signing_key("mallory"), msg.binding, msg.ciphertext)


def test_a_sealed_message_comes_with_its_encoding(msg: Msg) -> None:
    sealed = seal_msg(
        signing_key("bob"),
        READER.public,
        msg.binding,
        PayloadHeader(schema=SCHEMA),
        b"hello",
        profile=DEFAULT_PROFILE,
        ephemeral=DhSecret(bytes(32)),
    )
    assert sealed.wire == sealed.msg.encode()
    assert sealed.attachments == ()


def _seal(msg: Msg, **changes: object) -> object:
    how: dict[str, object] = {
        "binding": msg.binding,
        "header": PayloadHeader(schema=SCHEMA),
        "body": b"hello",
        "profile": DEFAULT_PROFILE,
        "ephemeral": DhSecret(bytes(32)),
    } | changes
    return seal_msg(signing_key("bob"), READER.public, **how)  # type: ignore[arg-type]


def test_a_message_is_sealed_by_the_profile_it_names(msg: Msg) -> None:
    with pytest.raises(VerificationError, match="is not the id of the given profile"):
        _seal(msg, profile=PROFILES["bulk"])


def test_a_message_is_not_sealed_under_client_seq_0(msg: Msg) -> None:
    with pytest.raises(VerificationError, match="client_seq starts at 1"):  # B16
        _seal(msg, binding=dataclasses.replace(msg.binding, client_seq=ClientSeq(0)))


def test_an_att_root_without_attachments_is_refused(msg: Msg) -> None:
    _seal(msg, header=PayloadHeader(schema=SCHEMA, att_root=EMPTY_ATT_ROOT))
    with pytest.raises(VerificationError, match=r"att_root .core §4\.6.: is set, but"):
        _seal(msg, header=PayloadHeader(schema=SCHEMA, att_root=AttRoot(bytes(32))))


def test_a_sealer_seals_once(msg: Msg) -> None:
    sealer = Sealer(READER.public, msg.binding, DhSecret(b"\x07" * 32))
    sealer.attach(b"a")
    header = PayloadHeader(schema=SCHEMA)
    sealer.seal(header, b"first", pad_block=0)
    with pytest.raises(StateError, match="make a new one"):
        sealer.seal(header, b"other", pad_block=0)  # the same key and nonce
    with pytest.raises(StateError, match="make a new one"):
        sealer.attach(b"b")  # the header is sealed and cannot commit to it


def test_padding_beyond_the_largest_message_is_refused_before_it_is_made(msg: Msg) -> None:
    sealer = Sealer(READER.public, msg.binding, DhSecret(bytes(32)))
    with pytest.raises(DecodeError, match="exceeds max_msg_bytes = 1048576"):
        sealer.seal(PayloadHeader(schema=SCHEMA), b"", pad_block=2**50)  # more memory than there is
    small = DEFAULT_LIMITS.lowered({"max_msg_bytes": 255})
    with pytest.raises(DecodeError, match="pad_block = 256 exceeds max_msg_bytes = 255"):
        sealer.seal(PayloadHeader(schema=SCHEMA), b"", pad_block=256, limits=small)


# --- opening (§4.2)


def test_the_reader_gets_header_and_body(msg: Msg) -> None:
    opened = msg.open(READER)
    assert (opened.header, opened.body) == (PayloadHeader(schema=SCHEMA), b"hello")


def test_an_empty_body_opens(hub: Hub) -> None:
    assert hub.compose("bob", b"").open(READER).body == b""


def test_another_reader_gets_nothing(msg: Msg) -> None:
    with pytest.raises(OpenError, match="another reader key"):
        msg.open(dh_key("somebody else"))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"profile_id": ProfileId(bytes(32))}, id="profile_id"),
        pytest.param({"label": Label(bytes(32))}, id="label"),
        pytest.param({"client_id": ClientId(bytes(32))}, id="client_id"),
        pytest.param({"client_seq": ClientSeq(2)}, id="client_seq"),
        pytest.param({"prev_ack": StreamSeq(1)}, id="prev_ack"),
        pytest.param({"auth_ref": AuthRef(b"\x01" * 32)}, id="auth_ref"),
    ],
)
def test_a_ciphertext_opens_under_no_other_binding(msg: Msg, change: dict[str, object]) -> None:
    with pytest.raises(OpenError, match="an altered MSG"):
        dataclasses.replace(msg, **change).open(READER)


def test_the_associated_data_binds_the_fields_of_the_message(hub: Hub) -> None:
    b = hub.compose("bob", auth_ref=AuthRef(b"\x07" * 32)).binding
    fields = b.profile_id + b.label + b.client_id + u64be(b.client_seq) + u64be(b.prev_ack)
    assert b.aad == Ht("veen/aad", fields + b"\x07" * 32)
    assert dataclasses.replace(b, auth_ref=None).aad == Ht("veen/aad", fields + bytes(32))
    nonce = Ht("veen/nonce", b.label + u64be(b.prev_ack) + b.client_id + u64be(b.client_seq))[:24]
    assert b.nonce == nonce


def test_a_body_of_another_message_is_refused(hub: Hub) -> None:
    one, two = (hub.compose("bob", body).ciphertext for body in (b"aaaaa", b"bbbbb"))
    body_at = PREFIX_SIZE + len(split(one).header)
    mixed = dataclasses.replace(hub.compose("bob"), ciphertext=one[:body_at] + two[body_at:])
    with pytest.raises(OpenError, match="the body does not open"):
        mixed.open(READER)


def _with_body(ciphertext: bytes, body: bytes) -> bytes:
    parts = split(ciphertext)
    lengths = len(parts.header).to_bytes(4, "big") + len(body).to_bytes(4, "big")
    return parts.enc + lengths + parts.header + body


@pytest.mark.parametrize("body", [b"", b"short"], ids=["nothing", "less than a tag"])
def test_a_body_shorter_than_a_tag_is_refused(msg: Msg, body: bytes) -> None:
    broken = dataclasses.replace(msg, ciphertext=_with_body(msg.ciphertext, body))
    with pytest.raises(OpenError):
        broken.open(READER)


def test_a_header_shorter_than_a_tag_is_refused(msg: Msg) -> None:
    broken = dataclasses.replace(msg, ciphertext=split(msg.ciphertext).enc + bytes(8))
    with pytest.raises(OpenError):
        broken.open(READER)


# --- layout and padding


@pytest.mark.parametrize("name", ["default", "bulk", "rotating"])
def test_padding_extends_to_a_multiple_of_the_block(name: str) -> None:
    profile = PROFILES[name]
    length = len(Hub(profile=profile).compose("bob").ciphertext)
    assert length % profile.pad_block == 0 if profile.pad_block else length < 256


def test_padding_is_zeros_to_the_next_multiple() -> None:
    assert pad(b"abc", 4) == b"abc\0"
    assert pad(b"abcd", 4) == b"abcd"
    assert pad(b"abc", 0) == b"abc"


LAYOUTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "too short for its prefix": (lambda c: c[:39], "too few: enc, hdr_len and body_len"),
    "shorter than announced": (lambda c: c[:60], "fewer than the"),
    "padding that is not zero": (lambda c: flip(c, -1), "the padding contains a byte that is not zero"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_ciphertext_of_another_layout_is_refused(msg: Msg, name: str) -> None:
    damage, match = LAYOUTS[name]
    with pytest.raises(DecodeError, match=match) as caught:
        split(damage(msg.ciphertext))
    assert caught.value.fault is DecodeFault.SIZE
    assert caught.value.where == "MSG.ciphertext (core §4.2)"


def test_any_amount_of_zero_padding_is_ignored(msg: Msg) -> None:
    assert split(msg.ciphertext + bytes(1_000)) == split(msg.ciphertext)


# --- payload header (§4.5)


def test_optional_fields_are_omitted() -> None:
    assert cbor.decode(PayloadHeader(schema=SCHEMA).encode()) == {1: SCHEMA}


@pytest.mark.parametrize(
    ("items", "match"),
    [
        pytest.param({}, "schema .core §4.5.: missing", id="no schema"),
        pytest.param({1: SCHEMA, 2: None}, "parent_id", id="null"),
        pytest.param({1: SCHEMA, 6: 1}, "unknown key", id="an unknown key"),
        pytest.param({1: SCHEMA, 5: -1}, "want uint", id="a negative expiry"),
    ],
)
def test_a_header_of_another_shape_is_refused(items: dict[int, object], match: str) -> None:
    with pytest.raises(DecodeError, match=match):
        PayloadHeader.decode(cbor.encode(items))


def test_cap_ref_must_be_the_messages_auth_ref(hub: Hub) -> None:
    ref = AuthRef(b"\x01" * 32)
    binding = hub.compose("bob", auth_ref=ref).binding
    header = PayloadHeader(schema=SchemaId(bytes(32)), cap_ref=ref)
    assert seal(signing_key("bob"), binding, header=header).open(READER).header == header
    for other in (None, AuthRef(b"\x02" * 32)):
        with pytest.raises(OpenError, match=r"cap_ref .core §6."):
            seal(signing_key("bob"), dataclasses.replace(binding, auth_ref=other), header=header)
