"""``field_layout`` accepts only bytes that veen_core decodes, and finds the same values."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from veen_core.errors import DecodeError
from veen_core.hub_log import LabelHead
from veen_core.ids import (
    AuthRef,
    ClientId,
    ClientSeq,
    CtHash,
    Label,
    LeafHash,
    MmrRoot,
    ProfileId,
    Signature,
    StreamSeq,
    UnixTime,
)
from veen_core.msg import Msg
from veen_core.receipt import Receipt
from veen_spark.read import field_layout

EDGES = [0, 1, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
numbers = st.sampled_from(EDGES) | st.integers(0, 2**64 - 1)
hashes = st.binary(min_size=32, max_size=32)
signatures = st.binary(min_size=64, max_size=64).map(Signature)
receipts = st.builds(
    Receipt,
    label=hashes.map(Label),
    stream_seq=numbers.map(StreamSeq),
    leaf_hash=hashes.map(LeafHash),
    mmr_root=hashes.map(MmrRoot),
    hub_ts=numbers.map(UnixTime),
    hub_sig=signatures,
)
heads = st.builds(
    LabelHead,
    label=hashes.map(Label),
    upto_seq=numbers.map(StreamSeq),
    mmr_root=hashes.map(MmrRoot),
    hub_ts=numbers.map(UnixTime),
)
msgs = st.builds(
    Msg,
    profile_id=hashes.map(ProfileId),
    label=hashes.map(Label),
    client_id=hashes.map(ClientId),
    client_seq=numbers.map(ClientSeq),
    prev_ack=numbers.map(StreamSeq),
    auth_ref=st.none() | hashes.map(AuthRef),
    ct_hash=hashes.map(CtHash),
    ciphertext=st.binary(max_size=300) | st.sampled_from([23, 24, 255, 256, 65_536]).map(bytes),
    sig=signatures,
)
changes = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 255), st.sampled_from(["set", "cut", "add"])), max_size=3
)


def changed(wire: bytes, how: list[tuple[int, int, str]]) -> bytes:
    for at, byte, what in how:
        at %= max(1, len(wire))  # noqa: PLW2901 - into the object
        tail = {"set": wire[at + 1 :], "cut": wire[at + 1 :], "add": wire[at:]}[what]
        wire = wire[:at] + (b"" if what == "cut" else bytes([byte])) + tail
    return wire


def laid(wire: bytes) -> tuple[field_layout.Bytes, field_layout.Ints, field_layout.Ints]:
    data = np.frombuffer(wire + bytes(field_layout.PAD_BYTES), dtype=np.uint8)
    return data, np.array([0], dtype=np.int64), np.array([len(wire)], dtype=np.int64)


def small(*values: int) -> bool:
    return all(value < 2**63 for value in values)


@given(receipts, changes)
def test_a_recognized_receipt_decodes_to_the_same_values(
    receipt: Receipt, how: list[tuple[int, int, str]]
) -> None:
    wire = changed(receipt.encode(), how)
    data, at, size = laid(wire)
    found = field_layout.receipts(data, at, size)
    try:
        held = Receipt.decode(wire)
    except DecodeError:
        assert not found.ok[0]
        return
    assert found.ok[0] == small(held.stream_seq, held.hub_ts)
    if found.ok[0]:
        assert (found.stream_seq[0], found.hub_ts[0]) == (held.stream_seq, held.hub_ts)
        for place, value in (("label", held.label), ("leaf", held.leaf_hash), ("root", held.mmr_root)):
            assert field_layout.fixed(data, getattr(found, f"{place}_at"))[0].tobytes() == value


@given(heads, changes)
def test_a_recognized_label_head_decodes_to_the_same_values(
    head: LabelHead, how: list[tuple[int, int, str]]
) -> None:
    wire = changed(head.encode(), how)
    data, at, size = laid(wire)
    found = field_layout.label_heads(data, at, size)
    try:
        held = LabelHead.decode(wire)
    except DecodeError:
        assert not found.ok[0]
        return
    assert found.ok[0] == small(held.upto_seq, held.hub_ts)
    if found.ok[0]:
        assert (found.upto_seq[0], found.hub_ts[0]) == (held.upto_seq, held.hub_ts)
        for place, value in (("label", held.label), ("root", held.mmr_root)):
            assert field_layout.fixed(data, getattr(found, f"{place}_at"))[0].tobytes() == value


@given(msgs, changes)
def test_a_recognized_msg_decodes_to_the_same_values(msg: Msg, how: list[tuple[int, int, str]]) -> None:
    wire = changed(msg.encode(), how)
    data, at, size = laid(wire)
    found = field_layout.msgs(data, at, size)
    try:
        held = Msg.decode(wire)
    except DecodeError:
        assert not found.ok[0]
        return
    assert found.ok[0] == small(held.client_seq, held.prev_ack)
    if found.ok[0]:
        assert (found.client_seq[0], found.prev_ack[0]) == (held.client_seq, held.prev_ack)
        places = (("profile", held.profile_id), ("label", held.label), ("client", held.client_id))
        for place, value in (*places, ("ct_hash", held.ct_hash)):
            assert field_layout.fixed(data, getattr(found, f"{place}_at"))[0].tobytes() == value
        assert bool(found.gated[0]) == (held.auth_ref is not None)
        if held.auth_ref is not None:
            assert field_layout.fixed(data, found.auth_at)[0].tobytes() == held.auth_ref
        start = int(found.ct_at[0])
        assert wire[start : start + int(found.ct_size[0])] == held.ciphertext
