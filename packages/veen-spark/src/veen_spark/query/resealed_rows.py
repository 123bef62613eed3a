"""Resealed events under their origins, from a bridge's audit log (RESOLUTIONS P4, P7).

A resealed copy has the schema and body of its original and names it as ``parent_id``. The audit log lists the
origin receipt of each copy, and the leaf that names its writer. As in the view of a live hub
(``live.query_view.origin_log``), the first copy of a listed origin gets the origin's position. A copy that is
not listed waits, and with it the rest of its label, until the bridge has reported the bundle as imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from veen_overlays.live.query_view.feed.origin_log import ListedOrigin, audited
from veen_overlays.live.query_view.files.data_files import CARRIED
from veen_overlays.query.columns import COLUMNS
from veen_spark.fold.ranges import Task, record_batches, spark_type
from veen_spark.functions.reader_keys import ReaderKeys
from veen_spark.query.event_rows import UINT64
from veen_spark.query.log_rows import Openers, OriginTerms, entries
from veen_spark.query.log_sources import Pieces

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_LISTED_SCHEMA: Final = pa.schema(
    [
        ("audit_hub", pa.binary()),
        ("in_stream", pa.string()),
        ("original", pa.binary()),
        ("origin_hub", pa.binary()),
        ("origin_label", pa.binary()),
        ("origin_epoch", pa.int64()),
        ("origin_seq", UINT64),
        ("origin_time", UINT64),
        ("origin_receipt", pa.binary()),
        ("origin_signer", pa.binary()),
        ("target", pa.binary()),
        ("complete_to", UINT64),
    ]
)
"""An origin of one stream in scope, or in the last two columns a label and the end of an imported bundle."""
_ORIGIN: Final = tuple(name for name in _LISTED_SCHEMA.names if name.startswith("origin_"))
_PLACE: Final = {
    "hub_id": "origin_hub",
    "label": "origin_label",
    "epoch": "origin_epoch",
    "seq": "origin_seq",
    "hub_commit_time": "origin_time",
    "leaf_hash": "parent",
    "receipt": "origin_receipt",
    "signer": "origin_signer",
}
"""The columns of a copy that are those of its origin."""
_OF_THE_EVENT: Final = {"parent", "signer", "linked"} | {each.name for each in COLUMNS if not each.always}
"""The columns that are null in the row that remains where a copy was read."""


def read_audit_logs(
    logs: DataFrame,
    pieces: Pieces,
    keys: ReaderKeys | None,
    origins: Sequence[OriginTerms],
    streams: Sequence[str],
) -> DataFrame:
    """Return what the audit logs in ``pieces`` say about the streams in scope; ``logs`` has their entries."""
    task = _task(dict(pieces), keys, tuple(origins), tuple(streams))
    return logs.mapInArrow(task, spark_type(_LISTED_SCHEMA))


def _task(
    pieces: Pieces, keys: ReaderKeys | None, origins: tuple[OriginTerms, ...], streams: tuple[str, ...]
) -> Task:
    def read_entries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        opened_with = () if keys is None else keys.get()
        openers = Openers(opened_with, origins)
        return record_batches(
            (
                row
                for batch in batches
                for entry, piece, kind in entries(batch, pieces)
                if kind == "msg"
                for stream in streams
                for row in _rows(piece.hub_id, stream, audited(entry, opened_with, openers.of(stream)))
            ),
            _LISTED_SCHEMA,
        )

    return read_entries


def _rows(hub: bytes, stream: str, found: Any) -> Iterator[tuple[Any, ...]]:
    if isinstance(found, ListedOrigin):
        place, signer = found.place, None if found.client is None else bytes(found.client)
        receipt = place.receipt
        at = bytes(place.hub_id), bytes(place.label), place.epoch, receipt.stream_seq, 1000 * receipt.hub_ts
        yield bytes(hub), stream, bytes(receipt.leaf_hash), *at, place.wire, signer, None, None
    elif found is not None:
        for target in found.targets:
            yield bytes(hub), stream, *(None,) * 8, bytes(target.label), target.to_seq


def under_origins(rows: DataFrame, said: DataFrame) -> DataFrame:
    """Move each resealed event under its origin; drop the rows of a label from its first waiting copy on."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

    copies = _with_origins(rows.where("parent is not null"), said).persist()
    resealed, whole = copies.where("origin_hub is not null"), rows.columns
    placed = resealed.select(*(f.col(_PLACE.get(name, name)).alias(name) for name in whole))
    carried = resealed.select(*(_carried(rows, name) for name in whole))
    own = copies.where("origin_hub is null").select(*whole)
    every = rows.where("parent is null").unionByName(own).unionByName(placed).unionByName(carried)
    return _up_to_waiting(every, copies, said)


def _with_origins(copies: DataFrame, said: DataFrame) -> DataFrame:
    """Return the events that name a parent, with the origin of the first copy of each listed original."""
    from pyspark.sql import Window  # noqa: PLC0415 - slow to import
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    in_order = Window.partitionBy("stream", "hub_id", "parent").orderBy("read_epoch", "read_seq")
    listed = said.where("origin_hub is not null").groupBy("audit_hub", "in_stream", "original")
    origins = listed.agg(*(f.max(name).alias(name) for name in _ORIGIN))
    of_hub = (f.col("hub_id") == f.col("audit_hub")) & (f.col("stream") == f.col("in_stream"))
    first_copy = (f.col("parent") == f.col("original")) & (f.col("copy") == 1)
    numbered = copies.withColumn("copy", f.row_number().over(in_order))
    return numbered.join(origins, of_hub & first_copy, "left").select(*copies.columns, *_ORIGIN)


def _carried(rows: DataFrame, name: str) -> Column:
    """Return a column of the ``CARRIED`` row that replaces a copy at its own position."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

    if name == "kind":
        return f.lit(CARRIED).cast(rows.schema[name].dataType).alias(name)
    if name in _OF_THE_EVENT:
        return f.lit(None).cast(rows.schema[name].dataType).alias(name)
    return f.col(name)


def _up_to_waiting(rows: DataFrame, copies: DataFrame, said: DataFrame) -> DataFrame:
    """Return the rows of each label before its first copy that is neither listed nor reported as imported."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import

    reports = said.where("target is not null").groupBy("audit_hub", "target")
    complete = reports.agg(f.max("complete_to").alias("complete_to"))
    reported = (f.col("hub_id") == f.col("audit_hub")) & (f.col("label") == f.col("target"))
    unlisted = copies.where("origin_hub is null").join(f.broadcast(complete), reported, "left")
    waiting = unlisted.where(f.col("seq") > f.coalesce(f.col("complete_to"), f.lit(0)))
    first = waiting.groupBy(f.col("label").alias("waiting_label")).agg(f.min("seq").alias("waiting_seq"))
    joined = rows.join(f.broadcast(first), f.col("read_label") == f.col("waiting_label"), "left")
    read = f.col("waiting_seq").isNull() | (f.col("read_seq") < f.col("waiting_seq"))
    return joined.where(read).select(*rows.columns)
