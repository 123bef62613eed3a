"""The portable set of spec-1 §15, item by item before the judge (``format`` says what lies in it)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from veen_core.chunk import PrunedEntry
from veen_core.entry import FLAG_AUTHORIZE, Entry
from veen_core.errors import InvariantError, VeenError
from veen_core.ids import StreamSeq
from veen_core.receipt import Receipt
from veen_storage.copies.export.checkpoints import Indexed, Waiting
from veen_storage.copies.export.format import (
    CHECKPOINTS,
    IDENTITY,
    PAYLOADS,
    RECEIPTS,
    SMALL_ITEM,
    AuthorizePayload,
    IndexRow,
    PrunedPayload,
    read_sequence,
    sequence_name,
    sidecar_name,
)
from veen_storage.copies.export.judge import Judge, damage

_ARRAY: Final = 4
"""CBOR's major type of a MSG (§4.1)."""


def judge_set(path: Path, judge: Judge) -> None:
    expected = {
        name(stem) for stem in (RECEIPTS, PAYLOADS, CHECKPOINTS) for name in (sequence_name, sidecar_name)
    }
    for name in sorted({file.name for file in judge.manifest.files} ^ {*expected, *IDENTITY}):
        raise damage(name, "has no place in a portable set, or is missing from it")
    receipts, payloads = (_indexed(path, stem, _most(stem, judge)) for stem in (RECEIPTS, PAYLOADS))
    waiting = Waiting(_indexed(path, CHECKPOINTS, SMALL_ITEM), judge)
    waiting.judge_due()
    for (_at, receipt_bytes, seq), (offset, payload, payload_seq) in _together(receipts, payloads):
        where = sequence_name(PAYLOADS)
        if seq != payload_seq:
            raise damage(where, f"payload {payload_seq} stands beside receipt {seq}", offset)
        _judge_payload(judge, payload, receipt_bytes, seq, offset)
        waiting.judge_due()
    waiting.must_be_empty()


def _most(stem: str, judge: Judge) -> int:
    return SMALL_ITEM if stem == RECEIPTS else judge.registry.limits.max_msg_bytes + SMALL_ITEM


def _judge_payload(judge: Judge, payload: bytes, receipt_bytes: bytes, seq: StreamSeq, offset: int) -> None:
    where = sequence_name(PAYLOADS)
    label = judge.manifest.label
    try:
        receipt = Receipt.decode(receipt_bytes)
        if receipt.stream_seq != seq:
            raise InvariantError("I3", f"the index says {seq}, the RECEIPT {receipt.stream_seq}")
        if payload[0] >> 5 == _ARRAY:
            found: Entry | PrunedEntry = Entry(label, seq, payload, receipt_bytes)
        elif (token := _authorized(payload)) is not None:
            found = Entry(label, seq, token, receipt_bytes, FLAG_AUTHORIZE)
        else:
            found = PrunedPayload.decode(payload).pruned
            if found.receipt != receipt:
                raise InvariantError("I2", "the pruned payload is of another RECEIPT")
    except VeenError as exc:
        raise damage(where, f"entry {seq}: {exc}", offset) from exc
    if isinstance(found, PrunedEntry):
        judge.pruned(found, where, offset)
    else:
        judge.entry(found, where, offset)


def _authorized(payload: bytes) -> bytes | None:
    try:
        return AuthorizePayload.decode(payload).authorize
    except VeenError:
        return None


def _indexed(path: Path, stem: str, most: int) -> Iterator[Indexed]:
    """Items of a sequence with what the sidecar says of each: offsets must be the true ones."""
    items = read_sequence(path / sequence_name(stem), most)
    sidecar = sidecar_name(stem)
    for row_at, row in read_sequence(path / sidecar, SMALL_ITEM):
        try:
            claimed = IndexRow.decode(row)
        except VeenError as exc:
            raise damage(sidecar, str(exc), row_at) from exc
        offset, item = next(items, (-1, b""))
        if offset != claimed.offset:
            raise damage(sidecar, f"names an item at byte {claimed.offset} where none begins", row_at)
        yield offset, item, claimed.stream_seq
    if (beyond := next(items, None)) is not None:
        raise damage(sequence_name(stem), "an item that the index does not name", beyond[0])


def _together(receipts: Iterator[Indexed], payloads: Iterator[Indexed]) -> Iterator[tuple[Indexed, Indexed]]:
    for receipt in receipts:
        if (payload := next(payloads, None)) is None:
            raise damage(sequence_name(PAYLOADS), f"has nothing for receipt {receipt[2]}")
        yield receipt, payload
    if (payload := next(payloads, None)) is not None:
        raise damage(sequence_name(PAYLOADS), "has more items than there are receipts", payload[0])
