"""Log entries: the frame around MSG and RECEIPT (§4.8.1, B8, H5)."""

import dataclasses
import struct
from collections.abc import Callable

import pytest

from veen_core import ClientId, DecodeError, Entry, H, Ht, Label, VerificationError, mint
from veen_core.entry import (
    FLAG_AUTHORIZE,
    FRAME_SIZE,
    authorize_leaf,
    contents_of_frames,
    decode_frame,
    split_frames,
    unframe,
    verify_authorize,
)
from veen_core.errors import DecodeFault, EncodeError, InvariantError
from veen_core.ids import CtHash, StreamSeq
from veen_core.log_rules import verify_alone

from .simulator import STREAM, Hub, flip, signing_key


@pytest.fixture
def entry(hub: Hub) -> Entry:
    hub.write("bob")
    return hub.entries[0]


def test_the_frame_is_82_bytes_and_as_the_spec_lists_it(entry: Entry) -> None:
    wire = entry.encode()
    assert FRAME_SIZE == 1 + 1 + 32 + 8 + 4 + 4 + 32
    header = struct.pack(
        ">BB32sQII32s", 1, 0, entry.label, 1, len(entry.msg_bytes), len(entry.receipt_bytes), entry.entry_hash
    )
    assert wire == header + entry.msg_bytes + entry.receipt_bytes
    assert decode_frame(wire).size == len(wire)


def test_entry_hash_has_no_separator(entry: Entry) -> None:
    assert entry.entry_hash == H(b"veen/entry" + entry.msg_bytes + entry.receipt_bytes)  # B8


def test_an_entry_comes_back_from_its_bytes(entry: Entry) -> None:
    again = unframe(entry.encode())
    assert again == entry
    assert again.msg.encode() == entry.msg_bytes
    assert again.receipt.stream_seq == 1
    assert not again.is_authorize


def _rehashed(entry: Entry, **changes: object) -> bytes:
    return dataclasses.replace(entry, **changes).encode()


