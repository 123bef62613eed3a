"""The task of a fold: open, decode and fold rows in one Arrow pass (core §11.3).

A task buffers a bounded number of messages, sorts them into ranges of consecutive entries of one label, and
folds each range with the overlay. It returns one row per range: the range, its summary, and the fingerprints
of its deduplication keys (``fingerprints``). Events never leave the task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from veen_core.ciphertext import Opened
from veen_core.msg import Msg
from veen_overlays.bridge.unwrapping import is_wrapped, reads_wrappers, unwrap
from veen_overlays.fold.event import Message
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.live.opening import UNOPENED
from veen_spark.errors import SparkSetupError
from veen_spark.fold.fingerprints import FirstOccurrences, RangeKeys
from veen_spark.functions.open import Opener, Unopened
from veen_spark.functions.reader_keys import ReaderKeys

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

MAX_BUFFERED_MESSAGES: Final = 32_768
MAX_BUFFERED_BYTES: Final = 64 * 1_048_576
"""Bounds of a task's buffer: messages, and bytes of their bodies; independent of the size of the log."""
PLACE: Final = ("label", "stream_seq", "leaf_hash", "mmr_root", "kind")
SEALED: Final = (*PLACE, "msg")
OPENED: Final = (*PLACE, "opened", "schema", "body", "parent_id")


def columns_of(overlay: Overlay[Any], *, sealed: bool) -> tuple[str, ...]:
    """Return the columns that a fold needs; the last two only if the overlay reads signers or times."""
    signer = ("client_id",) if overlay.reads_signer or overlay.reads_time else ()
    time = ("hub_ts",) if overlay.reads_time else ()
    return (*(SEALED if sealed else OPENED), *signer, *time)


_LONG, _BINARY = pa.int64(), pa.binary()
RANGE_SCHEMA: Final = pa.schema(
    [
        pa.field("label", _BINARY),
        pa.field("from_seq", _LONG),
        pa.field("to_seq", _LONG),
        pa.field("mmr_root", _BINARY),
        pa.field("unopened", _LONG),
        pa.field("pruned", _LONG),
        pa.field("summary", _BINARY),
        pa.field("fingerprints", _BINARY),
        pa.field("keys", pa.list_(pa.struct([pa.field("key", _BINARY), pa.field("seq", _LONG)]))),
    ]
)
"""One row per range. ``keys`` holds the deduplication keys themselves, for a live fold; else it is null."""
PART_SCHEMA: Final = pa.schema([f for f in RANGE_SCHEMA if f.name not in ("fingerprints", "keys")])
"""The columns that are merged, once duplicates are resolved."""
MAX_BATCH_ROWS: Final = 1_024
MAX_BATCH_BYTES: Final = 4 * 1_048_576
"""Bounds of an Arrow batch. Many small summaries share a batch; a large summary completes it."""


class PlacedMessage(NamedTuple):
    """A message with its position in the log."""

    label: bytes
    seq: int
    root: bytes
    message: Message
    kind: str
    opened: bool


def resolve_overlay(given: str | Overlay[Any]) -> Overlay[Any]:
    """Return the overlay, or the registered overlay of this name."""
    if not isinstance(given, str):
        return given
    if given not in OVERLAYS:
        raise SparkSetupError(f"there is no overlay {given!r}", action=f"use one of {', '.join(OVERLAYS)}")
    return OVERLAYS[given]


def overlay_reference(overlay: Overlay[Any]) -> str | Overlay[Any]:
    """Return the name of a registered overlay, else the overlay itself, to send it to executors."""
    return overlay.name if OVERLAYS.get(overlay.name) is overlay else overlay


Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def range_task(
    overlay: Overlay[Any],
    keys: ReaderKeys | None,
    *,
    buffered: int = MAX_BUFFERED_MESSAGES,
    resolved: FirstOccurrences | None = None,
    keep_keys: bool = False,
) -> Task:
    """Return a function for ``mapInArrow`` that folds rows to one row per range.

    With ``resolved``, only its ranges are folded, with duplicates resolved. With ``keep_keys``, the rows hold
    the deduplication keys whose first occurrence is in the range.
    """
    named = overlay_reference(overlay)

    def fold_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = resolve_overlay(named)
        rows = messages(batches, own, keys, resolved.wants if resolved is not None else None)
        folded = _fold_buffers(_RangeFold(own, resolved, keep_keys), rows, buffered)
        return record_batches(folded, RANGE_SCHEMA)

    return fold_rows


