"""Rows of a query from logs: one Arrow pass opens verified entries (core §4.5, RESOLUTIONS P10, P11).

Each entry becomes one row, of kind event, unopened, pruned or other. ``veen_overlays.live.query_view``
decides the kind; its follower makes the same rows from a live hub. An event that a bridge has wrapped gets
two rows: the event's row under its origin, and a row of kind ``CARRIED`` for the entry that carries it.
``resealed_rows`` does the same for events that a bridge has resealed.
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
from veen_overlays.live.query_view.feed.opened_entries import (
    CommitPlace,
    EntryOpener,
    Found,
    OriginHub,
    row_of,
)
from veen_overlays.live.query_view.files.data_files import CARRIED
from veen_overlays.query.columns import EntryKind
from veen_overlays.recorder.attribution import links
from veen_spark.fold.ranges import Task, record_batches, spark_type
from veen_spark.functions.reader_keys import ReaderKeys
from veen_spark.query.event_rows import UINT64, VIEW_SCHEMA
from veen_spark.query.log_sources import Piece, Pieces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITION_BYTES: Final = 4 * 1_048_576
"""Bytes of a log that one task opens: a second of work, so that all cores finish together."""
MAX_PUSHED_LABELS: Final = 1_000
"""Labels by which Spark selects files; of more labels, tasks skip the rows of others."""
ENTRY_COLUMNS: Final = ("label", "stream_seq", "msg", "receipt", "kind", "file")
_EXTRA: Final = (
    pa.field("stream", pa.string()),
    pa.field("read_label", pa.binary()),
    pa.field("read_epoch", pa.int64()),
    pa.field("read_seq", UINT64),
    pa.field("parent", pa.binary()),
    pa.field("signer", pa.binary()),
    pa.field("linked", pa.binary()),
)
BUILT_SCHEMA: Final = pa.schema([*_EXTRA, *VIEW_SCHEMA])
"""A view's columns, and what decides about them.

``stream`` is the name in scope. ``read_…`` is the position of the entry that was read; if the event is
wrapped, it is not that of the row. ``parent`` is the ``parent_id`` of an event that is not wrapped,
``signer`` is the client_id of the MSG, and ``linked`` the ``principal_id || client_id`` of a
``record.continuity.v1`` that ``principal_id`` has signed (P10).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginTerms:
    """A hub whose events a bridge has imported: its pinned identity, and the length of its epochs."""

    identity: HubIdentity
    epoch_sec: int = 0


def build_rows(
    spark: SparkSession,
    paths: Iterable[str],
    pieces: Pieces,
    keys: ReaderKeys | None,
    origins: Iterable[OriginTerms] = (),
) -> DataFrame:
    """Return a row for each entry of the pieces, and one for each event of another hub that they carry."""
    rows = entries_of(spark, paths, {label for _, label in pieces})
    return rows.mapInArrow(_task(dict(pieces), keys, tuple(origins)), spark_type(BUILT_SCHEMA))


def entries_of(spark: SparkSession, paths: Iterable[str], labels: Iterable[bytes]) -> DataFrame:
    """Return the sealed entries of these labels; above ``MAX_PUSHED_LABELS`` labels, those of all labels."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

    rows = spark.read.format("veen").option("maxPartitionBytes", PARTITION_BYTES).load([*paths])
    chosen = sorted(labels)
    if len(chosen) <= MAX_PUSHED_LABELS:
        rows = rows.where(f.col("label").isin([bytearray(label) for label in chosen]))
    return rows.select(*ENTRY_COLUMNS)


def _task(pieces: Pieces, keys: ReaderKeys | None, origins: tuple[OriginTerms, ...]) -> Task:
    def open_entries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        openers = Openers(() if keys is None else keys.get(), origins)
        found = ((entry, piece, kind) for batch in batches for entry, piece, kind in entries(batch, pieces))
        rows = (
            row
            for entry, piece, kind in found
            for row in _rows(piece, entry, None if kind == "pruned" else openers.of(piece.stream))
        )
        return record_batches(rows, BUILT_SCHEMA)

    return open_entries


class Openers:
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
            terms.identity.hub_id: OriginHub.for_stream(terms.identity, stream, epoch_sec=terms.epoch_sec)
            for terms in self._origins
        }


def entries(batch: pa.RecordBatch, pieces: Pieces) -> Iterator[tuple[Entry, Piece, str]]:
    """Yield the entries of a batch that belong to a piece, each with the piece and its kind."""
    columns = [batch.column(name).to_pylist() for name in ENTRY_COLUMNS]
    for label, seq, msg, wire, kind, file in zip(*columns, strict=True):
        piece = pieces.get((os.path.dirname(file), label))
        if piece is not None and piece.from_seq <= seq <= piece.to_seq:
            flags = FLAG_AUTHORIZE if kind == "authorize" else 0
            yield Entry(Label(label), StreamSeq(seq), msg or b"", wire, flags), piece, kind


def _rows(piece: Piece, entry: Entry, opener: EntryOpener | None) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of an entry; ``opener`` is None for a pruned entry, which has no message to open."""
    place = CommitPlace(piece.hub_id, entry.label, piece.epoch, entry.receipt, entry.receipt_bytes)
    read = piece.stream, bytes(entry.label), piece.epoch, entry.stream_seq
    if opener is None:
        yield *read, None, None, None, *row_of(place, EntryKind.PRUNED)
        return
    found = opener.open(entry)
    if found.origin is None:
        yield *read, found.parent, *_keys(found), *row_of(place, found.kind, found)
    else:
        yield *read, None, *_keys(found), *row_of(found.origin, found.kind, found)
        yield *read, None, None, None, *row_of(place, CARRIED)


def _keys(found: Found) -> tuple[bytes | None, bytes | None]:
    """Return the key that signed the MSG, and the keys that its continuity record links."""
    record, client = found.continuity, found.client
    linked = record is not None and links(record, record.client_id)
    pair = bytes(record.principal_id + record.client_id) if record is not None and linked else None
    return None if client is None else bytes(client), pair


def attributed(rows: DataFrame) -> DataFrame:
    """Mark the events whose principal is the signer, or is linked to it by earlier entries (SDR0 I3)."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

    event = f.col("kind") == int(EntryKind.EVENT)
    own = event & (f.col("principal_id") == f.col("signer"))
    whole = rows.withColumn("attributed", f.when(event, f.coalesce(own, f.lit(False))))
    links_here = rows.where(f.substring("linked", 33, 32) == f.col("signer"))
    first = links_here.groupBy("hub_id", "label", "linked").agg(f.min("seq").alias("linked_at"))
    if first.isEmpty():
        return whole
    pair = f.concat("principal_id", "signer")
    first = first.withColumnRenamed("linked", "pair")
    joined = whole.withColumn("pair", pair).join(first, ["hub_id", "label", "pair"], "left")
    earlier = f.coalesce(f.col("linked_at") < f.col("seq"), f.lit(False))
    return joined.withColumn("attributed", f.col("attributed") | earlier).drop("pair", "linked_at")
