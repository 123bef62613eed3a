"""The hub's answer to a batch: a sequence with a RECEIPT or an error envelope for each message (H14).

The bytes before and after a receipt are the same in all items, so only the first item is decoded whole. In
the other items, and in later answers, only the receipt is decoded: its pattern finds where it ends and proves
that it is canonical.
"""

from __future__ import annotations

from typing import Final

from veen_core import cbor
from veen_core.api import ErrorEnvelope, SubmitResponse
from veen_core.errors import DecodeError
from veen_core.receipt import Receipt
from veen_hub.client.errors import Misbehaved, Refused, refusal
from veen_hub.client.wire.stream_items import decode_response

Outcomes = list[Receipt | Refused]

_RECEIPT_AT: Final = 4
"""Where the RECEIPT begins, after the head of the map, ``1: 1`` and the key 2."""
_RECEIPT_HEAD: Final = 0x87
"""CBOR head of a RECEIPT, an array of seven; an error envelope has a text there."""


class OutcomeDecoder:
    """Decodes the answers of one hub; keeps the bytes around the receipt of the last item decoded whole."""

    __slots__ = ("_after", "_before")

    def __init__(self) -> None:
        self._before = b""
        self._after = b""

    def decode(self, body: bytes) -> Outcomes:
        """Decode the answer to a batch; raises ``Misbehaved`` if it is not a sequence of outcomes."""
        outcomes: Outcomes = []
        at = 0
        try:
            while at < len(body):
                if (found := self._cut(body, at)) is not None:
                    outcomes.append(found[0])
                    at = found[1]
                    continue
                item = body[at : cbor.item_end(body, at)]
                outcomes.append(self._decode(item))
                at += len(item)
        except DecodeError as exc:
            raise Misbehaved(f"the hub's answer to a batch is not a sequence of receipts: {exc}") from None
        return outcomes

    def decode_receipt(self, body: bytes) -> Receipt:
        """Decode the answer to one accepted message; takes 10 µs, and 40 if the item is decoded whole."""
        if (found := self._cut(body, 0)) is not None and found[1] == len(body):
            return found[0]
        receipt = decode_response(SubmitResponse, body).receipt
        self._remember(body)
        return receipt

    def _cut(self, body: bytes, at: int) -> tuple[Receipt, int] | None:
        """Return the receipt of the item at ``at``, and where the item ends; None: decode the item whole."""
        begin = at + _RECEIPT_AT
        if not self._before or not body.startswith(self._before, at):
            return None
        end = Receipt.codec.end(body, begin)
        if end is None or not body.startswith(self._after, end):
            return None
        return Receipt.decode(body[begin:end]), end + len(self._after)

    def _decode(self, item: bytes) -> Receipt | Refused:
        if len(item) > _RECEIPT_AT and item[_RECEIPT_AT] == _RECEIPT_HEAD:
            receipt = SubmitResponse.decode(item).receipt
            self._remember(item)
            return receipt
        return refusal(ErrorEnvelope.decode(item))

    def _remember(self, item: bytes) -> None:
        """Keep the bytes before and after the receipt of an item that was decoded whole."""
        if (end := Receipt.codec.end(item, _RECEIPT_AT)) is not None:
            self._before, self._after = item[:_RECEIPT_AT], item[end:]