def messages(
    batches: Iterable[pa.RecordBatch],
    overlay: Overlay[Any],
    keys: ReaderKeys | None,
    wants: Callable[[bytes, int], bool] | None = None,
) -> Iterator[PlacedMessage]:
    """Yield the rows of a partition as messages; unwanted entries are not opened.

    With keys, a wrapped message becomes the event inside it, unless the overlay folds wrappers.
    """
    opener, keep_wrappers = None if keys is None else Opener(keys.get()), reads_wrappers(overlay)
    for batch in batches:
        names = columns_of(overlay, sealed=opener is not None)
        columns = [batch.column(name).to_pylist() for name in names]
        for row in zip(*columns, strict=True):
            if row[0] is None or row[1] is None:
                raise SparkSetupError(
                    "a row describes damage (mode=quarantine), so no state can be computed",
                    action="fetch the damaged file again",
                )
            if wants is None or wants(row[0], row[1]):
                placed = _placed_message(row, opener)
                if opener is not None and is_wrapped(placed.message) and not keep_wrappers:
                    placed = _unwrapped(placed, opener)
                yield placed


def _unwrapped(placed: PlacedMessage, opener: Opener) -> PlacedMessage:
    """Return the event inside a wrapped message, under the identity that it has at its source."""

    def open_msg(msg: Msg) -> Opened | None:
        found = opener.open_msg(msg.label, msg)
        return None if isinstance(found, Unopened) else found

    return placed._replace(message=unwrap(placed.message, open_msg))


def _placed_message(row: Sequence[Any], opener: Opener | None) -> PlacedMessage:
    label, seq, leaf, root, kind = row[:5]
    message, opened = Message(seq, leaf, UNOPENED, b""), False
    if opener is None:
        if row[5]:
            message, opened = Message(seq, leaf, *row[6:]), True
    elif not isinstance(found := opener.open(label, kind, row[5]), Unopened):
        parent = found.header.parent_id
        body = (bytes(found.header.schema), found.body, None if parent is None else bytes(parent))
        message, opened = Message(seq, leaf, *body, *row[6:]), True
    return PlacedMessage(label, seq, root, message, kind, opened)


class _RangeFold(NamedTuple):
    overlay: Overlay[Any]
    resolved: FirstOccurrences | None
    keep_keys: bool


def _fold_buffers(job: _RangeFold, rows: Iterator[PlacedMessage], limit: int) -> Iterator[tuple[Any, ...]]:
    buffer, size = list[PlacedMessage](), 0
    for row in rows:
        buffer.append(row)
        size += len(row.message.body)
        if len(buffer) >= limit or size >= MAX_BUFFERED_BYTES:
            yield from _fold_ranges(job, buffer)
            buffer, size = [], 0
    yield from _fold_ranges(job, buffer)


def _fold_ranges(job: _RangeFold, buffer: list[PlacedMessage]) -> Iterator[tuple[Any, ...]]:
    buffer.sort(key=itemgetter(0, 1))  # O(n) for rows in log order, which Python's sort detects
    for run in runs(buffer):
        last = run[-1]
        keys = RangeKeys(None if job.resolved is None else job.resolved.of(last.label), keep=job.keep_keys)
        summary = job.overlay.fold((row.message for row in run), keys)
        pruned = sum(row.kind == "pruned" for row in run)
        unopened = sum(row.kind == "msg" and not row.opened for row in run)
        first_keys = (
            None if keys.first_keys is None else [{"key": key, "seq": seq} for key, seq in keys.first_keys]
        )
        position = (last.label, run[0].seq, last.seq, last.root)
        yield (*position, unopened, pruned, job.overlay.encode(summary), keys.packed(), first_keys)


def runs(placed: Sequence[PlacedMessage]) -> Iterator[list[PlacedMessage]]:
    """Yield runs of consecutive entries of one label; a repeated entry begins a new run."""
    numbered = enumerate(placed)
    for _, run in groupby(numbered, key=lambda item: (item[1].label, item[1].seq - item[0])):
        yield [row for _, row in run]


def record_batches(
    rows: Iterable[tuple[Any, ...]], schema: pa.Schema, size: int = MAX_BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Convert rows to Arrow batches of at most ``size`` rows and about ``MAX_BATCH_BYTES``."""
    batch, batch_bytes = list[tuple[Any, ...]](), 0
    for row in rows:
        batch.append(row)
        batch_bytes += sum(len(value) for value in row if isinstance(value, bytes))
        if len(batch) == size or batch_bytes >= MAX_BATCH_BYTES:
            yield record_batch(batch, schema)
            batch, batch_bytes = [], 0
    yield record_batch(batch, schema)


def record_batch(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    """Convert rows to one Arrow batch."""
    columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def spark_type(schema: pa.Schema) -> StructType:
    """Return the Spark schema of an Arrow schema."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - slow to import

    return from_arrow_schema(schema)
