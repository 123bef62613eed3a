"""Rows of opened events from logs: one Arrow pass opens verified entries (core §4.5, RESOLUTIONS P10, P11).

Each entry becomes a row, whatever became of it: an event, unopened, pruned, or another message.
``veen_overlays.live.query_view`` decides which, and its follower makes the same rows from a live hub. An
event that a bridge has wrapped gets a row under its origin, and the entry that carries it a row of kind
``CARRIED``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from veen_core.entry import FLAG_AUTHORIZE, Entry
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, Label, StreamSeq
from veen_core.keys import DhKey
from veen_overlays.live.query_view.data_files import CARRIED
from veen_overlays.live.query_view.opened_entries import EntryOpener, Found, OriginHub, Place, row_of
from veen_overlays.query.columns import EntryKind
from veen_overlays.recorder.attribution import links
from veen_spark.fold.ranges import Task, record_batches, spark_type
from veen_spark.functions.reader_keys import ReaderKeys
from veen_spark.query.event_rows import VIEW_SCHEMA
from veen_spark.query.log_sources import Piece, Pieces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITION_BYTES: Final = 4 * 1_048_576
"""Bytes of a log that one task opens: a second of work, so that all cores finish together."""
MAX_PUSHED_LABELS: Final = 1_000
"""Labels by which Spark selects files; of more labels, tasks skip the rows of others."""
_NEEDED: Final = ("label", "stream_seq", "msg", "receipt", "kind", "file")
_EXTRA: Final = (
    pa.field("stream", pa.string()),
    pa.field("pair", pa.binary()),
    pa.field("link", pa.binary()),
)
BUILT_SCHEMA: Final = pa.schema([*_EXTRA, *VIEW_SCHEMA])
"""A view's columns, the stream, and keys as ``principal_id || client_id``: in ``pair`` those of an event that
another key has signed, in ``link`` those that a valid ``record.continuity.v1`` links (P10)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginTerms:
    """A hub whose events a bridge has imported: its pinned identity, and the length of its epochs."""

    identity: HubIdentity
    epoch_sec: int = 0
    max_epoch_skew_sec: int = 60


def build_rows(
    spark: SparkSession,
    paths: Iterable[str],
    pieces: Pieces,
    keys: ReaderKeys | None,
    origins: Iterable[OriginTerms] = (),
) -> DataFrame:
    """Return a row for each entry of the pieces, and for each event that they carry of another hub."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

    rows = spark.read.format("veen").option("maxPartitionBytes", PARTITION_BYTES).load([*paths])
    labels = sorted({label for _, label in pieces})
    if len(labels) <= MAX_PUSHED_LABELS:
        rows = rows.where(f.col("label").isin([bytearray(label) for label in labels]))
    return rows.select(*_NEEDED).mapInArrow(
        _task(dict(pieces), keys, tuple(origins)), spark_type(BUILT_SCHEMA)
    )


def _task(pieces: Pieces, keys: ReaderKeys | None, origins: tuple[OriginTerms, ...]) -> Task:
    def open_entries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        openers = _Openers(() if keys is None else keys.get(), origins)
        rows = (row for batch in batches for row in _opened(batch, pieces, openers))
        return record_batches(rows, BUILT_SCHEMA)

    return open_entries


class _Openers:
    """One opener per stream: an origin receipt counts only for the stream that is imported there."""

    def __init__(self, keys: tuple[DhKey, ...], origins: tuple[OriginTerms, ...]) -> None:
        self._keys, self._origins = keys, origins
        self._openers: dict[str, EntryOpener] = {}

    def of(self, stream: str) -> EntryOpener:
        if (found := self._openers.get(stream)) is None:
            found = EntryOpener(keys=self._keys, origins=self._hubs(stream))
            self._openers[stream] = found
        return found

    def _hubs(self, stream: str) -> Mapping[HubId, OriginHub]:
        return {
            terms.identity.hub_id: OriginHub.for_stream(
                terms.identity,
                stream,
                epoch_sec=terms.epoch_sec,
                max_epoch_skew_sec=terms.max_epoch_skew_sec,
            )
            for terms in self._origins
        }


def _opened(batch: pa.RecordBatch, pieces: Pieces, openers: _Openers) -> Iterator[tuple[Any, ...]]:
    columns = [batch.column(name).to_pylist() for name in _NEEDED]
    for label, seq, msg, wire, kind, file in zip(*columns, strict=True):
        piece = pieces.get((os.path.dirname(file), label))
        if piece is not None and piece.from_seq <= seq <= piece.to_seq:
            flags = FLAG_AUTHORIZE if kind == "authorize" else 0
            entry = Entry(Label(label), StreamSeq(seq), msg or b"", wire, flags)
            yield from _rows(piece, entry, None if kind == "pruned" else openers.of(piece.stream))


def _rows(piece: Piece, entry: Entry, opener: EntryOpener | None) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of an entry; ``opener`` is None for a pruned one, whose message is gone."""
    place = Place(piece.hub_id, entry.label, piece.epoch, entry.receipt, entry.receipt_bytes)
    if opener is None:
        yield piece.stream, None, None, *row_of(place, EntryKind.PRUNED)
        return
    found = opener.open(entry)
    yield _row(piece, place if found.origin is None else found.origin, found)
    if found.origin is not None:
        yield piece.stream, None, None, *row_of(place, CARRIED)


def _row(piece: Piece, place: Place, found: Found) -> tuple[Any, ...]:
    """Return the row of an entry; an event is attributed here only if its principal has signed it."""
    event, record, client = found.event, found.continuity, found.client
    own = event is not None and event.principal_id == client
    pair = None if event is None or client is None or own else bytes(event.principal_id + client)
    linked = record is not None and links(record, client)
    link = bytes(record.principal_id + record.client_id) if record is not None and linked else None
    return piece.stream, pair, link, *row_of(place, found.kind, found, attributed=own)


def attributed(rows: DataFrame) -> DataFrame:
    """Attribute the events that an earlier entry of the same log links to their signer (SDR0 I3, P10)."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

    places = ("hub_id", "label")
    found = rows.where("link is not null").groupBy(*places, f.col("link").alias("pair"))
    first = found.agg(f.min("seq").alias("linked_at"))
    if first.isEmpty():
        return rows.drop("pair", "link")
    joined = rows.join(first, [*places, "pair"], "left")
    earlier = f.coalesce(f.col("linked_at") < f.col("seq"), f.lit(False))
    whole = joined.withColumn("attributed", f.col("attributed") | earlier)
    return whole.drop("pair", "link", "linked_at")
