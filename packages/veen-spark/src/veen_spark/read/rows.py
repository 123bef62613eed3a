"""Conversion of log entries to Arrow batches with the columns of ``columns``.

A span becomes a batch column by column, if ``field_layout`` recognizes all of its entries. Otherwise
veen_core decodes the span entry by entry: each becomes a row, or damage with the decoder's reason. Spans of
few entries, as in a log with very many labels, are decoded this way too, and their rows share batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veen_core.cap import CapToken
from veen_core.entry import FLAG_AUTHORIZE, Entry, verify_authorize
from veen_core.errors import DecodeError, VeenError, VerificationError
from veen_core.hashing import Ht, u64be
from veen_core.ids import StreamSeq
from veen_core.msg import Msg, check_ct_hash
from veen_core.receipt import Receipt
from veen_spark.errors import DamagedLog
from veen_spark.read import field_layout
from veen_spark.read.columns import COLUMNS, QUARANTINE_SCHEMA, arrow_schema
from veen_spark.read.segment import (
    SAMPLE_BYTES,
    ControlEntry,
    Damage,
    Item,
    Pair,
    PrunedLogEntry,
    SingleItem,
    Span,
    SparkSegment,
    single_items,
)
from veen_spark.read.walk import walk_to_end

MAX_BATCH_ROWS: Final = 1_024
MAX_BATCH_BYTES: Final = 4 * 1_048_576
"""Bounds of a batch of rows that were decoded one by one: rows, and bytes of their MSGs."""
MAX_SLOW_SPAN: Final = 4
"""Spans of at most this many entries are decoded one by one: numpy's passes take 0.3 ms per span."""
_SIGNED_MAX: Final = 2**63 - 1
Row = dict[str, Any]


def batches(segments: Iterable[SparkSegment], *, quarantine: bool) -> Iterator[pa.RecordBatch]:
    """Yield the rows of segments; damage raises ``DamagedLog``, or becomes a row with ``quarantine``."""
    slow, size = list[Row](), 0
    for segment, item in ((each, item) for each in segments for item in walk_to_end(each)):
        if (fast := fast_batch(segment, item)) is not None:
            if slow:
                yield _slow_batch(slow, quarantine=quarantine)
                slow, size = [], 0
            yield _with_damage(fast) if quarantine else fast
            continue
        for one in single_items(item):
            slow.append(_row(segment, one, quarantine=quarantine))
            size += len(slow[-1].get("msg") or b"")
            if len(slow) >= MAX_BATCH_ROWS or size >= MAX_BATCH_BYTES:
                yield _slow_batch(slow, quarantine=quarantine)
                slow, size = [], 0
    if slow:
        yield _slow_batch(slow, quarantine=quarantine)


# --- a whole span


def fast_batch(segment: SparkSegment, span: Item) -> pa.RecordBatch | None:
    """Convert a span column by column; return None if it is short or an entry is not recognized."""
    if not isinstance(span, Span) or len(span.offset) <= MAX_SLOW_SPAN:
        return None
    data = np.frombuffer(span.data, dtype=np.uint8)
    msgs = field_layout.msgs(data, span.msg_at, span.receipt_at - span.msg_at)
    receipts = field_layout.receipts(data, span.receipt_at, span.end - span.receipt_at)
    label = np.frombuffer(segment.label, dtype=np.uint8)
    if not (msgs.ok.all() and receipts.ok.all() and (receipts.stream_seq.view(np.uint64) == span.seq).all()):
        return None
    for at in (msgs.label_at, receipts.label_at):
        if not (field_layout.fixed(data, at) == label).all():
            return None
    if segment.form == "set" and not _leaves_match(span.data, msgs, receipts):
        return None
    count = len(span.offset)
    msg, receipt = _variable_columns(span)
    hashes = {
        "label": receipts.label_at,
        "client_id": msgs.client_at,
        "leaf_hash": receipts.leaf_at,
        "mmr_root": receipts.root_at,
        "ct_hash": msgs.ct_hash_at,
    }
    columns: dict[str, pa.Array] = {
        **{name: _fixed_column(field_layout.fixed(data, at)) for name, at in hashes.items()},
        "stream_seq": pa.array(receipts.stream_seq),
        "hub_ts": pa.array(receipts.hub_ts),
        "client_seq": pa.array(msgs.client_seq),
        "prev_ack": pa.array(msgs.prev_ack),
        "auth_ref": _auth_column(data, msgs),
        "msg": msg,
        "receipt": receipt,
        "kind": _same(b"msg", count, pa.string()),
        "hub_id": pa.nulls(count, pa.binary()) if segment.hub_id is None else _same(segment.hub_id, count),
        "file": _same(segment.path.encode(), count, pa.string()),
        "offset": pa.array(span.offset),
    }
    return pa.RecordBatch.from_arrays([columns[c.name] for c in COLUMNS], schema=arrow_schema())


