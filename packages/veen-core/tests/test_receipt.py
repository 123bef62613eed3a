"""RECEIPT (§4.3): the fast encoder writes the same bytes as the codec."""

import pytest

from veen_core.hashing import H, Ht
from veen_core.ids import HubPk, Label, LeafHash, MmrRoot, StreamSeq, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.mmr import Mmr
from veen_core.receipt import (
    Receipt,
    encoded_size,
    sign_receipt,
    signed_bytes,
    signing_digest,
    unsigned_bytes,
    verify_receipt,
)

HUB = SigningKey(SigningSeed(b"\x07" * 32))
EDGES = [1, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**64 - 1]


@pytest.mark.parametrize("seq", EDGES)
def test_a_receipt_built_without_the_codec_has_the_same_bytes(seq: int) -> None:
    for hub_ts in EDGES:
        _check_built_by_hand(seq, hub_ts)


def _check_built_by_hand(seq: int, hub_ts: int) -> None:
    fields = (Label(H(b"label")), StreamSeq(seq), LeafHash(H(b"leaf")), MmrRoot(H(b"root")), UnixTime(hub_ts))
    names = ("label", "stream_seq", "leaf_hash", "mmr_root", "hub_ts")
    receipt = sign_receipt(HUB, Receipt(**dict(zip(names, fields, strict=True))))
    six = unsigned_bytes(*fields)

    assert Ht("veen/sig", six) == signing_digest(receipt.encode())
    assert signed_bytes(six, HUB.sign(Ht("veen/sig", six))) == receipt.encode()
    assert encoded_size(StreamSeq(seq), UnixTime(hub_ts)) == len(receipt.encode())
    verify_receipt(receipt, HubPk(HUB.public))


def test_adding_leaves_for_the_root_only_gives_the_same_tree() -> None:
    kept, counted = Mmr(), Mmr()
    for number in range(100):
        kept.append(leaf := H(bytes([number])))
        counted.add(leaf)
        assert kept == counted
