"""The hub's answer to a batch: a sequence with a RECEIPT or an error envelope for each message (H14).

What surrounds the receipts is the same in all items, so one item is decoded whole. In the others only the
receipt is decoded: its pattern finds where it ends and proves that it is canonical.
"""

from __future__ import annotations

from typing import Final

from veen_core import cbor
from veen_core.api import ErrorEnvelope, SubmitResponse
from veen_core.errors import DecodeError
from veen_core.receipt import Receipt
from veen_hub.client.errors import Misbehaved, Refused, refusal

Outcomes = list[Receipt | Refused]

_RECEIPT_AT: Final = 4
"""Where the RECEIPT begins, after the head of the map, ``1: 1`` and the key 2."""
_RECEIPT_HEAD: Final = 0x87
"""CBOR head of a RECEIPT, an array of seven; an error envelope has a text there."""


def decode_outcomes(body: bytes) -> Outcomes:
    """Decode the answer to a batch; raises ``Misbehaved`` if it is not a sequence of outcomes."""
    outcomes: Outcomes = []
    at, before, after = 0, b"", b""
    try:
        while at < len(body):
            end = (
                Receipt.codec.end(body, at + _RECEIPT_AT) if before and body.startswith(before, at) else None
            )
            if end is not None and body.startswith(after, end):
                outcomes.append(Receipt.decode(body[at + _RECEIPT_AT : end]))
                at = end + len(after)
                continue
            item = body[at : cbor.item_end(body, at)]
            outcome = _decode(item)
            if isinstance(outcome, Receipt) and (end := Receipt.codec.end(item, _RECEIPT_AT)) is not None:
                before, after = item[:_RECEIPT_AT], item[end:]
            outcomes.append(outcome)
            at += len(item)
    except DecodeError as exc:
        raise Misbehaved(f"the hub's answer to a batch is not a sequence of receipts: {exc}") from None
    return outcomes


def _decode(item: bytes) -> Receipt | Refused:
    if len(item) > _RECEIPT_AT and item[_RECEIPT_AT] == _RECEIPT_HEAD:
        return SubmitResponse.decode(item).receipt
    return refusal(ErrorEnvelope.decode(item))