def _leaves_match(data: bytes, msgs: field_layout.Msgs, receipts: field_layout.Receipts) -> bool:
    """Return whether every ct_hash and leaf_hash is correct; a set-form export has no entry hashes."""
    starts = (msgs.label_at, msgs.profile_at, msgs.ct_hash_at, msgs.client_at, msgs.ct_at, receipts.leaf_at)
    rows = zip(*(at.tolist() for at in (*starts, msgs.ct_size, msgs.client_seq)), strict=True)
    for label, profile, ct_hash, client, ct, leaf, size, client_seq in rows:
        if sha256(data[ct : ct + size]).digest() != data[ct_hash : ct_hash + 32]:
            return False
        fields = b"".join(data[at : at + 32] for at in (label, profile, ct_hash, client))
        if Ht("veen/leaf", fields + u64be(client_seq)) != data[leaf : leaf + 32]:
            return False
    return True


def _fixed_column(values: field_layout.Bytes) -> pa.Array:
    count, width = values.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(values)])


def _variable_columns(span: Span) -> tuple[pa.Array, pa.Array]:
    """Return the MSG and RECEIPT columns. Arrow splits the span, which is header, MSG, RECEIPT, header, …"""
    count = len(span.offset)
    offsets = np.empty(3 * count + 1, dtype=np.int32)
    offsets[0] = 0
    offsets[1::3], offsets[2::3], offsets[3::3] = span.msg_at, span.receipt_at, span.end
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(span.data)]
    pieces = pa.Array.from_buffers(pa.binary(), 3 * count, buffers)
    every = np.arange(0, 3 * count, 3)
    return pieces.take(pa.array(every + 1)), pieces.take(pa.array(every + 2))


def _auth_column(data: field_layout.Bytes, msgs: field_layout.Msgs) -> pa.Array:
    if not msgs.gated.any():
        return pa.nulls(len(msgs.gated), pa.binary())
    refs = _fixed_column(field_layout.fixed(data, np.where(msgs.gated, msgs.auth_at, 0)))
    return pc.if_else(pa.array(msgs.gated), refs, pa.scalar(None, pa.binary()))


def _same(value: bytes, count: int, kind: pa.DataType | None = None) -> pa.Array:
    offsets = np.arange(0, (count + 1) * len(value), len(value), dtype=np.int32)
    return pa.Array.from_buffers(
        kind or pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(value * count)]
    )


def _with_damage(batch: pa.RecordBatch) -> pa.RecordBatch:
    none = pa.nulls(batch.num_rows, QUARANTINE_SCHEMA.field("damage").type)
    return pa.RecordBatch.from_arrays([*batch.columns, none], schema=QUARANTINE_SCHEMA)


# --- entry by entry


def _row(segment: SparkSegment, item: SingleItem, *, quarantine: bool) -> Row:
    if not isinstance(item, Damage):
        try:
            return _entry_row(segment, item)
        except VeenError as exc:
            item = _damaged(item, str(exc))
    if not quarantine:
        action = "fetch the file again, or read the rest with mode=quarantine"
        raise DamagedLog(segment.path, item.offset, item.reason, action=action)
    return {
        "label": bytes(segment.label),
        "hub_id": segment.hub_id,
        "file": segment.path,
        "offset": item.offset,
        "damage": {"reason": item.reason, "length": item.length, "bytes": item.sample},
    }


