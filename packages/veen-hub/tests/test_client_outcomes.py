"""The hub's answer to a batch: every form of it is decoded, and nothing else (H14)."""

from __future__ import annotations

import pytest

from veen_core.api import ErrorEnvelope, SubmitResponse
from veen_core.hashing import H
from veen_core.ids import Label, LeafHash, MmrRoot, StreamSeq, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.receipt import Receipt, sign_receipt
from veen_hub.client import Misbehaved, Refused
from veen_hub.client.wire.outcomes import OutcomeDecoder

HUB = SigningKey(SigningSeed(H(b"hub")))


def receipt(seq: int) -> Receipt:
    unsigned = Receipt(
        label=Label(H(b"label")),
        stream_seq=StreamSeq(seq),
        leaf_hash=LeafHash(H(b"leaf %d" % seq)),
        mmr_root=MmrRoot(H(b"root %d" % seq)),
        hub_ts=UnixTime(1_700_000_000 + seq),
    )
    return sign_receipt(HUB, unsigned)


RECEIPTS = [receipt(seq) for seq in (1, 23, 24, 255, 256, 65_536, 2**32)]
REFUSAL = ErrorEnvelope(code="E.SEQ", message="taken")


def test_receipts_and_refusals_come_in_the_order_of_the_answer() -> None:
    items = [SubmitResponse(receipt=one).encode() for one in RECEIPTS]
    outcomes = OutcomeDecoder().decode(b"".join((*items[:3], REFUSAL.encode(), *items[3:])))
    assert [one for one in outcomes if isinstance(one, Receipt)] == RECEIPTS
    assert isinstance(outcomes[3], Refused)
    assert outcomes[3].hub_message == "taken"


def test_items_may_differ_in_what_surrounds_the_receipt() -> None:
    versions = [None, "1.2", "1.2", None, "1.3", "1.2"]
    answers = [SubmitResponse(receipt=RECEIPTS[0], server_version=version) for version in versions]
    assert OutcomeDecoder().decode(b"".join(one.encode() for one in answers)) == [RECEIPTS[0]] * len(versions)


@pytest.mark.parametrize("cut", range(1, 40))
def test_an_answer_that_ends_early_is_refused(cut: int) -> None:
    body = b"".join(SubmitResponse(receipt=one, server_version="1").encode() for one in RECEIPTS[:2])
    with pytest.raises(Misbehaved, match="not a sequence of receipts"):
        OutcomeDecoder().decode(body[:-cut])


@pytest.mark.parametrize("junk", [b"\x00", b"\xa0", b"\x9f\xff", b"\xc0\x00", b"\xa2\x01\x01\x02\x80"])
def test_another_item_in_the_answer_is_refused(junk: bytes) -> None:
    with pytest.raises(Misbehaved):
        OutcomeDecoder().decode(SubmitResponse(receipt=RECEIPTS[0]).encode() + junk)


def test_a_receipt_that_is_not_canonical_is_refused() -> None:
    canonical = SubmitResponse(receipt=RECEIPTS[0]).encode()
    seq_at = canonical.index(b"\x58\x20") + 34
    assert canonical[seq_at] == 1  # stream_seq
    with pytest.raises(Misbehaved, match="canonical"):
        OutcomeDecoder().decode(canonical + canonical[:seq_at] + b"\x18\x01" + canonical[seq_at + 1 :])


def test_the_answer_to_one_message_is_decoded_alike_the_first_time_and_later() -> None:
    decoder = OutcomeDecoder()
    for one in (*RECEIPTS, *RECEIPTS):
        answer = SubmitResponse(receipt=one, server_version="1.2").encode()
        assert decoder.decode_receipt(answer) == one
        for wrong in (answer + b"\x00", answer[:-1], answer[:-1] + b"\xff", REFUSAL.encode(), b""):
            with pytest.raises(Misbehaved):
                decoder.decode_receipt(wrong)
