"""Verify a portable set, item by item (spec-1 §15; ``veen_core.export`` declares what it holds)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from veen_core.chunk import PrunedEntry
from veen_core.entry import FLAG_AUTHORIZE, Entry
from veen_core.errors import DecodeError, VeenError
from veen_core.export import (
    CHECKPOINTS,
    IDENTITY,
    PAYLOADS,
    RECEIPTS,
    AuthorizePayload,
    IndexRow,
    PrunedPayload,
    sequence_name,
    sidecar_name,
)
from veen_core.hub_export import HUB_HEAD
from veen_core.ids import StreamSeq
from veen_core.receipt import Receipt
from veen_storage.copies.export.range_verifier import CheckpointQueue, IndexedItem, RangeVerifier
from veen_storage.copies.export.sequence import MAX_SMALL_ITEM, damaged, read_sequence

_ARRAY: Final = 4
"""CBOR major type of a MSG (core §4.1)."""


def check_set(path: Path, verifier: RangeVerifier) -> None:
    """Verify every receipt with its payload, and the checkpoints."""
    expected = {
        name(stem) for stem in (RECEIPTS, PAYLOADS, CHECKPOINTS) for name in (sequence_name, sidecar_name)
    }
    listed = {file.name for file in verifier.manifest.files} - {HUB_HEAD}
    for name in sorted(listed ^ {*expected, *IDENTITY}):
        raise damaged(name, "is not a file of a portable set" if name in listed else "is not in the manifest")
    max_payload = verifier.registry.limits.max_msg_bytes + MAX_SMALL_ITEM
    receipts = _read_indexed(path, RECEIPTS, MAX_SMALL_ITEM)
    payloads = _read_indexed(path, PAYLOADS, max_payload)
    made = _read_indexed(path, CHECKPOINTS, MAX_SMALL_ITEM)
    checkpoints = CheckpointQueue(made, verifier, lambda _upto: sequence_name(CHECKPOINTS))
    checkpoints.verify_due()
    for (_at, receipt_bytes, seq), (offset, payload, payload_seq) in _pair(receipts, payloads):
        where = sequence_name(PAYLOADS)
        if seq != payload_seq:
            raise damaged(where, f"found payload {payload_seq} for receipt {seq}", offset)
        _verify_payload(verifier, payload, receipt_bytes, seq, offset)
        checkpoints.verify_due()
    checkpoints.check_empty()


def _verify_payload(
    verifier: RangeVerifier, payload: bytes, receipt_bytes: bytes, seq: StreamSeq, offset: int
) -> None:
    where = sequence_name(PAYLOADS)
    label = verifier.manifest.label
    try:
        receipt = Receipt.decode(receipt_bytes)
        if receipt.stream_seq != seq:
            raise DecodeError(f"the index says stream_seq {seq}, the RECEIPT says {receipt.stream_seq}")
        if payload[0] >> 5 == _ARRAY:
            found: Entry | PrunedEntry = Entry(label, seq, payload, receipt_bytes)
        elif (token := _authorized(payload)) is not None:
            found = Entry(label, seq, token, receipt_bytes, FLAG_AUTHORIZE)
        else:
            found = PrunedPayload.decode(payload).pruned
            if found.receipt != receipt:
                raise DecodeError("the pruned payload belongs to another RECEIPT")
    except VeenError as exc:
        raise damaged(where, f"entry {seq}: {exc}", offset) from exc
    verifier.accept(found, where, offset)


def _authorized(payload: bytes) -> bytes | None:
    try:
        return AuthorizePayload.decode(payload).authorize
    except VeenError:
        return None


def _read_indexed(path: Path, stem: str, max_item: int) -> Iterator[IndexedItem]:
    """Yield the items of a sequence with the entry that the sidecar names; its offsets must be right."""
    items = read_sequence(path / sequence_name(stem), max_item)
    sidecar = sidecar_name(stem)
    for row_at, row in read_sequence(path / sidecar, MAX_SMALL_ITEM):
        try:
            claimed = IndexRow.decode(row)
        except VeenError as exc:
            raise damaged(sidecar, str(exc), row_at) from exc
        offset, item = next(items, (-1, b""))
        if offset != claimed.offset:
            raise damaged(sidecar, f"lists an item at byte {claimed.offset}, where none begins", row_at)
        yield offset, item, claimed.stream_seq
    if (beyond := next(items, None)) is not None:
        raise damaged(sequence_name(stem), "contains an item that the index does not list", beyond[0])


def _pair(
    receipts: Iterator[IndexedItem], payloads: Iterator[IndexedItem]
) -> Iterator[tuple[IndexedItem, IndexedItem]]:
    for receipt in receipts:
        if (payload := next(payloads, None)) is None:
            raise damaged(sequence_name(PAYLOADS), f"has no item for receipt {receipt[2]}")
        yield receipt, payload
    if (payload := next(payloads, None)) is not None:
        raise damaged(sequence_name(PAYLOADS), "has more items than there are receipts", payload[0])
