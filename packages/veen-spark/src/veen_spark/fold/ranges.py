"""Ranges: what one task makes of its rows; open, decode and lift in one Arrow pass (§11.3).

A task holds a bounded number of messages, sorts them into runs of consecutive ``stream_seq`` of one label,
and folds each run by the overlay itself. What leaves it is a row per run: the range, the summary, and the
fingerprints of the keys by which duplicates are found (``duplicates``). Events do not leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

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
"""Messages that a task holds before it folds them, and bytes of their bodies: they bound its memory, whatever
the size of the log and of its messages."""
PLACE: Final = ("label", "stream_seq", "leaf_hash", "mmr_root", "kind")
SEALED: Final = (*PLACE, "msg")
OPENED: Final = (*PLACE, "opened", "schema", "body", "parent_id")

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
        pa.field("claims", _BINARY),
        pa.field("kept", pa.list_(pa.struct([pa.field("key", _BINARY), pa.field("seq", _LONG)]))),
    ]
)
"""``kept`` is null unless it was asked for."""
PART_SCHEMA: Final = pa.schema([f for f in RANGE_SCHEMA if f.name not in ("claims", "kept")])
"""What is merge_ranges: a range whose duplicates are settled."""
BATCH: Final = 1_024
BATCH_BYTES: Final = 4 * 1_048_576
"""Rows in an Arrow batch: few, since a summary may be large; and not one, since there may be many labels."""


class PlacedMessage(NamedTuple):
    """A message in its place."""

    label: bytes
    seq: int
    root: bytes
    message: Message
    kind: str
    opened: bool


def resolve_overlay(given: str | Overlay[Any]) -> Overlay[Any]:
    """An overlay, or the one of this name."""
    if not isinstance(given, str):
        return given
    if given not in OVERLAYS:
        raise SparkSetupError(f"there is no overlay {given!r}: one of {', '.join(OVERLAYS)}")
    return OVERLAYS[given]


def overlay_reference(overlay: Overlay[Any]) -> str | Overlay[Any]:
    """How it travels to an executor: by name if it is one of the registry, else itself."""
    return overlay.name if OVERLAYS.get(overlay.name) is overlay else overlay


Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def range_task(
    overlay: Overlay[Any],
    keys: ReaderKeys | None,
    *,
    held: int = MAX_BUFFERED_MESSAGES,
    settled: FirstOccurrences | None = None,
    keep: bool = False,
) -> Task:
    """The pass, for ``mapInArrow``. ``settled``: only the ranges it names, with its word on duplicates.

    ``keep``: the rows hold the keys that were first, too.
    """
    named = overlay_reference(overlay)

    def lift(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = messages(batches, keys, settled.wants if settled is not None else None)
        lifted = _lifted(_Lift(resolve_overlay(named), settled, keep), rows, held)
        return record_batches(lifted, RANGE_SCHEMA)

    return lift


def messages(
    batches: Iterable[pa.RecordBatch],
    keys: ReaderKeys | None,
    wants: Callable[[bytes, int], bool] | None = None,
) -> Iterator[PlacedMessage]:
    """The rows of a partition as messages; those that are not wanted are not opened."""
    opener = None if keys is None else Opener(keys.get())
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in (SEALED if opener else OPENED)]
        for row in zip(*columns, strict=True):
            if row[0] is None or row[1] is None:
                raise SparkSetupError(
                    "a row is no log entry (damage that mode=quarantine kept): a state cannot rest on it; "
                    "fetch the damaged file again"
                )
            if wants is None or wants(row[0], row[1]):
                yield _held(row, opener)


def _held(row: Sequence[Any], opener: Opener | None) -> PlacedMessage:
    label, seq, leaf, root, kind = row[:5]
    message, opened = Message(seq, leaf, UNOPENED, b""), False
    if opener is None:
        if row[5]:
            message, opened = Message(seq, leaf, *row[6:9]), True
    elif not isinstance(found := opener.open(label, kind, row[5]), Unopened):
        parent = found.header.parent_id
        body = (bytes(found.header.schema), found.body, None if parent is None else bytes(parent))
        message, opened = Message(seq, leaf, *body), True
    return PlacedMessage(label, seq, root, message, kind, opened)


class _Lift(NamedTuple):
    overlay: Overlay[Any]
    settled: FirstOccurrences | None
    keep: bool


def _lifted(lift: _Lift, rows: Iterator[PlacedMessage], limit: int) -> Iterator[tuple[Any, ...]]:
    held, size = list[PlacedMessage](), 0
    for row in rows:
        held.append(row)
        size += len(row.message.body)
        if len(held) >= limit or size >= MAX_BUFFERED_BYTES:
            yield from _folded(lift, held)
            held, size = [], 0
    yield from _folded(lift, held)


def _folded(lift: _Lift, held: list[PlacedMessage]) -> Iterator[tuple[Any, ...]]:
    held.sort(key=itemgetter(0, 1))  # nothing to do for rows that come as a log has them
    for run in runs(held):
        last = run[-1]
        claims = RangeKeys(None if lift.settled is None else lift.settled.of(last.label), keep=lift.keep)
        summary = lift.overlay.fold((row.message for row in run), claims)
        pruned = sum(row.kind == "pruned" for row in run)
        unopened = sum(row.kind == "msg" and not row.opened for row in run)
        kept = None if claims.kept is None else [{"key": key, "seq": seq} for key, seq in claims.kept]
        place = (last.label, run[0].seq, last.seq, last.root)
        yield (*place, unopened, pruned, lift.overlay.encode(summary), claims.packed(), kept)


def runs(held: Sequence[PlacedMessage]) -> Iterator[list[PlacedMessage]]:
    """Consecutive entries of one label; an entry that is there twice begins a run of its own."""
    numbered = enumerate(held)
    for _, run in groupby(numbered, key=lambda item: (item[1].label, item[1].seq - item[0])):
        yield [row for _, row in run]


def record_batches(
    rows: Iterable[tuple[Any, ...]], schema: pa.Schema, size: int = BATCH
) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow, ``size`` at a time, or fewer if they are large."""
    batch, held = list[tuple[Any, ...]](), 0
    for row in rows:
        batch.append(row)
        held += sum(len(value) for value in row if isinstance(value, bytes))
        if len(batch) == size or held >= BATCH_BYTES:
            yield record_batch(batch, schema)
            batch, held = [], 0
    yield record_batch(batch, schema)


def record_batch(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as Arrow."""
    columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def spark_type(schema: pa.Schema) -> StructType:
    """The same for Spark."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - slow to import

    return from_arrow_schema(schema)
