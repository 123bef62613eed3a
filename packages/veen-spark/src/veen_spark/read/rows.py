"""From walked items to Arrow batches of the data source's row (``columns``).

A span of recognized entries becomes a batch column by column (``layout``). If a single one of them is not
recognized, veen_core's decoders take the span entry by entry: each is a row, or damage with their reason. So
they do if there are few, as in a log of very many labels, whose rows then share batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veen_core.cap import CapToken
from veen_core.entry import Entry
from veen_core.errors import DecodeError
from veen_core.msg import Msg
from veen_core.receipt import Receipt
from veen_spark.errors import DamagedLog
from veen_spark.read import field_layout
from veen_spark.read.columns import COLUMNS, QUARANTINE_SCHEMA, arrow_schema
from veen_spark.read.segment import SAMPLE, Authorize, Damage, Item, One, Pair, Pruned, Segment, Span, singly
from veen_spark.read.walk import walk_to_end

SLOW_ROWS: Final = 1_024
SLOW_BYTES: Final = 4 * 1_048_576
"""Rows made one at a time are sent in batches of so many, or of so many bytes of MSGs."""
FEW: Final = 4
"""Entries that are sooner decoded one at a time: numpy's dozen passes take a third of a millisecond."""
_SIGNED_MAX: Final = 2**63 - 1
Row = dict[str, Any]


def batches(segments: Iterable[Segment], *, quarantine: bool) -> Iterator[pa.RecordBatch]:
    """The rows of segments; damage raises ``DamagedLog`` unless it is to be put in quarantine."""
    slow, size = list[Row](), 0
    for segment, item in ((each, item) for each in segments for item in walk_to_end(each)):
        if (fast := fast_batch(segment, item)) is not None:
            if slow:
                yield _slow_batch(slow, quarantine=quarantine)
                slow, size = [], 0
            yield _with_damage(fast) if quarantine else fast
            continue
        for one in singly(item):
            slow.append(_row(segment, one, quarantine=quarantine))
            size += len(slow[-1].get("msg") or b"")
            if len(slow) >= SLOW_ROWS or size >= SLOW_BYTES:
                yield _slow_batch(slow, quarantine=quarantine)
                slow, size = [], 0
    if slow:
        yield _slow_batch(slow, quarantine=quarantine)


# --- many at once


def fast_batch(segment: Segment, span: Item) -> pa.RecordBatch | None:
    """All entries of a span at once, or None if any of them is in doubt, or if there are few."""
    if not isinstance(span, Span) or len(span.offset) <= FEW:
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


def _fixed_column(values: field_layout.Bytes) -> pa.Array:
    count, width = values.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(values)])


def _variable_columns(span: Span) -> tuple[pa.Array, pa.Array]:
    """MSGs and RECEIPTs: every third of what lies in the span, which Arrow copies out one after another."""
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
    held = _fixed_column(field_layout.fixed(data, np.where(msgs.gated, msgs.auth_at, 0)))
    return pc.if_else(pa.array(msgs.gated), held, pa.scalar(None, pa.binary()))


def _same(value: bytes, count: int, kind: pa.DataType | None = None) -> pa.Array:
    offsets = np.arange(0, (count + 1) * len(value), len(value), dtype=np.int32)
    return pa.Array.from_buffers(
        kind or pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(value * count)]
    )


def _with_damage(batch: pa.RecordBatch) -> pa.RecordBatch:
    none = pa.nulls(batch.num_rows, QUARANTINE_SCHEMA.field("damage").type)
    return pa.RecordBatch.from_arrays([*batch.columns, none], schema=QUARANTINE_SCHEMA)


# --- one at a time


def _row(segment: Segment, item: One, *, quarantine: bool) -> Row:
    if not isinstance(item, Damage):
        try:
            return _entry_row(segment, item)
        except DecodeError as exc:
            item = _damaged(item, str(exc))
    if not quarantine:
        keep = ", or read with mode=quarantine to keep the rest"
        raise DamagedLog(segment.path, item.offset, item.reason, otherwise=keep)
    return {
        "label": bytes(segment.label),
        "hub_id": segment.hub_id,
        "file": segment.path,
        "offset": item.offset,
        "damage": {"reason": item.reason, "length": item.length, "bytes": item.sample},
    }


def _damaged(item: Pair | Authorize | Pruned, reason: str) -> Damage:
    data = b""
    if isinstance(item, Pair):
        data = item.msg + item.receipt
    elif isinstance(item, Authorize):
        data = item.token + item.receipt
    return Damage(item.offset, len(data), reason, data[:SAMPLE])


def _entry_row(segment: Segment, item: Pair | Authorize | Pruned) -> Row:
    if isinstance(item, Pruned):
        receipt, row = item.entry.receipt, _pruned_fields(item)
    else:
        receipt = Receipt.decode(item.receipt)
        row = _msg_fields(item.msg) if isinstance(item, Pair) else _token_fields(item.token)
        row |= {"receipt": item.receipt, "offset": item.offset}
    if row.get("label", segment.label) != segment.label:
        raise DecodeError("is of another label than its file", where="MSG.label §4.1")
    if receipt.label != segment.label:
        raise DecodeError("is of another label than its file", where="RECEIPT.label §4.3")
    if receipt.stream_seq != item.seq:
        raise DecodeError(
            f"is {receipt.stream_seq}, its place says {item.seq}", where="RECEIPT.stream_seq §4.3"
        )
    row |= receipt_fields(receipt) | {"hub_id": segment.hub_id, "file": segment.path}
    if any(isinstance(value, int) and value > _SIGNED_MAX for value in row.values()):
        raise DecodeError("an integer beyond 2^63 - 1 has no place in a column")
    return row


def receipt_fields(receipt: Receipt) -> Row:
    """The columns that every entry has, pruned or not."""
    return {
        "label": bytes(receipt.label),
        "stream_seq": receipt.stream_seq,
        "hub_ts": receipt.hub_ts,
        "leaf_hash": bytes(receipt.leaf_hash),
        "mmr_root": bytes(receipt.mmr_root),
    }


def entry_fields(entry: Entry) -> Row:
    """The columns of a MSG or a token, and its RECEIPT's bytes."""
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


def _pruned_fields(item: Pruned) -> Row:
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