DAMAGE: dict[str, tuple[Callable[[Entry], bytes], str, DecodeFault]] = {
    "cut in the header": (lambda e: e.encode()[:50], "want 82 bytes of frame header", DecodeFault.SIZE),
    "nothing": (lambda _: b"", "found 0", DecodeFault.SIZE),
    "another version": (lambda e: b"\x02" + e.encode()[1:], "entry_ver .core §4.8.1.", DecodeFault.VERSION),
    "an unused flag": (lambda e: _rehashed(e, flags=0x02), "unused bits are set", DecodeFault.CBOR),
    "cut in the body": (lambda e: e.encode()[:-1], "announce", DecodeFault.SIZE),
    "a byte too many": (lambda e: e.encode() + b"\0", "announce", DecodeFault.SIZE),
    "no receipt": (lambda e: _rehashed(e, receipt_bytes=b""), "every entry has a RECEIPT", DecodeFault.SIZE),
    "a flipped message": (lambda e: flip(e.encode(), 100), "entry_hash", DecodeFault.CBOR),
    "a flipped receipt": (lambda e: flip(e.encode(), -1), "entry_hash", DecodeFault.CBOR),
    "a flipped hash": (lambda e: flip(e.encode(), 60), "entry_hash", DecodeFault.CBOR),
    "another stream_seq": (
        lambda e: _rehashed(e, stream_seq=StreamSeq(2)),
        "differ in label or",
        DecodeFault.CBOR,
    ),
    "another label": (lambda e: _rehashed(e, label=bytes(32)), "differ in label or", DecodeFault.CBOR),
    "a receipt that is none": (
        lambda e: _rehashed(e, receipt_bytes=b"\x80"),
        "RECEIPT .core §4.3.",
        DecodeFault.CBOR,
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_entry_is_refused(entry: Entry, name: str) -> None:
    damage, match, fault = DAMAGE[name]
    with pytest.raises(DecodeError, match=match) as caught:
        unframe(damage(entry))
    assert caught.value.fault is fault


def test_a_chunk_is_split_into_its_entries_in_order(hub: Hub) -> None:
    hub.write("bob", b"1", b"2", b"3")
    assert list(split_frames(b"".join(e.encode() for e in hub.entries))) == hub.entries
    assert list(split_frames(b"")) == []


@pytest.mark.parametrize("name", DAMAGE)
def test_contents_are_not_taken_from_a_damaged_entry(entry: Entry, name: str) -> None:
    """Everything that ``unframe`` refuses; an empty file has no entry."""
    assert contents_of_frames(DAMAGE[name][0](entry), entry.label, entry.stream_seq, 0, 9) in (None, ([], 0))


def test_contents_are_the_bytes_of_the_entries_that_were_asked_for(hub: Hub) -> None:
    hub.write("bob", b"1", b"2", b"3")
    label, frames = hub.entries[0].label, [entry.encode() for entry in hub.entries]
    data = b"".join(frames)
    whole = [(e.msg_bytes, e.receipt_bytes, e.flags) for e in hub.entries]
    assert contents_of_frames(data, label, StreamSeq(1), 0, 9) == (whole, len(data))
    assert contents_of_frames(data, label, StreamSeq(1), 0, 2) == (whole[:2], len(frames[0] + frames[1]))
    assert contents_of_frames(data, label, StreamSeq(2), len(frames[0]), 9) == (whole[1:], len(data))
    assert contents_of_frames(data, label, StreamSeq(2), 0, 9) is None
    assert contents_of_frames(data, Label(bytes(32)), StreamSeq(1), 0, 9) is None
    assert contents_of_frames(frames[0] + frames[2], label, StreamSeq(1), 0, 9) is None


def test_no_flipped_byte_is_taken_for_contents(hub: Hub) -> None:
    """No hash covers the flag of a control entry; ``log_rules`` compares it with the RECEIPT."""
    hub.write("bob", b"1", b"2")
    label, data = hub.entries[0].label, b"".join(entry.encode() for entry in hub.entries)
    flags = {1, len(hub.entries[0].encode()) + 1}
    taken = {at for at in range(len(data)) if contents_of_frames(flip(data, at), label, StreamSeq(1), 0, 9)}
    assert taken <= flags


@pytest.mark.parametrize(
    "cut", [-1, -200, 82 + 10], ids=["in a receipt", "in a message", "in the first entry"]
)
def test_damage_in_a_chunk_is_located_and_nothing_is_skipped(hub: Hub, cut: int) -> None:
    hub.write("bob", b"1", b"2")
    chunk = b"".join(e.encode() for e in hub.entries)[:cut]
    at = 0 if cut > 0 else len(hub.entries[0].encode())
    with pytest.raises(DecodeError, match=f"entry at byte {at}: entry"):
        list(split_frames(chunk))


@pytest.mark.parametrize("stream_seq", [-1, 2**64], ids=["negative", "too large"])
def test_a_field_that_does_not_fit_the_frame_is_refused(entry: Entry, stream_seq: int) -> None:
    with pytest.raises(EncodeError, match="does not fit its frame"):
        _rehashed(entry, stream_seq=stream_seq)


# --- control entries (H5)


@pytest.fixture
def control(hub: Hub) -> Entry:
    hub.authorize(mint(signing_key("admin"), ClientId(bytes(32)), [STREAM], ttl=60))
    return hub.entries[-1]


def test_a_control_entry_carries_the_token_and_replays_issued_at(hub: Hub, control: Entry) -> None:
    assert control.is_authorize
    token = verify_authorize(unframe(control.encode()))
    assert token.encode() == control.msg_bytes
    assert control.receipt.hub_ts == hub.now
    assert control.receipt.leaf_hash == Ht("veen/authorize", token.auth_ref + H(control.msg_bytes))


def test_a_control_entry_with_another_token_is_refused(control: Entry) -> None:
    other = mint(signing_key("admin"), ClientId(bytes(32)), [STREAM], ttl=61).encode()
    with pytest.raises(VerificationError, match="not the leaf hash of the entry's token"):
        verify_authorize(dataclasses.replace(control, msg_bytes=other))


def test_a_message_cannot_pass_as_a_token(entry: Entry) -> None:
    with pytest.raises(DecodeError, match="cap_token"):
        verify_authorize(dataclasses.replace(entry, flags=FLAG_AUTHORIZE))


def test_the_leaf_of_a_token_is_in_a_domain_of_its_own(entry: Entry, control: Entry) -> None:
    token = verify_authorize(control)
    assert authorize_leaf(token.auth_ref, control.msg_bytes) != entry.msg.leaf_hash


# --- the pair in the frame (§4.8.1: reject what violates §7)


def _paired(entry: Entry, **changes: object) -> Entry:
    """With a RECEIPT that follows the changed MSG, and a frame around both."""
    msg = dataclasses.replace(entry.msg, **changes)
    receipt = dataclasses.replace(entry.receipt, leaf_hash=msg.leaf_hash)
    return dataclasses.replace(entry, msg_bytes=msg.encode(), receipt_bytes=receipt.encode())


MISPAIRED: dict[str, tuple[Callable[[Entry, Hub], Entry], type[Exception], str]] = {
    "garbage for a message": (
        lambda e, _: dataclasses.replace(e, msg_bytes=b"garbage"),
        InvariantError,
        "I10: MSG",
    ),
    "another message": (
        lambda e, hub: dataclasses.replace(e, msg_bytes=hub.compose("bob").encode()),
        InvariantError,
        "I2: leaf_hash is not the leaf hash of the MSG",
    ),
    "a message of another label": (
        lambda e, _: dataclasses.replace(
            e, msg_bytes=dataclasses.replace(e.msg, label=Label(bytes(32))).encode()
        ),
        InvariantError,
        "I2: the MSG and its RECEIPT differ in label",
    ),
    "another ciphertext": (
        lambda e, _: _paired(e, ciphertext=e.msg.ciphertext + bytes(1)),
        InvariantError,
        "I1:",
    ),
    "a ciphertext of no layout": (
        lambda e, _: _paired(e, ciphertext=b"x", ct_hash=CtHash(H(b"x"))),
        InvariantError,
        "I11:",
    ),
    "a token where a message should be": (
        lambda e, _: dataclasses.replace(
            e, msg_bytes=mint(signing_key("admin"), ClientId(bytes(32)), [STREAM], ttl=60).encode()
        ),
        InvariantError,
        "I10: MSG",
    ),
    "a message where a token should be": (
        lambda e, _: dataclasses.replace(e, flags=FLAG_AUTHORIZE),
        InvariantError,
        "I10: cap_token",
    ),
}


@pytest.mark.parametrize("name", MISPAIRED)
def test_an_entry_with_the_receipt_of_another_message_is_refused(entry: Entry, hub: Hub, name: str) -> None:
    mispair, error, match = MISPAIRED[name]
    wire = mispair(entry, hub).encode()
    with pytest.raises(error, match=match):
        verify_alone(unframe(wire))
    assert unframe(wire).encode() == wire  # the frame says nothing about the pair
    assert [one.encode() for one in split_frames(entry.encode() + wire)] == [entry.encode(), wire]


def test_a_control_entry_of_another_token_is_refused(control: Entry) -> None:
    other = mint(signing_key("admin"), ClientId(bytes(32)), [STREAM], ttl=61).encode()
    wire = dataclasses.replace(control, msg_bytes=other).encode()
    verify_alone(control)
    with pytest.raises(
        InvariantError, match="H5: leaf_hash in the RECEIPT is not the leaf hash of the entry's token"
    ):
        verify_alone(unframe(wire))