def _damaged(item: Pair | ControlEntry | PrunedLogEntry, reason: str) -> Damage:
    data = b""
    if isinstance(item, Pair):
        data = item.msg + item.receipt
    elif isinstance(item, ControlEntry):
        data = item.token + item.receipt
    return Damage(item.offset, len(data), reason, data[:SAMPLE_BYTES])


def _entry_row(segment: SparkSegment, item: Pair | ControlEntry | PrunedLogEntry) -> Row:
    if isinstance(item, PrunedLogEntry):
        receipt, row = item.entry.receipt, _pruned_fields(item)
    else:
        receipt = Receipt.decode(item.receipt)
        row = _msg_fields(item.msg) if isinstance(item, Pair) else _token_fields(item.token)
        row |= {"receipt": item.receipt, "offset": item.offset}
    if row.get("label", segment.label) != segment.label:
        raise DecodeError("differs from the label of the file", where="MSG.label (core §4.1)")
    if receipt.label != segment.label:
        raise DecodeError("differs from the label of the file", where="RECEIPT.label (core §4.3)")
    if receipt.stream_seq != item.seq:
        raise DecodeError(
            f"is {receipt.stream_seq}, expected {item.seq} at this position",
            where="RECEIPT.stream_seq (core §4.3)",
        )
    if segment.form == "set":
        _check_leaf(segment, item, receipt)
    row |= receipt_fields(receipt) | {"hub_id": segment.hub_id, "file": segment.path}
    if any(isinstance(value, int) and value > _SIGNED_MAX for value in row.values()):
        raise DecodeError("an integer is larger than 2^63 - 1, the maximum of a column")
    return row


def _check_leaf(segment: SparkSegment, item: Pair | ControlEntry | PrunedLogEntry, receipt: Receipt) -> None:
    """Raise unless the payload is the one that the RECEIPT's leaf_hash commits to (core §2)."""
    if isinstance(item, ControlEntry):
        entry = Entry(segment.label, StreamSeq(item.seq), item.token, item.receipt, FLAG_AUTHORIZE)
        verify_authorize(entry)
        return
    if isinstance(item, Pair):
        msg = Msg.decode(item.msg)
        check_ct_hash(msg)
        leaf = msg.leaf_hash
    else:
        leaf = item.entry.leaf_hash
    if leaf != receipt.leaf_hash:
        raise VerificationError("RECEIPT.leaf_hash (core §4.3): differs from the leaf hash of the MSG")


def receipt_fields(receipt: Receipt) -> Row:
    """Return the columns that every entry has, pruned or not."""
    return {
        "label": bytes(receipt.label),
        "stream_seq": receipt.stream_seq,
        "hub_ts": receipt.hub_ts,
        "leaf_hash": bytes(receipt.leaf_hash),
        "mmr_root": bytes(receipt.mmr_root),
    }


def entry_fields(entry: Entry) -> Row:
    """Return the columns of the MSG or token, and the encoded RECEIPT."""
    fields = _token_fields(entry.msg_bytes) if entry.is_authorize else _msg_fields(entry.msg_bytes)
    return fields | {"receipt": entry.receipt_bytes}


def _token_fields(wire: bytes) -> Row:
    return {"auth_ref": CapToken.decode(wire).auth_ref, "msg": wire, "kind": "authorize"}


def _msg_fields(wire: bytes) -> Row:
    msg = Msg.decode(wire)
    return {
        "label": bytes(msg.label),
        "client_id": bytes(msg.client_id),
        "client_seq": msg.client_seq,
        "prev_ack": msg.prev_ack,
        "auth_ref": msg.auth_ref,
        "ct_hash": bytes(msg.ct_hash),
        "msg": wire,
        "kind": "msg",
    }


def _pruned_fields(item: PrunedLogEntry) -> Row:
    kept = item.entry
    return {
        "client_id": bytes(kept.client_id),
        "client_seq": kept.client_seq,
        "prev_ack": kept.prev_ack,
        "auth_ref": kept.auth_ref,
        "ct_hash": bytes(kept.ct_hash),
        "receipt": kept.receipt.encode(),
        "kind": "pruned",
        "offset": item.offset,
    }


def _slow_batch(rows: list[Row], *, quarantine: bool) -> pa.RecordBatch:
    schema = arrow_schema(quarantine=quarantine)
    return pa.RecordBatch.from_pylist(rows, schema=schema)
